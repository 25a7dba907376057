"""The tags code of a queue entry: what a consume queue knows of a message besides its place."""

from __future__ import annotations

import re

from pyromq.errors import ConfigError
from pyromq.protocol import properties as props
from pyromq.protocol.hashing import tags_code

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_TAGS = props.TAGS.encode()
_DELAY = props.DELAY.encode()
_DIGITS = 9  # more than any level has; Python refuses to read a number of some thousand
_KNOWN_LENGTH = 128  # bytes of a tag that is remembered


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays of `messageDelayLevel` in milliseconds, level 1 first."""
    delays = []
    for word in text.split():
        match = _LEVEL.fullmatch(word)
        if match is None:
            raise ConfigError(f"messageDelayLevel: {word!r} is no time such as 30s, 5m, 2h or 1d")
        delays.append(int(match[1]) * _UNITS[match[2]])
    return tuple(delays)


class TagsCodes:
    """Makes tags codes: the hash of the tag, or the time of delivery for a message that is being delayed."""

    __slots__ = ("_delays", "_known")

    def __init__(self, delays: tuple[int, ...]) -> None:
        self._delays = delays
        # Producers use few tags, over and over.
        self._known: dict[bytes, int] = {}

    def of(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        if topic == SCHEDULE_TOPIC:
            level = props.find(properties, _DELAY)
            if level is not None and level.isdigit() and (digits := level.lstrip(b"0")):
                return store_timestamp + self._delay(int(digits[:_DIGITS]))
        return self.of_tag(properties)

    def of_tag(self, properties: bytes) -> int:
        """The hash of the tag in `properties`, 0 without one."""
        # Where the tag stands in its usual place, a third of what `props.find` costs, which handles all the others.
        at = properties.rfind(b"\x02TAGS\x01")
        if at >= 0:
            stop = properties.find(b"\x02", at + 6)
            tag: bytes | None = properties[at + 6 : stop] if stop >= 0 else properties[at + 6 :]
        else:
            tag = props.find(properties, _TAGS)
            if tag is None:
                return 0
        code = self._known.get(tag or b"")
        return self._new_code(properties) if code is None else code

    def _new_code(self, properties: bytes) -> int:
        tag = props.find(properties, _TAGS)
        if not tag:
            return 0
        if len(self._known) > 10_000:
            self._known.clear()
        code = tags_code(props.decode(tag))
        if len(tag) <= _KNOWN_LENGTH:
            self._known[tag] = code
        return code

    def _delay(self, level: int) -> int:
        # A level that was configured once and is no more: deliver it soon rather than never.
        if not self._delays:
            return 1000
        return self._delays[min(level, len(self._delays)) - 1]
