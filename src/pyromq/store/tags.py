"""The tags code of a queue entry: the hash of a message's tag, or its due time."""

from __future__ import annotations

import re
from enum import IntEnum

from pyromq.errors import ConfigError
from pyromq.protocol import properties as props
from pyromq.protocol.hashing import tags_code
from pyromq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_TAGS = props.TAGS.encode()
_DELAY = props.DELAY.encode()
_TIMER_OUT = props.TIMER_OUT_MS.encode()
_TIMER_RECALL = props.TIMER_DEL_UNIQKEY.encode()
_TIMER_ROLLED = props.TIMER_ROLL_TIMES.encode()
# Timers fall due at multiples of this many milliseconds, whatever the precision; that leaves room for their kind.
_TIMER_STEP = 100
_TIMER_FROM, _TIMER_UNTIL = 1 << 40, 1 << 60  # 2004, and long after us; hashes of tags have 32 bits
_DIGITS = 9  # more than any level has; Python refuses to parse numbers of thousands of digits
_KNOWN = 10_000
_KNOWN_LENGTH = 128  # bytes remembered per message

TAG_START = b"\x02TAGS\x01"
_FIRST = TAG_START[1:]  # if it is the first property
_NO_VALUE = (b"", b"\x02")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays of `messageDelayLevel` in milliseconds, level 1 first."""
    delays = []
    for word in text.split():
        match = _LEVEL.fullmatch(word)
        if match is None:
            raise ConfigError(f"messageDelayLevel: {word!r} is not a time such as 30s, 5m, 2h or 1d")
        delays.append(int(match[1]) * _UNITS[match[2]])
    return tuple(delays)


class TimerKind(IntEnum):
    """Kinds of entries in the timer topic."""

    MESSAGE = 0
    RECALL = 1  # a recall: neither it nor the message it names is delivered
    ROLLED = 2  # stored again long before it is due, because log files expire


def timer_code(properties: bytes) -> int | None:
    """The tags code of a message in the timer topic: due time and kind. None if it has no due time.

    RocketMQ writes the hash of the tag there, and never reads it. Due times in the queue let a start find a
    million pending timers in 20 MB, instead of in as many places of the commit log.
    """
    due = props.find(properties, _TIMER_OUT)
    if due is None or not due.isdigit() or len(due) > 18:
        return None
    millis = int(due)
    if millis % _TIMER_STEP or not _TIMER_FROM <= millis < _TIMER_UNTIL:
        return None
    if props.find(properties, _TIMER_RECALL) is not None:
        return millis + TimerKind.RECALL
    return millis + (TimerKind.MESSAGE if props.find(properties, _TIMER_ROLLED) is None else TimerKind.ROLLED)


def split_timer_code(code: int) -> tuple[int, int] | None:
    """Due time and kind of a timer; None if `code` is the hash of a tag, as RocketMQ writes it."""
    if not _TIMER_FROM <= code < _TIMER_UNTIL:
        return None
    kind = code % _TIMER_STEP
    return (code - kind, kind) if kind <= TimerKind.ROLLED else None


class TagsCodes:
    """Makes tags codes: the hash of the tag, or the delivery time of a delayed message."""

    __slots__ = ("_by_tag", "_delays", "known")

    def __init__(self, delays: tuple[int, ...]) -> None:
        self._delays = delays
        # By the end of the properties, beginning with the last TAG_START: producers use few tags, over and over, and
        # what differs between messages mostly comes before it.
        self.known: dict[bytes, int] = {}
        self._by_tag: dict[bytes, int] = {}

    def of(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        if topic == SCHEDULE_TOPIC:
            level = props.find(properties, _DELAY)
            if level is not None and level.isdigit() and (digits := level.lstrip(b"0")):
                return store_timestamp + self._delay(int(digits[:_DIGITS]))
        elif topic == TIMER_TOPIC:
            code = timer_code(properties)
            if code is not None:
                return code
        return self.of_tag(properties)

    def of_tag(self, properties: bytes) -> int:
        """The hash of the tag in `properties`, 0 without one."""
        at = properties.rfind(TAG_START)
        if at < 0:
            return self._code(properties) if properties.startswith(_FIRST) else 0
        end = properties[at:]
        code = self.known.get(end)
        if code is None:
            code = self._code(properties)
            # Not if the tag is empty, since an earlier one may count, nor if what follows is unique to this message.
            if end[len(TAG_START) :][:1] not in _NO_VALUE and b"KEY" not in end:
                _remember(self.known, end, code)
        return code

    def _code(self, properties: bytes) -> int:
        tag = props.find(properties, _TAGS)
        if not tag:
            return 0
        code = self._by_tag.get(tag)
        if code is None:
            code = tags_code(props.decode(tag))
            _remember(self._by_tag, tag, code)
        return code

    def _delay(self, level: int) -> int:
        # A level that is no longer configured: deliver soon rather than never.
        if not self._delays:
            return 1000
        return self._delays[min(level, len(self._delays)) - 1]


def _remember(codes: dict[bytes, int], key: bytes, code: int) -> None:
    if len(key) <= _KNOWN_LENGTH:
        if len(codes) >= _KNOWN:
            codes.clear()
        codes[key] = code
