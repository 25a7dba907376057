"""The half queue: half messages in the store, and which of them are decided.

Everything is in the store: half messages in their topic, done ones in the op topic, and how far both were examined
as offsets of a group. So a restart, even on RocketMQ's files, continues where the broker stopped.

What follows a half message, the message that consumers see or its next copy, is written first, and right after it
the op record. So a crash may cost one op record, that of the very last message, and `load` makes up for
it: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord, OffsetOutOfRange
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from pyromq.protocol.record import decode_record
from pyromq.store import PutStatus
from pyromq.store.format import ENTRY, PRE_BLANK_SIZE

from .half_messages import COPY_MARK, is_same, origin
from .op_records import Decided, offsets_in, op_record

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord
    from pyromq.store import PutResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..context import Context
    from ..offsets.consumer_offsets import ConsumerOffsets

logger = logging.getLogger(__name__)


_AT_ONCE = 1024  # entries per read
_REMEMBERED = 65_536  # messages with copies, about 200 bytes each


@dataclass(slots=True)
class _Copy:
    """The newest copy of a half message."""

    offset: int
    decided: bool = False


class HalfQueue:
    """Half messages and op records. `clock` gives epoch milliseconds, `store_host` stands for this broker."""

    def __init__(self, context: Context, offsets: ConsumerOffsets) -> None:
        self._store = context.store
        self._appends = context.appends
        self._offsets = offsets
        self._clock = context.clock
        self._store_host = context.store_host
        # Copies by the offset that their senders know. Decided ones may be forgotten.
        self._copies: dict[int, _Copy] = {}
        # Half messages whose op record could not be written because the disk failed: they are done all the same.
        self.owed: set[int] = set()

    # Places

    @property
    def end(self) -> int:
        """The offset of the next half message."""
        queue = self._store.queues.find(HALF_TOPIC, 0)
        return 0 if queue is None else int(queue.max_offset)

    @property
    def op_end(self) -> int:
        """The offset of the next op record."""
        queue = self._store.queues.find(HALF_OP_TOPIC, 0)
        return 0 if queue is None else int(queue.max_offset)

    def position(self) -> tuple[int, int]:
        """The first half message and the first op record still to examine."""
        return self._position(HALF_TOPIC), self._position(HALF_OP_TOPIC)

    def _position(self, topic: str) -> int:
        queue = self._store.queues.find(topic, 0)
        if queue is None:
            return 0
        saved = self._offsets.get(TRANSACTION_GROUP, topic, 0)
        return min(max(saved or 0, int(queue.min_offset)), int(queue.max_offset))

    def move_on(self, half_offset: int, op_offset: int) -> None:
        """Everything before these offsets is done. What it led to must have been flushed."""
        self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, half_offset)
        self._offsets.commit(TRANSACTION_GROUP, HALF_OP_TOPIC, 0, op_offset)
        # Remember that it was decided: a producer that answered a check may still send the end itself.
        keep_decided = len(self._copies) < _REMEMBERED
        self._copies = {
            first: copy
            for first, copy in self._copies.items()
            if copy.offset >= half_offset or (copy.decided and keep_decided)
        }

    # Reading

    def at(self, offset: int) -> MessageRecord | None:
        """The half message at a queue offset; None if it cannot be read."""
        queue = self._store.queues.find(HALF_TOPIC, 0)
        entry = None if queue is None else queue.entry(offset)
        if entry is None or entry[1] == PRE_BLANK_SIZE:
            return None
        try:
            return decode_record(self._store.log.read(entry[0], entry[1]), check_crc=False)
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("half message %d at %d cannot be read: %s", offset, entry[0], exc)
            return None

    def named(self, physical_offset: int) -> MessageRecord | None:
        """The half message at a place in the log; None if there is none."""
        try:
            record = decode_record(self._store.stored_at(physical_offset), check_crc=False)
        except (OffsetOutOfRange, CorruptRecord):
            return None
        return record if record.topic == HALF_TOPIC else None

    def read_ops(self, decided: Decided, count: int) -> int:
        """Feed about `count` more op records to `decided`; returns how many were read."""
        queue = self._store.queues.find(HALF_OP_TOPIC, 0)
        if queue is None or decided.op_offset >= queue.max_offset:
            return 0
        offset = decided.op_offset
        entries = queue.entries(offset, count)
        if not entries:  # a file is missing
            gone = min(int(queue.next_file_offset(offset)), int(queue.max_offset)) - offset
            for _ in range(gone):
                decided.read(())
            return gone
        end = self.end
        for physical, size, _ in ENTRY.iter_unpack(entries):
            # An offset without a half message means nothing, and would be waited for for ever.
            decided.read([offset for offset in self._offsets_at(physical, size) if offset < end])
        return len(entries) // ENTRY.size

    def _offsets_at(self, physical: int, size: int) -> list[int]:
        if size == PRE_BLANK_SIZE:
            return []
        try:
            return offsets_in(decode_record(self._store.log.read(physical, size), check_crc=False))
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("op record at %d cannot be read: %s", physical, exc)
            return []

    # Deciding

    def decide(self, half: MessageRecord) -> int | None:
        """The offset whose op record decides `half`: its own, or that of its newest copy. None if already decided.

        A commit or rollback of an older copy counts for the newest: its sender may not know of that one.
        """
        copy = self._copies.get(origin(half))
        if copy is None:
            return half.queue_offset
        if copy.offset != half.queue_offset:
            newest = self.at(copy.offset)
            if newest is None or not is_same(newest, half):
                return half.queue_offset
        if copy.decided:
            return None
        copy.decided = True
        return copy.offset

    def undecide(self, half: MessageRecord) -> None:
        """Undo `decide`: the end could not be stored."""
        copy = self._copies.get(origin(half))
        if copy is not None:
            copy.decided = False

    def op(self, offset: int) -> tuple[ConsumeQueue, MessageRecord]:
        """The op record that marks a half message as done, and its queue."""
        return self._store.queue(HALF_OP_TOPIC, 0), op_record(offset, self._clock(), self._store_host)

    # Writing at once

    def put(self, record: MessageRecord) -> PutResult:
        """Store what follows a half message; `close` must be next."""
        return self._appends.put_again(self._store.queue(record.topic, record.queue_id), record)

    def close(self, offset: int) -> None:
        """Mark a half message as done."""
        result = self._appends.put_again(*self.op(offset))
        if result.status is PutStatus.PUT_OK:
            self.owed.discard(offset)
        else:
            logger.error("cannot mark half message %d as done: %s; trying again", offset, result.error)
            self.owed.add(offset)

    def was_renewed(self, half: MessageRecord, offset: int) -> None:
        """The newest copy of `half` is now at `offset`."""
        self._copies[origin(half)] = _Copy(offset)

    # After a start

    def load(self) -> None:
        """Find the copies, and write what a crash prevented. Offsets must be loaded."""
        queue = self._store.queues.find(HALF_TOPIC, 0)
        if queue is None:
            return
        start, op_start = self.position()
        # A power failure may have taken messages before these offsets. New ones get the same offsets again.
        self.move_on(start, op_start)
        decided = Decided(start, self.end, op_start)
        while self.read_ops(decided, _AT_ONCE):
            pass
        self._find_copies(queue, decided, start)
        self._close_committed(decided)

    def _find_copies(self, queue: ConsumeQueue, decided: Decided, offset: int) -> None:
        while (offset := decided.next_open(offset)) < queue.max_offset:
            entry = queue.entry(offset)
            if entry is not None and self._is_copy(entry[0], entry[1]) and (half := self.at(offset)) is not None:
                known = self._copies.get(origin(half))
                before = origin(half) if known is None else known.offset
                if before < offset and decided.is_open(before):
                    older = self.at(before)
                    if older is not None and is_same(older, half):
                        logger.warning("half message %d was renewed as %d when the broker stopped", before, offset)
                        self.close(before)
                self.was_renewed(half, offset)
            offset += 1

    def _is_copy(self, physical: int, size: int) -> bool:
        # Without decoding: of many thousands only a few are copies.
        return self._store.log.holds(physical, size) and COPY_MARK in bytes(self._store.log.read(physical, size))

    def _close_committed(self, decided: Decided) -> None:
        """Check whether the newest message in the log is a commit whose half message is still open."""
        newest = max(self._store.queues, key=lambda queue: queue.max_physical, default=None)
        offset = None if newest is None else newest.last_real(newest.max_offset)
        entry = None if newest is None or offset is None else newest.entry(offset)
        if entry is None or not self._store.log.holds(entry[0], entry[1]):
            return
        try:
            message = decode_record(self._store.log.read(entry[0], entry[1]), check_crc=False)
        except CorruptRecord:
            return
        half = self.named(message.prepared_transaction_offset)
        if half is None or not _is_commit_of(message, half):
            return
        place = self.decide(half)
        if place is not None and decided.is_open(place):
            logger.warning("half message %d was committed when the broker stopped", place)
            self.close(place)


def _is_commit_of(message: MessageRecord, half: MessageRecord) -> bool:
    """Whether `message` is the commit of `half`, and not, say, a later send-back."""
    return (
        sysflag.transaction_type(message.sys_flag) == sysflag.COMMIT
        and message.prepared_transaction_offset == half.physical_offset
        and message.reconsume_times == half.reconsume_times
        and message.born_timestamp == half.born_timestamp
        and message.find_property(props.UNIQ_KEY) == half.find_property(props.UNIQ_KEY)
        and message.body == half.body
    )
