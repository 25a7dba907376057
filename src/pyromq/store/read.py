"""Reads a queue: which messages a pull gets, and where the next pull should begin (docs/spec/store.md 9).

There are two paths. The general one, here, reads messages of any kind and copes with damage; the fast one, in
`fast_read`, gives the same for those that are in memory, in one file and whole, and None for all others.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, store_timestamp_of

from . import fast_read
from .commit_log import HEAD
from .fast_read import MAX_EXAMINED, PropertiesTest, limits_of
from .format import ENTRY, MAX_EXT_ADDRESS, PRE_BLANK_SIZE, QueueOffset
from .get_result import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from .commit_log import CommitLog
    from .config import StoreConfig
    from .queues.consume_queue import ConsumeQueue
    from .queues.consume_queue_ext import ConsumeQueueExt, ExtUnit

logger = logging.getLogger(__name__)


class Reader:
    """Reads queues of one store. Sizes and counts are limited as in RocketMQ, more tightly for old messages."""

    def __init__(self, log: CommitLog, config: StoreConfig, memory: int) -> None:
        self._log = log
        self._memory = memory
        self.limits = limits_of(config, memory)

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other limits from now on."""
        self.limits = limits_of(config, self._memory)

    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        tags: Callable[[int], bool] | None = None,
        match: Callable[[memoryview], bool] | None = None,
        units: Callable[[ExtUnit], bool] | None = None,
        *,
        joined: bool = False,
    ) -> GetResult:
        """Messages of `queue` from `offset` on: at most `max_count`, those whose tags code and record match.

        `units` may rule out a message by its unit in the ext files; most have none. `match` gets what
        a queue entry points to, which need not be a whole record if the entry is damaged. `joined` is for callers that
        send the records on: those that lie side by side may be one slice.
        """
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            if high == 0:
                return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, QueueOffset(0), low, high)
            if offset < low:
                return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
            if offset == high:
                return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, QueueOffset(offset), low, high)
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        if units is not None and tags is None and queue.ext is not None:
            tags = _any_tags
        if tags is None:
            if match is None:
                found = fast_read.get(self._log, self.limits, queue, offset, max_count, joined=joined)
            elif isinstance(match, PropertiesTest):
                found = fast_read.select(self._log, self.limits, queue, offset, max_count, match)
            else:
                found = None
            if found is not None:
                return found
        return self.general(queue, offset, max_count, tags, match, units)

    def general(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        tags: Callable[[int], bool] | None = None,
        match: Callable[[memoryview], bool] | None = None,
        units: Callable[[ExtUnit], bool] | None = None,
    ) -> GetResult:
        """As `get` for an offset in the queue, by the general path, which reads any message, one by one."""
        entries = queue.entries(offset, max(MAX_EXAMINED, max_count))
        if not entries:
            next_offset = queue.next_file_offset(offset)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, queue.min_offset, queue.max_offset)
        log = self._log
        log_end = int(log.end)
        recent, in_memory, on_disk = self.limits
        recent_from = log_end - recent
        # The file of the previous entry; usually this one's, too.
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
                        # Deleted since, and so is everything else in the same file.
                        removed_below = physical - physical % log.file_size + log.file_size
                    continue
                view, file_start, file_end = segment.view, segment.start, min(segment.end, log_end)
            assert view is not None
            record = view[physical - file_start : physical - file_start + record_size]
            # Test this first, since it rejects most messages; what it accepts must still be a record.
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
                # The entry is damaged: whatever lies there is not this message.
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
        """When the message at `offset` was stored; -1 if it does not exist."""
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
            # A filler has no time; use the first message after it.
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
    """Whether the unit behind an entry's address matches. True if it is lost: later tests decide."""
    unit = None if ext is None else ext.unit(address)
    return unit is None or (tags(unit.tags_code) and (units is None or units(unit)))
