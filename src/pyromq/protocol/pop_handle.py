"""POP: the handle of a message that was popped, and the topics that popped messages are tried again in.

    handle   startOffset popTime invisibleTime reviveQueueId r brokerName queueId queueOffset     blanks between

`startOffset` is where the read began that found the message; with the queue, the group and the time it names the
checkpoint that the broker wrote of it. r tells which topic the queue is one of:

    0   the topic itself
    1   %RETRY%group_topic
    2   %RETRY%group+topic     from 5.3 on, if brokers are set to: here the two names can be told from each other

A broker gives the parts of a handle in the headers of its answer, and clients put them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import RemoteProtocolError

from .header import parse_int
from .names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"

# The revive queue that stands for pops in order: they have no checkpoint, and so none to be revived from.
ORDER_REVIVE_QUEUE = 999

_SEPARATORS = {RETRY_V1: "_", RETRY_V2: "+"}
_PARTS = 7  # that are always there; the offset of the message came later


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Where messages of `topic` go that `group` popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}{_SEPARATORS[RETRY_V2 if v2 else RETRY_V1]}{topic}"


def normal_topic(topic: str, group: str) -> str:
    """The topic that a message of `topic`, which may be a retry topic of `group`, was sent to."""
    for separator in _SEPARATORS.values():
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_mark(topic: str) -> str:
    """The r of a handle."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if _SEPARATORS[RETRY_V2] in topic else RETRY_V1


def marked_topic(topic: str, group: str, mark: str) -> str:
    """The topic that `mark` means, of messages that were sent to `topic`. RemoteProtocolError if it means none."""
    if mark == NORMAL:
        return topic
    if mark not in _SEPARATORS:
        raise RemoteProtocolError(f"not the mark of a topic: {mark[:20]!r}")
    return pop_retry_topic(topic, group, v2=mark == RETRY_V2)


class PopHandle(NamedTuple):
    """What is known of a message that was popped. Times are milliseconds."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    mark: str
    broker_name: str
    queue_id: int
    queue_offset: int | None = None

    @property
    def revive_time(self) -> int:
        return self.pop_time + self.invisible_time

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def encode(self) -> str:
        parts = self if self.queue_offset is not None else self[:_PARTS]
        return " ".join(map(str, parts))


def decode_handle(text: str) -> PopHandle:
    """What a handle says. RemoteProtocolError if it is none."""
    parts = text.split(" ", _PARTS + 1)
    try:
        start, pop_time, invisible_time, revive_queue, mark, broker_name, queue_id, *more = parts
        numbers = [parse_int(64, part) for part in (start, pop_time, invisible_time, *more[:1])]
        return PopHandle(
            start_offset=numbers[0],
            pop_time=numbers[1],
            invisible_time=numbers[2],
            revive_queue=parse_int(32, revive_queue),
            mark=mark,
            broker_name=broker_name,
            queue_id=parse_int(32, queue_id),
            queue_offset=numbers[3] if more else None,
        )
    except ValueError:
        raise RemoteProtocolError(f"not a handle of a popped message: {text[:100]!r}") from None


# What the answer to a pop says of the queues that it took messages from, joined by semicolons.


def start_offset_info(topic: str, queue_id: int, start_offset: int) -> str:
    return f"{retry_mark(topic)} {queue_id} {start_offset}"


def message_offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    return f"{retry_mark(topic)} {queue_id} {','.join(map(str, offsets))}"


def order_count_info(topic: str, queue_id: int, counts: Sequence[tuple[int, int]], least: int) -> str:
    """How often each of the messages (their offsets, with counts) was popped before; `least` is for old clients."""
    mark = retry_mark(topic)
    each = [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in counts]
    return ";".join((*each, f"{mark} {queue_id} {least}"))
