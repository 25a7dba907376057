"""Selects the records that become rows, by heads, topics and tags, before anything else is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.names import (
    CHECKED_TOO_OFTEN_TOPIC,
    HALF_OP_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    TIMED_TOPICS,
)

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord

# Where brokers park messages: half messages, their ends and undecided ones, delayed ones
# (4.x and 5.x), popped ones.
_PARKED = TIMED_TOPICS | {HALF_TOPIC, HALF_OP_TOPIC, CHECKED_TOO_OFTEN_TOPIC}
_PARKED_PREFIXES = (RETRY_PREFIX, REVIVE_PREFIX)
INTERNAL_BEGINNINGS = (*sorted(_PARKED), *_PARKED_PREFIXES)  # each internal topic begins with one of these
# Records of these types never enter a queue.
_NEVER_DELIVERED = (sysflag.PREPARED, sysflag.ROLLBACK)


def is_internal_topic(topic: str) -> bool:
    """Whether messages wait in `topic` until a broker moves or repeats them; not so dead letters, which stay."""
    return topic in _PARKED or topic.startswith(_PARKED_PREFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records are wanted; all by default."""

    topics: frozenset[str] | None = None
    tags: frozenset[str] | None = None  # compared as text; brokers and queues compare only hashes
    internal: bool = True  # False hides what waits inside the broker, unless `topics` names it, and what never left it
    since: int | None = None  # store time in ms
    until: int | None = None  # exclusive
    queue_ids: frozenset[int] | None = None
    first_offset: int | None = None  # of the queue
    end_offset: int | None = None  # exclusive
    offsets: frozenset[int] | None = None  # only these of the queue

    @property
    def chooses_nothing(self) -> bool:
        """Whether no record can match."""
        empty: frozenset[object] = frozenset()
        return empty in (self.topics, self.tags, self.queue_ids, self.offsets)

    @property
    def names_queues(self) -> bool:
        """Whether queues and their entries help to find what is wanted."""
        offsets = (self.first_offset, self.end_offset)
        return (self.topics, self.tags, self.queue_ids, self.offsets, *offsets) != (None,) * 6

    @property
    def least_offset(self) -> int:
        """No message before this queue offset is wanted."""
        return max(self.first_offset or 0, min(self.offsets, default=0) if self.offsets is not None else 0)

    @property
    def most_offset(self) -> int | None:
        """No message from this queue offset on is wanted."""
        ends = [] if self.end_offset is None else [self.end_offset]
        if self.offsets is not None:
            ends.append(max(self.offsets, default=-1) + 1)
        return min(ends, default=None)

    @property
    def needs_topic(self) -> bool:
        return self.topics is not None or not self.internal

    def has_topic(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        return self.internal or not is_internal_topic(topic)

    def has(self, record: MessageRecord) -> bool:
        """Whether a decoded record is wanted."""
        if not self.has_topic(record.topic):
            return False
        if self.queue_ids is not None and record.queue_id not in self.queue_ids:
            return False
        if not self.internal and sysflag.transaction_type(record.sys_flag) in _NEVER_DELIVERED:
            return False
        if self.since is not None and record.store_timestamp < self.since:
            return False
        if self.until is not None and record.store_timestamp >= self.until:
            return False
        return self.tags is None or record.find_property(props.TAGS) in self.tags

    def has_offset(self, queue_offset: int) -> bool:
        """Whether a message is wanted by its queue offset. Checked for each message of an inner batch."""
        return (
            (self.first_offset is None or queue_offset >= self.first_offset)
            and (self.end_offset is None or queue_offset < self.end_offset)
            and (self.offsets is None or queue_offset in self.offsets)
        )
