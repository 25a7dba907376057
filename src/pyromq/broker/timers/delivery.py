"""Timer delivery: moves messages from the timer topic to their real topic when they are due.

The queue of the timer topic is the only record: its entries tell when each message is due (store/tags.py), and
`TimerProgress` tells which are done. Everything here can be rebuilt from these two.

    send  ──>  timer queue  ──follow──>  TimerWheel  ──pop──>  Appends, real topic
                  ^                                                 |
                  └────────────── roll, before the log ends ────────┘

A message that waits so long that its log file might expire is stored again at the end of the queue ("rolled").
Entries age in the order of the queue, so one mark that moves along is enough: before it nothing is
pending.

A recall is an entry due together with the message it names; when their step comes, both vanish.
docs/decisions/0005-timers-live-in-their-queue.md has the reasons.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import CorruptRecord, OffsetOutOfRange, StoreError
from pyromq.protocol import properties as props
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.protocol.record import decode_record
from pyromq.store.format import ENTRY, PRE_BLANK_SIZE
from pyromq.store.tags import TimerKind, split_timer_code, timer_code

from ..redelivery import Handover
from ..stats.incoming import DELAY
from .checkpoint import TimerProgress
from .delay_levels import restored
from .delivered import Delivered, delivered_since
from .parking import recall_key, recalled_key
from .wheel import TimerWheel

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from pyromq.protocol.record import MessageRecord
    from pyromq.store import PutResult

    from ..context import Context

    Int64s = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

_AFTER_ERROR = 10.0
# Messages delivered at a time: when a million fall due together, sends continue in between.
_AT_ONCE = 64
_CHUNK = 512  # queue entries per read: a millisecond
_NOTES = 256  # recalls per read
_LOOK_AT_OLD = 1000  # ms between two searches for messages to roll
_NO_LIMIT = 2**31 - 1
# A message is rolled after this share of the time that log files are kept; the rest is for the rolling itself.
_OLD = 2 / 3
_KIND_BITS = 2


class TimerService:
    """Delivers what is due. `clock` gives epoch milliseconds.

    A wheel entry is a queue offset with its kind in the lowest bits. Call `load` before `step`.
    """

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._appends = context.appends
        self._stats = context.stats
        self._live = context.live
        self._clock = context.clock
        self._precision = context.live.config.timer_step
        self.queue = context.store.queue(TIMER_TOPIC, 0)
        self._wheel = TimerWheel()
        # Kept only if there is a limit.
        self._by_slot: Counter[int] | None = Counter() if context.live.config.timer_congest < _NO_LIMIT else None
        self._known = TimerProgress()
        self._fired = -1  # all slots up to this one are done
        self._followed = 0  # the next entry of the queue to read
        self._first_pending = 0
        self._late: list[int] = []  # entries that were due when they were read, in the order of the queue
        # After the clock was set back: offsets before which entries are done up to a later slot, and that slot.
        self._earlier: list[tuple[int, int]] = []
        self._slot: _Slot | None = None
        self._handover: Handover | None = None
        self._handover_from = 0  # the end of the log when the step began
        # Timers that were delivered, but not noted as such before a crash.
        self._delivered = Delivered(0)
        self._looked_at_old = 0
        self._caught_up = False  # everything that was there at the start has been read
        self.read_to = 0  # up to where in the log every timer is known
        self.enqueued = 0
        self.delivered = 0
        # Set by everything that a start would have to repeat.
        self.dirty = False

    # Progress

    def load(self, progress: TimerProgress) -> None:
        """Continue from `progress`, as far as the queue still reaches: a power failure may have taken its end."""
        self.read_to = 0
        end = int(self.queue.max_offset)
        first = min(max(progress.first_pending, int(self.queue.min_offset)), end)
        self._known = dataclasses.replace(progress, queue_offset=min(progress.queue_offset, end), first_pending=first)
        self._fired = progress.done_before // self._precision - 1
        # A step that was begun is done for some entries.
        known = (*progress.earlier, (progress.step_offset, progress.step_end))
        self._earlier = [
            (min(offset, end), until // self._precision - 1) for offset, until in known if until > progress.done_before
        ]
        self._followed = self._first_pending = first
        if first < end and progress.log_place >= 0:
            self._delivered = delivered_since(self._store, progress.log_place)

    def progress(self) -> TimerProgress:
        """What a restart would have to know now."""
        queue_offset = self._followed
        if self._late:
            queue_offset = self._late[0] >> _KIND_BITS
        step = self._precision
        earlier = tuple((offset, (number + 1) * step) for offset, number in self._earlier)
        slot = self._slot
        if self._followed < self._known.queue_offset:
            # Not even everything known before has been read, so nothing more is done.
            return dataclasses.replace(self._known, log_place=self._log_place)
        if slot is None or slot.number <= self._fired:
            return TimerProgress(
                (self._fired + 1) * step,
                queue_offset,
                self._first_pending,
                log_place=self._log_place,
                earlier=earlier,
            )
        return TimerProgress(
            slot.number * step,
            queue_offset,
            self._first_pending,
            (slot.number + 1) * step,
            slot.next_offset,
            self._log_place,
            earlier,
        )

    @property
    def _log_place(self) -> int:
        """Where in the log to look for what was delivered but is not done in `progress`."""
        if self._delivered:
            return self._delivered.start
        return int(self._store.log.end) if self._handover is None else self._handover_from

    def congestion(self, out: int) -> int:
        """How many timers fall due in a step, counted if there is a limit."""
        return 0 if self._by_slot is None else self._by_slot[out // self._precision]

    @property
    def pending(self) -> int:
        """Waiting timers, including recalls and rolled copies."""
        return len(self._wheel) + len(self._late) + (0 if self._slot is None else self._slot.left)

    @property
    def overdue(self) -> int:
        """Timers that are due and on their way."""
        return len(self._late) + (0 if self._slot is None else self._slot.left)

    def due_within(self, bounds: Sequence[int]) -> list[int]:
        """How many waiting timers fall due within so many seconds from now, for each of these bounds."""
        if not len(self._wheel):
            return [0] * len(bounds)
        slots, now = self._wheel.all()[0], self._clock()
        return [int((slots * self._precision < now + 1000 * bound).sum()) for bound in bounds]

    @property
    def followed(self) -> int:
        """The next entry of the queue to be read."""
        return self._followed

    @property
    def first_pending(self) -> int:
        """The first entry of the queue that may wait."""
        return self._first_pending

    @property
    def behind(self) -> tuple[int, int]:
        """How late delivery is in milliseconds, and how many queue entries have not been read."""
        late = self._clock() - (self._fired + 1) * self._precision if self._fired >= 0 else 0
        return max(late, 0), int(self.queue.max_offset) - self._followed

    @property
    def delivered_before(self) -> int:
        """All timers parked so far that are due up to this time (epoch ms) are delivered; -1 if that is
        not known yet after a start. Timers parked from now on are due later.
        """
        if not self._caught_up or self._late or self._fired < 0:
            return -1
        return (self._fired + 1) * self._precision

    def waiting(self) -> Int64s:
        """Everything pending in the order of the queue, in three columns.

        These are the queue offset, the kind, and the start of the step in which the entry falls due.
        """
        import numpy as np

        slots, entries = self._wheel.all()
        for number, more in self._under_way():
            slots = np.append(slots, np.full(len(more), number, np.int64))
            entries = np.append(entries, np.array(more, np.int64))
        table = np.stack((entries >> _KIND_BITS, entries & 3, slots * self._precision), axis=1)
        table = table[table[:, 0] >= self._first_pending]
        ordered: Int64s = table[np.argsort(table[:, 0])]
        return ordered

    def pending_entries(self) -> tuple[Int64s, Int64s]:
        """The queue offsets and kinds of everything pending, side by side, in no particular order."""
        import numpy as np

        more = [entry for _, entries in self._under_way() for entry in entries]
        entries = np.append(self._wheel.all()[1], np.array(more, np.int64))
        return entries >> _KIND_BITS, entries & 3

    def topics_from(self, offset: int) -> list[str]:
        """The real topics of some entries from `offset` on, which were followed; "" for those that are gone."""
        data = self.queue.entries(offset, min(_CHUNK, self._followed - offset))
        if not data:
            return [""] * (int(self.queue.next_file_offset(offset)) - offset)
        topics = []
        for number, (physical, size, _) in enumerate(ENTRY.iter_unpack(data), offset):
            topic = None
            if size != PRE_BLANK_SIZE and number >= self._first_pending:
                record = self._record_at(physical, size)
                topic = None if record is None else record.find_property(props.REAL_TOPIC)
            topics.append(topic or "")
        return topics

    def _under_way(self) -> Iterator[tuple[int, Sequence[int]]]:
        """What has left the wheel but is not delivered yet: slots and their entries."""
        yield self._fired + 1, self._late
        if self._slot is not None:
            yield self._slot.number, self._slot.entries[self._slot.position :]

    # The loop

    async def run(self) -> None:
        """Deliver until cancelled."""
        pause = self._precision / 10_000
        while True:
            try:
                more = self.step()
            except StoreError as exc:
                logger.error("cannot read timers: %s; trying again in %g s", exc, _AFTER_ERROR)
                await asyncio.sleep(_AFTER_ERROR)
            else:
                await asyncio.sleep(0 if more else pause)

    def step(self) -> bool:
        """Do part of the pending work; True if there is more."""
        if self._handover is not None:
            if not self._handover.waiting:
                self._handover.put()
            return self._handover is None
        now = self._clock()
        limit = now // self._precision - 1
        if limit < self._fired and self._slot is None and not self._late:
            self._set_back(limit)
        # A step begun before the clock was set back ends as it began: new entries in the queue are for later.
        if limit >= (self._fired if self._slot is None else self._slot.number):
            # Read the whole queue before delivering anything: there may be a recall.
            shown = self._store.confirmed
            if self._follow():
                return True
            self.read_to = shown
            self._caught_up = True
        if self._late:
            entries = self._late[:_AT_ONCE]
            self._deliver([entry >> _KIND_BITS for entry in entries], None, lambda: self._late_done(len(entries)))
            return True
        if self._slot is None and not self._next_slot(limit):
            return self._roll(now)
        self._continue_slot()
        return True

    def _follow(self) -> bool:
        """Read new entries of the queue, a limited number; True if there are more."""
        queue = self.queue
        if self._followed < queue.min_offset:
            self._followed = int(queue.min_offset)
        if self._followed >= queue.max_offset:
            return False
        data = queue.entries(self._followed, _CHUNK)
        if not data:
            self._followed = int(queue.next_file_offset(self._followed))
            return True
        offset = self._followed
        for physical, size, code in ENTRY.iter_unpack(data):
            if size != PRE_BLANK_SIZE:
                due = split_timer_code(code) or self._due_of_record(physical, size)
                if due is not None and not self._known.is_done(due[0], offset):
                    self._enter(due[0] // self._precision, offset, due[1])
            offset += 1
        self._followed = offset
        return offset < queue.max_offset

    def _enter(self, slot: int, offset: int, kind: int) -> None:
        entry = offset << _KIND_BITS | kind
        if slot <= self._fired:
            if kind != TimerKind.RECALL:
                self._late.append(entry)
            return
        self._wheel.add(slot, entry)
        self.enqueued += 1
        if self._by_slot is not None:
            self._by_slot[slot] += 1

    def _set_back(self, limit: int) -> None:
        """The clock was set back: entries from here on are not done just because earlier ones are."""
        logger.warning("the clock was set back by %g s or more", (self._fired - limit - 1) * self._precision / 1000)
        mark = (max(self._followed, self._known.queue_offset), self._fired)
        # This mark covers marks with fewer entries and an earlier slot.
        self._earlier = [*(other for other in self._earlier if other[1] > self._fired), mark]
        self._fired = limit
        self.dirty = True

    def _next_slot(self, limit: int) -> bool:
        """Start the next due slot; False if none is due."""
        popped = self._wheel.pop(limit)
        if popped is None:
            self._moved_on(limit)
            if self._delivered and (self._fired + 1) * self._precision > self._delivered.until:
                self._delivered = Delivered(0)  # everything they could stand for is done
            return False
        if self._by_slot is not None:
            del self._by_slot[popped[0]]
        self._slot = _Slot(*popped)
        return True

    def _continue_slot(self) -> None:
        slot = self._slot
        assert slot is not None
        if slot.notes:
            for offset in slot.notes[-_NOTES:]:
                record = self._read(offset)
                if record is not None:
                    slot.note(record)
            del slot.notes[-_NOTES:]
            return
        entries = slot.entries[slot.position : slot.position + _AT_ONCE]
        offsets = [entry >> _KIND_BITS for entry in entries if entry & 3 != TimerKind.RECALL]
        self._deliver(offsets, slot, lambda: self._slot_moved(len(entries)))

    # Delivering

    def _deliver(self, offsets: Sequence[int], slot: _Slot | None, finished: Callable[[], None]) -> None:
        records = []
        for offset in offsets:
            # A rolled message has another entry now.
            record = self._read(offset) if offset >= self._first_pending else None
            if record is None or (slot is not None and slot.vanishes(record)):
                continue
            message = restored(record)
            if message is None:
                logger.error("skipping the timer at %s: it has no target topic", record.physical_offset)
            elif not self._delivered or not self._delivered.take(message):
                records.append(self._with_times(message))
        self._hand_over(records, self._count, finished)

    def _hand_over(
        self,
        records: Sequence[MessageRecord],
        stored: Callable[[MessageRecord, PutResult], None],
        finished: Callable[[], None],
    ) -> None:
        def end() -> None:
            self._handover = None
            finished()

        self._handover_from = int(self._store.log.end)
        self._handover = Handover(self._store, self._appends, records, stored, end)
        self._handover.put()

    def _late_done(self, count: int) -> None:
        del self._late[:count]
        self.dirty = True

    def _slot_moved(self, count: int) -> None:
        slot = self._slot
        assert slot is not None
        slot.position += count
        self.dirty = True
        if not slot.left:
            self._moved_on(slot.number)
            self._slot = None

    def _moved_on(self, slot: int) -> None:
        """All slots up to this one are done."""
        self._fired = max(self._fired, slot)
        if self._earlier:
            self._earlier = [mark for mark in self._earlier if mark[1] > self._fired]

    def _count(self, record: MessageRecord, result: PutResult) -> None:
        self.delivered += 1
        stats = self._stats
        stats.add("TOPIC_PUT_NUMS", record.topic)
        stats.add("TOPIC_PUT_SIZE", record.topic, result.size)
        stats.incoming.note(record.topic, DELAY, result.size)
        stats.events.timer_delivered(record.topic, (self._clock() - record.born_timestamp) / 1000)
        stats.add("BROKER_PUT_NUMS", self._live.config.cluster_name)

    def _with_times(self, record: MessageRecord) -> MessageRecord:
        entered = record.store_timestamp // self._precision * self._precision
        return _with_properties(
            record, f"{props.TIMER_ENQUEUE_MS}\x01{entered}\x02{props.TIMER_DEQUEUE_MS}\x01{self._clock()}"
        )

    # Reading

    def _read(self, offset: int) -> MessageRecord | None:
        """The message at a queue offset; None if it is gone."""
        entry = self.queue.entry(offset)
        return None if entry is None else self._record_at(entry[0], entry[1])

    def _record_at(self, physical: int, size: int) -> MessageRecord | None:
        try:
            return decode_record(self._store.log.read(physical, size))
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("timer at %s is lost: %s", physical, exc)
            return None

    def _due_of_record(self, physical: int, size: int) -> tuple[int, int] | None:
        """As `split_timer_code`, from the message itself: RocketMQ's entries do not contain it."""
        record = self._record_at(physical, size)
        code = None if record is None else timer_code(record.properties)
        if record is not None and code is None:
            logger.error("skipping the timer at %s: it has no due time", physical)
        return None if code is None else split_timer_code(code)

    # Rolling

    @property
    def _window(self) -> float:
        """Milliseconds after which a pending message is rolled."""
        kept = max(self._store.config.reserved_hours, 1) * 3_600_000 * _OLD
        return min(self._live.config.timer_roll_window * self._precision, kept)

    def _roll(self, now: int) -> bool:
        """Move `first_pending` past entries that are done or old enough to be stored again."""
        if 0 <= now - self._looked_at_old < _LOOK_AT_OLD:
            return False
        queue = self.queue
        first = max(self._first_pending, int(queue.min_offset))
        old = now - self._window
        records: list[MessageRecord] = []
        offset = first
        for physical, size, code in ENTRY.iter_unpack(
            queue.entries(first, min(_CHUNK, max(self._followed - first, 0)))
        ):
            if size != PRE_BLANK_SIZE and self._is_pending(offset, code, physical, size):
                record = self._record_at(physical, size)
                if record is not None:
                    if record.store_timestamp > old or len(records) == _AT_ONCE:
                        break
                    records.append(_rolled(record))
            offset += 1
        if offset == first:
            self._looked_at_old = now
            return False
        if records:
            logger.info("storing %d timers again that have waited since %d", len(records), records[0].store_timestamp)

        def moved() -> None:
            self._first_pending = offset
            self.dirty = True

        self._hand_over(records, lambda record, result: None, moved)
        return True

    def _is_pending(self, offset: int, code: int, physical: int, size: int) -> bool:
        due = split_timer_code(code) or self._due_of_record(physical, size)
        if due is None or (slot := due[0] // self._precision) <= self._fired:
            return False
        return not any(offset < before and slot <= number for before, number in self._earlier)


class _Slot:
    """What falls due together. Pass all `notes` to `note` before delivering anything."""

    __slots__ = ("_keys", "entries", "notes", "number", "position")

    def __init__(self, number: int, entries: array[int]) -> None:
        self.number = number
        self.entries = entries
        self.position = 0
        self.notes = [entry >> _KIND_BITS for entry in entries if entry & 3 != TimerKind.MESSAGE]
        self._keys: set[tuple[str, str]] = set()

    @property
    def left(self) -> int:
        return len(self.entries) - self.position

    @property
    def next_offset(self) -> int:
        return self.entries[self.position] >> _KIND_BITS

    def note(self, record: MessageRecord) -> None:
        """Remember what a recall cancels, and what a rolled message replaces."""
        recalled = record.find_property(props.TIMER_DEL_UNIQKEY)
        if recalled is not None:
            topic = record.find_property(props.REAL_TOPIC) or ""
            self._keys.add((recalled_key(topic, recalled), ""))
        elif (key := _key(record)) is not None:
            # A crash right after rolling, or RocketMQ, leaves the earlier copy pending.
            self._keys.add((key, _times_rolled(record, -1)))

    def vanishes(self, record: MessageRecord) -> bool:
        key = _key(record) if self._keys else None
        return key is not None and ((key, "") in self._keys or (key, _times_rolled(record)) in self._keys)


def _key(record: MessageRecord) -> str | None:
    topic, message_id = record.find_property(props.REAL_TOPIC), record.find_property(props.UNIQ_KEY)
    return recall_key(topic, message_id) if topic and message_id else None


def _times_rolled(record: MessageRecord, more: int = 0) -> str:
    text = record.find_property(props.TIMER_ROLL_TIMES) or "0"
    return str((int(text) if text.isdecimal() and len(text) < 10 else 0) + more)


def _rolled(record: MessageRecord) -> MessageRecord:
    return _with_properties(record, f"{props.TIMER_ROLL_TIMES}\x01{_times_rolled(record, 1)}")


def _with_properties(record: MessageRecord, more: str) -> MessageRecord:
    """`record` with more properties; of equal names the last counts. Unchanged if they would be too long."""
    text = record.properties.removesuffix(b"\x02")
    text = text + b"\x02" + more.encode() if text else more.encode()
    return record if len(text) > props.MAX_LENGTH else replace(record, properties=text)
