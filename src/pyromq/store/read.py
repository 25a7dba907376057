"""Reading a queue: which messages a pull gets, and where the next one should begin (docs/spec/store.md 9)."""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from enum import Enum
from itertools import compress
from typing import TYPE_CHECKING

import msgspec

from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, store_timestamp_of

from .commit_log import HEAD
from .format import ENTRY, MAX_EXT_ADDRESS, PRE_BLANK_SIZE, QueueOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .bulk_properties import PropertiesTable
    from .commit_log import CommitLog
    from .config import StoreConfig
    from .queues.consume_queue import ConsumeQueue
    from .queues.consume_queue_ext import ConsumeQueueExt, ExtUnit
    from .segment import Segment

logger = logging.getLogger(__name__)

_MANY = 128  # messages that are found together sooner than one by one
MAX_EXAMINED = 800  # entries that one read looks at, unless more messages are asked for


class GetStatus(Enum):
    """How reading a queue went, by RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct, frozen=True):
    """What a read found. `slices` are views of the commit log, in order; joined they are the records."""

    status: GetStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    slices: list[memoryview] = []
    count: int = 0
    size: int = 0
    suggest_slave: bool = False


class PropertiesTest(ABC):
    """A test of records that looks at nothing but their properties, and can test many together."""

    @abstractmethod
    def __call__(self, record: memoryview) -> bool: ...

    @abstractmethod
    def of_many(self, properties: PropertiesTable) -> Sequence[bool]:
        """Whether messages with these properties are selected, one answer for each."""

    @abstractmethod
    def expected(self, wanted: int) -> int:
        """How many messages to look at for so many that are selected, going by those that were tested before."""


class Reader:
    """Reads queues of one store. Sizes and counts are limited as RocketMQ limits them, less for old messages."""

    def __init__(self, log: CommitLog, config: StoreConfig, memory: int) -> None:
        self._log = log
        self._memory = memory
        self.config = config

    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        tags: Callable[[int], bool] | None = None,
        match: Callable[[memoryview], bool] | None = None,
        units: Callable[[ExtUnit], bool] | None = None,
    ) -> GetResult:
        """Messages of `queue` from `offset` on: at most `max_count`, those whose tags code and record match.

        `units` may rule out a message by what the ext files say of it; most have nothing there. `match` is given what
        a queue entry points to, which need not be a whole record if the entry is damaged.
        """
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, QueueOffset(0), low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, QueueOffset(offset), low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        entries = queue.entries(offset, max(MAX_EXAMINED, max_count))
        if not entries:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
        if units is not None and tags is None and queue.ext is not None:
            tags = _any_tags
        if tags is None and isinstance(match, PropertiesTest):
            found = self._tested_together(queue, offset, max_count, entries, match)
            if found is not None:
                return found
        return self._collect(queue, offset, max_count, entries, tags=tags, match=match, units=units)

    def get_runs(self, queue: ConsumeQueue, offset: int, max_count: int) -> GetResult:
        """As `get` without a filter, for who sends the records on: those that lie side by side may be one slice."""
        found = self._runs(queue, offset, max_count) if queue.min_offset <= offset < queue.max_offset else None
        return found or self.get(queue, offset, max_count)

    def _runs(self, queue: ConsumeQueue, offset: int, max_count: int) -> GetResult | None:
        """What there is if it is all in memory, in one file, and as it should be; otherwise None, and `get` knows."""
        config, log = self.config, self._log
        log_end = int(log.end)
        recent = self._memory * config.memory_ratio // 100
        max_bytes, wanted = config.max_bytes_in_memory, max(min(max_count, config.max_count_in_memory), 1)
        # One more than wanted, to know how far the next one is behind.
        entries = queue.entries(offset, wanted + 1)
        if len(entries) < ENTRY.size:
            return None
        first = int.from_bytes(entries[:8], "big", signed=True)
        segment = log.segment_at(first)
        if segment is None or first < log_end - recent:
            return None
        if wanted >= _MANY:
            return self._many_runs(queue, offset, wanted, entries, segment)
        view, file_start, file_end = segment.view, segment.start, min(segment.end, log_end)
        head_of, magic = HEAD.unpack_from, MAGIC_V1
        slices = []
        count = size = 0
        run_start = run_end = last = first
        for physical, record_size, _tags_code in ENTRY.iter_unpack(entries):
            last = physical
            if count == wanted:
                break
            if size + record_size > max_bytes and count:
                if record_size == PRE_BLANK_SIZE:
                    return None
                break
            end = physical + record_size
            if (
                physical < run_end
                or record_size < HEAD.size
                or end > file_end
                or head_of(view, physical - file_start) != (record_size, magic, physical)
            ):
                return None
            if physical != run_end:
                slices.append(view[run_start - file_start : run_end - file_start])
                run_start = physical
            run_end = end
            count += 1
            size += record_size
        slices.append(view[run_start - file_start : run_end - file_start])
        return GetResult(
            GetStatus.FOUND,
            QueueOffset(offset + count),
            queue.min_offset,
            queue.max_offset,
            slices,
            count,
            size,
            log_end - last > recent,
        )

    def _many_runs(
        self, queue: ConsumeQueue, offset: int, wanted: int, entries: bytes, segment: Segment
    ) -> GetResult | None:
        """As `_runs`, for very many: whoever copies a topic asks for thousands at a time."""
        # It needs numpy, which takes a tenth of a second to import.
        from .bulk_properties import Lot

        end = min(segment.end, int(self._log.end)) - segment.start
        found = Lot(entries, segment.view, segment.start, end).runs(wanted, self.config.max_bytes_in_memory)
        if found is None:
            return None
        count, slices = found
        return GetResult(
            GetStatus.FOUND,
            QueueOffset(offset + count),
            queue.min_offset,
            queue.max_offset,
            slices,
            count,
            sum(map(len, slices)),
        )

    def _tested_together(
        self, queue: ConsumeQueue, offset: int, max_count: int, entries: bytes, match: PropertiesTest
    ) -> GetResult | None:
        """What a filter selects if it all lies in one file and is as it should be; otherwise None.

        The next read begins at the first message that was selected and had no room, or was not looked at.
        """
        # It needs numpy, which takes a tenth of a second to import.
        from .bulk_properties import Lot

        config, log = self.config, self._log
        log_end = int(log.end)
        recent = self._memory * config.memory_ratio // 100
        first = int.from_bytes(entries[:8], "big", signed=True)
        segment = log.segment_at(first)
        if segment is None:
            return None
        is_recent = first >= log_end - recent
        max_bytes = config.max_bytes_in_memory if is_recent else config.max_bytes_on_disk
        wanted = max(min(max_count, config.max_count_in_memory if is_recent else config.max_count_on_disk), 1)
        end = min(segment.end, log_end) - segment.start
        lot = Lot(entries, segment.view, segment.start, end)
        view = segment.view
        slices: list[memoryview] = []
        size = examined = 0
        is_full = False
        while examined < len(lot) and len(slices) < wanted and not is_full:
            upto = min(examined + match.expected(wanted - len(slices)), len(lot))
            properties = lot.properties(examined, upto)
            if properties is None:
                break
            for number in compress(range(examined, upto), match.of_many(properties)):
                start, end = lot.place(number)
                is_full = len(slices) == wanted or (size + end - start > max_bytes and size > 0)
                if is_full:
                    upto = number
                    break
                slices.append(view[start:end])
                size += end - start
            examined = upto
        if not examined:
            return None
        return GetResult(
            GetStatus.FOUND if slices else GetStatus.NO_MATCHED_MESSAGE,
            QueueOffset(offset + examined),
            queue.min_offset,
            queue.max_offset,
            slices,
            len(slices),
            size,
            log_end - segment.start - lot.place(examined - 1)[0] > recent,
        )

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        entries: bytes,
        *,
        tags: Callable[[int], bool] | None,
        match: Callable[[memoryview], bool] | None,
        units: Callable[[ExtUnit], bool] | None,
    ) -> GetResult:
        config = self.config
        log = self._log
        log_end = int(log.end)
        # Bytes behind the end of the log that count as being in memory.
        recent = self._memory * config.memory_ratio // 100
        recent_from = log_end - recent
        in_memory = config.max_bytes_in_memory, config.max_count_in_memory
        on_disk = config.max_bytes_on_disk, config.max_count_on_disk
        # The file that holds the entry before; most often this one's too.
        view = None
        file_start = file_end = 0
        unpack_head = HEAD.unpack_from
        ext = queue.ext
        slices: list[memoryview] = []
        count = size = examined = 0
        last = log_end
        removed_below = 0
        removed = False
        for physical, record_size, tags_code in ENTRY.iter_unpack(entries):
            if physical < removed_below or record_size == PRE_BLANK_SIZE:
                examined += 1
                continue
            last = physical
            max_bytes, max_messages = in_memory if physical >= recent_from else on_disk
            if count and (count >= max_count or size + record_size > max_bytes or count >= max_messages):
                break
            examined += 1
            if tags is not None:
                if tags_code > MAX_EXT_ADDRESS:
                    if not tags(tags_code):
                        continue
                elif not _matches(ext, tags_code, tags, units):
                    continue
            if not file_start <= physical < file_end:
                segment = log.segment_at(physical)
                if segment is None:
                    removed = True
                    if 0 <= physical < log_end:
                        # Cleaned up since; so is all that lies in the same file.
                        removed_below = physical - physical % log.file_size + log.file_size
                    continue
                view, file_start, file_end = segment.view, segment.start, min(segment.end, log_end)
            assert view is not None
            record = view[physical - file_start : physical - file_start + record_size]
            # First of all, because it refuses most of them where there are many: what it takes must be a record still.
            if match is not None and not match(record):
                continue
            try:
                own_size, magic, own_offset = unpack_head(record)
            except struct.error:  # too short for a record
                own_size = magic = own_offset = -1
            if (
                own_size != record_size
                or own_offset != physical
                or physical + record_size > file_end
                or (magic != MAGIC_V1 and magic != MAGIC_V2)
            ):
                # The entry is damaged. Whatever lies there, it is not this message.
                logger.warning("%r: entry %s points to no record", queue, offset + examined - 1)
                removed = True
                continue
            slices.append(record)
            count += 1
            size += record_size
        if count:
            status = GetStatus.FOUND
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(
            status,
            QueueOffset(offset + examined),
            queue.min_offset,
            queue.max_offset,
            slices,
            count,
            size,
            log_end - last > recent,
        )

    def store_time(self, queue: ConsumeQueue, offset: int) -> int:
        """When the message at `offset` was stored; -1 if it is not there."""
        entry = queue.entry(offset)
        if entry is None or not self._log.holds(entry[0], entry[1]):
            return -1
        return store_timestamp_of(self._log.read(entry[0], entry[1]))

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, *, upper: bool = False) -> QueueOffset:
        """The first message stored at or after `timestamp`; with `upper`, the last one at or before it.

        Where there is none: the end of the queue, or with `upper` its beginning.
        """
        low, high = int(queue.min_offset), int(queue.max_offset)
        # The first offset whose message was stored at or after `bound`.
        bound = timestamp + 1 if upper else timestamp
        while low < high:
            middle = (low + high) // 2
            # A filler has no time; the first message behind it has.
            probe = queue.first_real(middle, high)
            if probe < high and self.store_time(queue, probe) < bound:
                low = probe + 1
            else:
                high = middle
        if not upper:
            return queue.first_real(low)
        last = queue.last_real(low, queue.min_offset)
        return queue.min_offset if last is None else last


def _any_tags(tags_code: int) -> bool:
    return True


def _matches(
    ext: ConsumeQueueExt | None,
    address: int,
    tags: Callable[[int], bool],
    units: Callable[[ExtUnit], bool] | None,
) -> bool:
    """Whether the unit of which an entry has only the address matches. If it is lost, what comes later decides."""
    unit = None if ext is None else ext.unit(address)
    return unit is None or (tags(unit.tags_code) and (units is None or units(unit)))
