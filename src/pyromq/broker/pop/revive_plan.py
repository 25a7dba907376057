"""Revival: popped messages that were not acknowledged in time come back, in the retry topic of their group.

    revive queue   ck  ck  ack  ck  ack  ack  …            one record after the other, as `log` has them arrive
                    |__________|                           the first checkpoint is acknowledged: nothing to do
                        |_________ no ack _____> retry topic, or dead letters; and an ack by us, in the same write

A checkpoint arrives a second before its messages are due, its acks when they are. So when the timers say that they have
delivered everything up to a time, and the queue is read to its end, all checkpoints that were due by then are decided.
Progress is kept as the offset of an internal group, and our own acks tell a broker that crashed
in between what it had done. All of this is as in RocketMQ, so either broker can take over from the other at any time.

After a crash timers deliver once more what they delivered in the last moments. A checkpoint that was decided then is
known, since the queue is read again from some seconds before.

In memory are the checkpoints that are not decided, those of about a second, and the names of the last that are. If they
are more than `popCkMaxBufferSize`, since nobody looked for days, the rest is read again when these are decided.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord, OffsetOutOfRange
from pyromq.protocol.record import decode_record
from pyromq.store.format import ENTRY, PRE_BLANK_SIZE

from .records import Checkpoint, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .records import Ack, Key

logger = logging.getLogger(__name__)


_CHUNK = 256  # records per read: two milliseconds
# With more checkpoints than there is room for, acks are searched up to this far past the last of them: in
# milliseconds, by due time.
_LATE_ACKS = 2000
# Milliseconds to remember a decided checkpoint: longer than timers take to save their progress.
_REMEMBERED = 10_000
_AT_LEAST = 10_000  # most names to keep


@dataclass(slots=True)
class OpenCheckpoint:
    """An undecided checkpoint, the place of its record, and its unacknowledged messages."""

    checkpoint: Checkpoint
    offset: int
    left: set[int]


class ReviveQueue:
    """One queue of the revive topic, as far as it was read. Decides; `revive` acts."""

    def __init__(self, store: MessageStore, topic: str, number: int, room: int, done: int | None) -> None:
        """`done` is the last record that is no longer needed, None if there is none."""
        self._store = store
        self._topic = topic
        self.number = number
        self._room = room
        self._next = 0 if done is None else done + 1
        self._open: OrderedDict[Key, OpenCheckpoint] = OrderedDict()
        self._decided: OrderedDict[Key, int] = OrderedDict()  # with when they were due
        # The first checkpoint that did not fit, and when the newest that did was due.
        self._overflow: int | None = None
        self._newest_due = 0
        # Where the queue ended at the start. Up to there, acks may show that checkpoints were decided before.
        self._end_at_start: int | None = None
        self._is_complete = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def done(self) -> int:
        """The last record that is no longer needed, as RocketMQ counts; -1 if there is none."""
        first = next(iter(self._open.values()), None)
        if first is not None:
            return first.offset - 1
        return (self._next if self._overflow is None else self._overflow) - 1

    def read(self) -> bool:
        """Read some more; True if there is more."""
        queue = self._queue
        if queue is None:
            self._end_at_start = 0
            self._is_complete = True
            return False
        if self._end_at_start is None:
            self._end_at_start = int(queue.max_offset)
        self._next = min(max(self._next, int(queue.min_offset)), int(queue.max_offset))
        if self._overflow is not None and not self._open:
            self._next, self._overflow = self._overflow, None
        entries = queue.entries(self._next, _CHUNK)
        if not entries and self._next < queue.max_offset:
            self._next = min(int(queue.next_file_offset(self._next)), int(queue.max_offset))
            return True
        self._is_complete = False
        for physical, size, _ in ENTRY.iter_unpack(entries):
            said = None if size == PRE_BLANK_SIZE else self._said(physical, size)
            if isinstance(said, Checkpoint):
                if self._take(said):
                    return False
            elif said is not None:
                self._acknowledge(said)
            self._next += 1
        self._is_complete = self._next >= queue.max_offset
        return not self._is_complete

    @property
    def _queue(self) -> ConsumeQueue | None:
        return self._store.queues.find(self._topic, self.number)

    def _said(self, physical: int, size: int) -> Checkpoint | Ack | None:
        try:
            return read_record(decode_record(self._store.log.read(physical, size), check_crc=False))
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("revive queue %d: skipping the record at %d: %s", self.number, physical, exc)
            return None

    def _take(self, checkpoint: Checkpoint) -> bool:
        """Remember a checkpoint; True if there is no room for it and the others need no further reading."""
        if self._overflow is None and len(self._open) >= self._room and checkpoint.key not in self._open:
            self._overflow = self._next
        if self._overflow is not None:
            is_late = checkpoint.revive_time > self._newest_due + _LATE_ACKS
            self._is_complete = is_late and self._next >= (self._end_at_start or 0)
            return self._is_complete
        if checkpoint.key in self._open or checkpoint.key in self._decided:
            return False  # delivered twice
        left = checkpoint.unacked
        if left:
            self._open[checkpoint.key] = OpenCheckpoint(checkpoint, self._next, left)
            self._newest_due = max(self._newest_due, checkpoint.revive_time)
        return False

    def _acknowledge(self, ack: Ack) -> None:
        known = self._open.get(ack.key)
        if known is not None:
            known.left.difference_update(ack.all_offsets)
            if not known.left:
                self.decided(known)

    def due(self, delivered_before: int) -> Iterator[OpenCheckpoint]:
        """The checkpoints whose messages come back. The caller confirms each with `decided`."""
        while self._decided and next(iter(self._decided.values())) < delivered_before - _REMEMBERED:
            self._decided.popitem(last=False)
        if self._is_complete:
            yield from (each for each in self._open.values() if each.checkpoint.revive_time <= delivered_before)

    def decided(self, each: OpenCheckpoint) -> None:
        """A checkpoint needs nothing more."""
        key = each.checkpoint.key
        if self._open.pop(key, None) is not None:
            self._decided[key] = each.checkpoint.revive_time
            if len(self._decided) > max(self._room, _AT_LEAST):
                self._decided.popitem(last=False)
