"""Delivery of delayed messages: each level is a queue of the schedule topic, in the order in which they fall due.

An entry of such a queue carries the time of delivery in place of a tag, so the next entry of a level tells whether
there is something to do. What is due goes back to its real topic through `Appends`, like any other message.
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
_PAUSE = 0.1  # between two looks, when nothing is due sooner
_AFTER_ERROR = 10.0
_ANY = 1 << 62  # ms; no delay is longer
# What the store says of a message that is too long: maxMessageSize was lowered since it was sent.
_TOO_LONG = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
CONSUMER = "SCHEDULE_CONSUMER"  # the group that deliveries are counted under
# Messages of one level that are delivered in one go: when thousands fall due together, sends go on in between.
_AT_ONCE = 64


class ScheduleService:
    """Delivers what is due. `clock` gives epoch milliseconds; `offsets` are the next entries to look at, by level.

    `kept` is what the file of offsets follows.
    """

    def __init__(self, context: Context, delays: Sequence[int]) -> None:
        self._store = context.store
        self._appends = context.appends
        self._delays = delays
        self._clock = context.clock
        self._stats = context.stats
        self._cluster_name = context.live.config.cluster_name
        self.kept = KeptOffsets(self, context.store)
        self._under_way: set[int] = set()  # levels whose last messages are not stored yet
        self.offsets: dict[int, int] = {}
        self.dirty = False

    @property
    def levels(self) -> int:
        """How many delays there are to choose from."""
        return len(self._delays)

    def snapshot(self) -> DelayOffsetTable:
        """How far each level is."""
        return DelayOffsetTable(offset_table=dict(self.offsets))

    def load(self, saved: DelayOffsetTable) -> None:
        """Go on from there, or behind it as far as the log shows that messages were delivered since."""
        self.offsets = {level: offset for level, offset in saved.offset_table.items() if level > 0}
        self.dirty = self._pass_delivered(saved.log_table or {})
        self.kept.restart(self.offsets, self._all_levels)

    def _pass_delivered(self, noted: dict[int, int]) -> bool:
        """Move on past what is in the log already; whether it was looked for. Levels deliver in their queue's order."""
        queues, starts = {}, {}
        # Where nothing was ever noted all of the log counts.
        first = min(noted.values(), default=0)
        for level in self._all_levels:
            queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
            # A table of RocketMQ's does not tell.
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
                logger.error("delayed messages cannot be read: %s; trying again in %g s", exc, _AFTER_ERROR)
                await asyncio.sleep(_AFTER_ERROR)
            else:
                await asyncio.sleep(0 if more else _PAUSE)

    def step(self) -> bool:
        """Deliver what is due, a part of it if it is much; True if there is more."""
        now = self._clock()
        more = False
        for level, delay in self._all_levels.items():
            if level not in self._under_way:
                more |= self._deliver(level, delay, now)
        return more

    @functools.cached_property
    def _all_levels(self) -> dict[int, int]:
        """Delays by level; also of levels that are not configured any more, where messages may wait for their time."""
        parked = self._store.queues.of_topic(SCHEDULE_TOPIC)
        return {queue.queue_id + 1: _ANY for queue in parked} | dict(enumerate(self._delays, 1))

    def _deliver(self, level: int, delay: int, now: int) -> bool:
        queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return False
        offset = self._next(level, queue)
        batch = _Batch(self, level, offset)
        for physical, size, due in ENTRY.iter_unpack(queue.entries(offset, _AT_ONCE)):
            # A time further away than the level allows was made by a clock that has been set back since.
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
        """Store a message that was acknowledged when longer ones were allowed."""
        return self._appends.put_again(self._store.queue(record.topic, record.queue_id), record)

    def is_under_way(self, level: int) -> bool:
        return level in self._under_way

    def batch_ended(self, level: int) -> None:
        self._under_way.discard(level)

    def moved_on(self, level: int, offset: int) -> None:
        """Everything of `level` before `offset` was delivered."""
        self.offsets[level] = offset
        self.kept.moved_on(level, offset)
        self.dirty = True

    def count(self, level: int, delivered: dict[str, list[int]]) -> None:
        """Messages of `level` were delivered, to these topics and of these sizes."""
        stats = self._stats
        for topic, sizes in delivered.items():
            count, size = len(sizes), sum(sizes)
            for item, key in (
                ("QUEUE", f"{SCHEDULE_TOPIC}@{level - 1}@{CONSUMER}"),
                ("GROUP", f"{SCHEDULE_TOPIC}@{CONSUMER}"),
            ):
                stats.add(f"{item}_GET_NUMS", key, count, count)
                stats.add(f"{item}_GET_SIZE", key, size, count)
            stats.add_stored(self._cluster_name, topic, sizes)

    def _restored(self, physical: int, size: int) -> MessageRecord | None:
        """The message as it was sent; None if it is not to be delivered."""
        try:
            record = decode_record(self._store.log.read(physical, size))
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("delayed message at %s is skipped: %s", physical, exc)
            return None
        message = restored(record)
        if message is None:
            logger.error("delayed message at %s is skipped: it has no topic to go to", physical)
        return message


