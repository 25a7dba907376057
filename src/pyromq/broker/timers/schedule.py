"""Delivery by delay level: each level is a queue of the schedule topic, ordered by due time.

An entry of such a queue carries the delivery time instead of a tag, so the next entry of a level tells whether
there is work to do. Due messages go to their real topic through `Appends`, like any other message.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord, OffsetOutOfRange, StoreError
from pyromq.protocol.bodies.offsets import DelayOffsetTable
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.protocol.record import decode_record
from pyromq.store import PutStatus
from pyromq.store.format import ENTRY, PRE_BLANK_SIZE

from ..stats.incoming import DELAY
from .delay_levels import restored
from .delivered import NOTED_EVERY, delivered_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyromq.protocol.record import MessageRecord
    from pyromq.store import MessageStore, PutResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..context import Context

logger = logging.getLogger(__name__)

_FIRST = 1.0  # seconds after the start
_PAUSE = 0.1  # between two checks, if nothing is due sooner
_AFTER_ERROR = 10.0
_ANY = 1 << 62  # ms; no delay is longer
# The store's status for a message that is too long: maxMessageSize was lowered since it was sent.
_TOO_LONG = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
CONSUMER = "SCHEDULE_CONSUMER"  # the group under which deliveries are counted
# Messages of one level delivered at a time: when thousands fall due together, sends continue in between.
_AT_ONCE = 64


class ScheduleService:
    """Delivers what is due. `clock` gives epoch milliseconds; `offsets` are the next entries to look at, by level.

    `kept` is the table behind the offsets file.
    """

    def __init__(self, context: Context, delays: Sequence[int]) -> None:
        self._store = context.store
        self._appends = context.appends
        self._delays = delays
        self._clock = context.clock
        self._stats = context.stats
        self._cluster_name = context.live.config.cluster_name
        self.kept = KeptOffsets(self, context.store, copied=context.live.config.is_slave)
        self._under_way: set[int] = set()  # levels whose last messages are not stored yet
        self.offsets: dict[int, int] = {}
        self.dirty = False

    @property
    def levels(self) -> int:
        """The number of configured delay levels."""
        return len(self._delays)

    def snapshot(self) -> DelayOffsetTable:
        """The next offset of each level."""
        return DelayOffsetTable(offset_table=dict(self.offsets))

    def load(self, saved: DelayOffsetTable) -> None:
        """Continue from these offsets, or further if the log shows that messages were delivered since."""
        self.offsets = {level: offset for level, offset in saved.offset_table.items() if level > 0}
        self.dirty = self._pass_delivered(saved.log_table or {})
        self.kept.restart(self.offsets, self._all_levels, int(self._store.log.end))

    def take_over(self, masters: DelayOffsetTable, place: int) -> None:
        """Stand where the master does. From `place` on, the log may have more that it delivered."""
        offsets = {level: offset for level, offset in masters.offset_table.items() if level > 0}
        if offsets != self.offsets:
            self.offsets = offsets
            self.dirty = True
        self.kept.restart(offsets, self._all_levels, place)

    def _pass_delivered(self, noted: dict[int, int]) -> bool:
        """Move past what the log shows as delivered; returns whether it was searched. Levels deliver in queue order."""
        queues, starts = {}, {}
        # If no place was ever noted, search the whole log.
        first = min(noted.values(), default=0)
        for level in self._all_levels:
            queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
            # RocketMQ's table does not have it.
            start = noted.get(level, None if self.offsets.get(level) else first)
            if queue is not None and start is not None and self._next(level, queue) < queue.max_offset:
                queues[level], starts[level] = queue, start
        if not starts:
            return False
        found = delivered_since(self._store, min(starts.values()))
        for level, queue in queues.items():
            for offset in range(self._next(level, queue), int(queue.max_offset)):
                entry = queue.entry(offset) if found else None
                if entry is None:
                    break
                message = None if entry[1] == PRE_BLANK_SIZE else self._restored(entry[0], entry[1])
                if message is not None:
                    if not found.take(message, starts[level]):
                        break
                    self.offsets[level] = offset + 1
        return True

    def _next(self, level: int, queue: ConsumeQueue) -> int:
        return int(min(max(self.offsets.get(level, 0), queue.min_offset), queue.max_offset))

    async def run(self) -> None:
        """Deliver until cancelled."""
        await asyncio.sleep(_FIRST)
        while True:
            try:
                more = self.step()
            except StoreError as exc:
                logger.error("cannot read delayed messages: %s; trying again in %g s", exc, _AFTER_ERROR)
                await asyncio.sleep(_AFTER_ERROR)
            else:
                await asyncio.sleep(0 if more else _PAUSE)

    def step(self) -> bool:
        """Deliver due messages, a limited number; True if there are more."""
        now = self._clock()
        more = False
        for level, delay in self._all_levels.items():
            if level not in self._under_way:
                more |= self._deliver(level, delay, now)
        return more

    @functools.cached_property
    def _all_levels(self) -> dict[int, int]:
        """Delays by level, including levels no longer configured where messages may still wait."""
        parked = self._store.queues.of_topic(SCHEDULE_TOPIC)
        return {queue.queue_id + 1: _ANY for queue in parked} | dict(enumerate(self._delays, 1))

    def _deliver(self, level: int, delay: int, now: int) -> bool:
        queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return False
        offset = self._next(level, queue)
        batch = _Batch(self, level, offset)
        for physical, size, due in ENTRY.iter_unpack(queue.entries(offset, _AT_ONCE)):
            # A due time further away than the level's delay comes from a clock that was set back since.
            if size != PRE_BLANK_SIZE and now < due <= now + delay:
                break
            batch.add(None if size == PRE_BLANK_SIZE else self._restored(physical, size))
        if not batch.records:
            return False
        self._under_way.add(level)
        for number, record in enumerate(batch.records):
            if record is None:
                batch.done(number)
            else:
                stored_at = self._store.queue(record.topic, record.queue_id)
                self._appends.put(stored_at, (record,), functools.partial(batch.stored, number), wait=False)
        return len(batch.records) == _AT_ONCE

    def store_again(self, record: MessageRecord) -> PutResult:
        """Store a message that was acknowledged when longer messages were allowed."""
        return self._appends.put_again(self._store.queue(record.topic, record.queue_id), record)

    def is_under_way(self, level: int) -> bool:
        return level in self._under_way

    def batch_ended(self, level: int) -> None:
        self._under_way.discard(level)

    def moved_on(self, level: int, offset: int) -> None:
        """All messages of `level` before `offset` were delivered."""
        self.offsets[level] = offset
        self.kept.moved_on(level, offset)
        self.dirty = True

    def count(self, level: int, delivered: dict[str, list[int]]) -> None:
        """Count messages delivered from `level`, by topic and size."""
        stats = self._stats
        for topic, sizes in delivered.items():
            count, size = len(sizes), sum(sizes)
            for item, key in (
                ("QUEUE", f"{SCHEDULE_TOPIC}@{level - 1}@{CONSUMER}"),
                ("GROUP", f"{SCHEDULE_TOPIC}@{CONSUMER}"),
            ):
                stats.add(f"{item}_GET_NUMS", key, count, count)
                stats.add(f"{item}_GET_SIZE", key, size, count)
            stats.add_stored(self._cluster_name, topic, sizes, DELAY)

    def _restored(self, physical: int, size: int) -> MessageRecord | None:
        """The message as it was sent; None if it cannot be delivered."""
        try:
            record = decode_record(self._store.log.read(physical, size))
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("skipping the delayed message at %s: %s", physical, exc)
            return None
        message = restored(record)
        if message is None:
            logger.error("skipping the delayed message at %s: it has no target topic", physical)
        return message


class KeptOffsets:
    """delayOffset.json: the offset of each level, as far as deliveries are on disk.

    An offset is not saved before the messages delivered up to it are there to stay. Otherwise a power failure, or a new
    master, could take them, and the level would continue after them. The file also says where in the log to look for
    later deliveries (see `delivered`), so it is also rewritten when much was written to the log. A slave's offsets are
    `copied`: its log goes on with what the master delivers, so the place stays where it was when the master sent them.
    """

    def __init__(self, service: ScheduleService, store: MessageStore, *, copied: bool = False) -> None:
        self._service = service
        self._store = store
        self._copied = copied
        self._offsets: dict[int, int] = {}
        # How far the log must be on disk before a level may be saved at an offset.
        self._moves: deque[tuple[int, int, int]] = deque()
        # Before these places in the log, nothing from those offsets on was delivered.
        self._places: dict[int, int] = {}
        self._noted = -NOTED_EVERY

    @property
    def dirty(self) -> bool:
        if self._service.dirty:
            return True
        is_old = self._store.kept_end - self._noted >= NOTED_EVERY
        return is_old and bool(self._store.queues.of_topic(SCHEDULE_TOPIC))

    @dirty.setter
    def dirty(self, dirty: bool) -> None:
        self._service.dirty = dirty

    def load(self, saved: DelayOffsetTable) -> None:
        self._service.load(saved)

    def restart(self, offsets: dict[int, int], levels: Iterable[int], place: int) -> None:
        self._offsets = dict(offsets)
        self._places = dict.fromkeys(levels, place)
        self._moves.clear()

    def moved_on(self, level: int, offset: int) -> None:
        self._moves.append((int(self._store.log.end), level, offset))

    def snapshot(self) -> DelayOffsetTable:
        kept = self._store.kept_end
        while self._moves and self._moves[0][0] <= kept:
            place, level, offset = self._moves.popleft()
            self._offsets[level] = offset
            self._places[level] = place
        if self._moves:
            self._store.flushed()  # so that it is by the next time
            self._service.dirty = True
        moving = {level for _, level, _ in self._moves}
        for level in self._places:
            if level not in moving and not self._copied and not self._service.is_under_way(level):
                self._places[level] = kept
        self._noted = kept
        return DelayOffsetTable(offset_table=dict(self._offsets), log_table=dict(self._places))


class _Batch:
    """Messages of one level handed over together. The level advances past those stored without a gap."""

    def __init__(self, service: ScheduleService, level: int, offset: int) -> None:
        self._service = service
        self._level = level
        self._offset = offset
        self._delivered: list[bool] = []
        self._unknown = 0  # how many are still open
        self._sizes: dict[str, list[int]] = {}  # sizes delivered, by topic
        self.records: list[MessageRecord | None] = []

    def add(self, record: MessageRecord | None) -> None:
        """Add a message, or None for an entry that is skipped."""
        self.records.append(record)
        self._delivered.append(True)
        self._unknown += 1

    def stored(self, number: int, results: Sequence[PutResult]) -> None:
        result, record = results[0], self.records[number]
        if result.status in _TOO_LONG and record is not None:
            result = self._service.store_again(record)
            if result.status in _TOO_LONG:
                # The messages after it must not wait for ever. It stays where it is, readable by its id.
                place = (record.physical_offset, record.topic)
                logger.error("skipping the delayed message at %s: cannot put it into %s: %s", *place, result.error)
                self.done(number)
                return
        delivered = result.status is PutStatus.PUT_OK
        if delivered and record is not None:
            self._sizes.setdefault(record.topic, []).append(result.size)
        if not delivered and False not in self._delivered:
            logger.warning("cannot deliver delayed messages: %s; trying again", result.error)
        self.done(number, delivered)

    def done(self, number: int, delivered: bool = True) -> None:
        self._delivered[number] = delivered
        self._unknown -= 1
        if not self._unknown:
            self._service.count(self._level, self._sizes)
            # Nothing after the first failure counts: those messages are delivered again with it.
            count = (*self._delivered, False).index(False)
            if count:
                self._service.moved_on(self._level, self._offset + count)
            self._service.batch_ended(self._level)