class KeptOffsets:
    """delayOffset.json: how far each level is by what is on disk.

    An offset is not told before the messages that were delivered up to it are. Otherwise a power failure could take
    those, and the level would go on behind them. Beside it stands where in the log to look for what was delivered since
    (see `delivered`); so the file is also renewed when much was written to the log.
    """

    def __init__(self, service: ScheduleService, store: MessageStore) -> None:
        self._service = service
        self._store = store
        self._offsets: dict[int, int] = {}
        # Where the log has to be on disk up to, for a level to be at an offset.
        self._moves: deque[tuple[int, int, int]] = deque()
        # Before these places in the log, nothing from the offsets above on was delivered.
        self._places: dict[int, int] = {}
        self._noted = -NOTED_EVERY

    @property
    def dirty(self) -> bool:
        if self._service.dirty:
            return True
        is_old = self._store.flusher.flushed - self._noted >= NOTED_EVERY
        return is_old and bool(self._store.queues.of_topic(SCHEDULE_TOPIC))

    @dirty.setter
    def dirty(self, dirty: bool) -> None:
        self._service.dirty = dirty

    def load(self, saved: DelayOffsetTable) -> None:
        self._service.load(saved)

    def restart(self, offsets: dict[int, int], levels: Iterable[int]) -> None:
        self._offsets = dict(offsets)
        self._places = dict.fromkeys(levels, int(self._store.log.end))
        self._moves.clear()

    def moved_on(self, level: int, offset: int) -> None:
        self._moves.append((int(self._store.log.end), level, offset))

    def snapshot(self) -> DelayOffsetTable:
        flushed = self._store.flusher.flushed
        while self._moves and self._moves[0][0] <= flushed:
            place, level, offset = self._moves.popleft()
            self._offsets[level] = offset
            self._places[level] = place
        if self._moves:
            self._store.flushed()  # so that it is by the next time
            self._service.dirty = True
        moving = {level for _, level, _ in self._moves}
        for level in self._places:
            if level not in moving and not self._service.is_under_way(level):
                self._places[level] = flushed
        self._noted = flushed
        return DelayOffsetTable(offset_table=dict(self._offsets), log_table=dict(self._places))


class _Batch:
    """Messages of one level that were handed over together. The level moves on as far as all of them were stored."""

    def __init__(self, service: ScheduleService, level: int, offset: int) -> None:
        self._service = service
        self._level = level
        self._offset = offset
        self._delivered: list[bool] = []
        self._unknown = 0  # of how many it is not known yet
        self._sizes: dict[str, list[int]] = {}  # of what was delivered, by topic
        self.records: list[MessageRecord | None] = []

    def add(self, record: MessageRecord | None) -> None:
        """None stands for an entry that is passed over."""
        self.records.append(record)
        self._delivered.append(True)
        self._unknown += 1

    def stored(self, number: int, results: Sequence[PutResult]) -> None:
        result, record = results[0], self.records[number]
        if result.status in _TOO_LONG and record is not None:
            result = self._service.store_again(record)
            if result.status in _TOO_LONG:
                # Those behind it shall not wait for ever. It stays where it is, and can be read by its id.
                place = (record.physical_offset, record.topic)
                logger.error("delayed message at %s is skipped, it cannot be put into %s: %s", *place, result.error)
                self.done(number)
                return
        delivered = result.status is PutStatus.PUT_OK
        if delivered and record is not None:
            self._sizes.setdefault(record.topic, []).append(result.size)
        if not delivered and False not in self._delivered:
            logger.warning("delayed messages not delivered: %s; trying again", result.error)
        self.done(number, delivered)

    def done(self, number: int, delivered: bool = True) -> None:
        self._delivered[number] = delivered
        self._unknown -= 1
        if not self._unknown:
            self._service.count(self._level, self._sizes)
            # Behind the first that failed nothing counts: those are delivered again together with it.
            count = (*self._delivered, False).index(False)
            if count:
                self._service.moved_on(self._level, self._offset + count)
            self._service.batch_ended(self._level)
