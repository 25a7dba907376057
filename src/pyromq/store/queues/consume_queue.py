"""A consume queue: where the messages of one queue of a topic lie in the commit log, in the order of their offsets.

`queue_entries` has what it does while in use. This module has how it begins and ends: files found at a start,
entries rebuilt from the log, and entries that expire or are deleted.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from .. import failpoints
from ..format import ENTRY, MAX_EXT_ADDRESS, PRE_BLANK, PRE_BLANK_SIZE, QueueOffset, segment_files
from .queue_entries import CHUNK, SIZE, UNLIMITED, QueueEntries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..open_files import OpenFiles

logger = logging.getLogger(__name__)

_FILLED = 64 * 1024  # bytes of fillers written at once
# A record further ahead of its queue is damaged, and filling the hole would cost more than the record.
_LARGEST_HOLE = 300_000
_LARGEST_OFFSET = 2**63 // SIZE - _LARGEST_HOLE


class Gap(NamedTuple):
    """Missing entries whose messages may be in the log."""

    offset: QueueOffset  # of the first of them
    physical: int  # where the previous record ends


class ConsumeQueue(QueueEntries):
    """A queue that can be loaded, mended and cut to what the log holds."""

    __slots__ = ("gap", "held")

    def __init__(self, topic: str, queue_id: int, folder: Path, segment_size: int, files: OpenFiles) -> None:
        super().__init__(topic, queue_id, folder, segment_size, files)
        # During recovery: missing entries, and a message whose place is not known yet.
        self.gap: Gap | None = None
        self.held: tuple[int, int, int] | None = None

    # Rebuilt entries

    def put(self, offset: QueueOffset, physical: int, size: int, tags_code: int) -> bool:
        """Add the entry of a message read back from the log; False if it is there already, or makes no sense.

        If entries are missing before it, fillers close the hole so that every message keeps its offset, and `gap`
        records it.
        """
        if physical + size <= self.max_physical:
            return False
        if not 0 <= offset < _LARGEST_OFFSET:
            logger.warning("%r: the record at %d claims the offset %d; skipped", self, physical, offset)
            return False
        if self.held is not None:
            self.settle(is_new=offset == 1)
        if not self._has_entries():
            if offset > self.next_offset:
                self.gap = self.gap or Gap(self.next_offset, self.max_physical)
            self._begin_at(offset)
        elif offset == 0 and self.next_offset > 0:
            # Either the topic was deleted and created again, counting from 0; or these bytes are damaged.
            # The next message of the queue will tell.
            self.held = (physical, size, tags_code)
            return True
        elif offset < self.next_offset:
            return False
        elif offset > self.next_offset and not self.fill_up_to(offset):
            logger.warning("%r: the record at %d claims the offset %d; skipped", self, physical, offset)
            return False
        if self.gap is not None and offset == self.gap.offset:
            self.gap = None
        self.add(physical, size, tags_code)
        return True

    def settle(self, *, is_new: bool) -> None:
        """Decide about a message that claimed offset 0 of a queue with entries: a new queue, or a wrong claim."""
        if self.held is not None:
            held, self.held = self.held, None
            if is_new:
                self.clear()
            self.add(*held)

    def fill_up_to(self, offset: QueueOffset) -> bool:
        """Add fillers from the end up to `offset`; False if there would be too many."""
        if not self._has_entries():
            self._begin_at(offset)
            return True
        if offset - self.next_offset > _LARGEST_HOLE:
            return False
        self.gap = self.gap or Gap(self.next_offset, self.max_physical)
        self.tail += PRE_BLANK * (offset - self.next_offset)
        self.next_offset = offset
        return True

    def _begin_at(self, offset: QueueOffset) -> None:
        """Begin the queue at another entry than 0: older messages are gone. Fillers precede it in its file."""
        position = offset * SIZE
        self._tail_start = self._written = position - position % self._segment_size
        self.tail = bytearray(PRE_BLANK * ((position - self._written) // SIZE))
        self.next_offset = self.min_offset = offset
        if len(self.tail) > _FILLED:
            # Recovery may do this for ten thousand queues; their fillers must not all stay in memory.
            self.write_out()

    # Ends

    def load(self, *, crashed: bool = False) -> None:
        """Find the files, and the end of the entries: the first that was never written.

        After a crash pages may be missing or torn, so this is not reliable: `cut_back` must follow.
        """
        files = segment_files(self._folder, self._segment_size, remove_empty=self._files.disk.delete)
        self._segments = [file.start for file in files]
        if not self._segments:
            return
        end = self._segments[-1] + self._segment_size if crashed else self._end_after_stop()
        self._tail_start = self._written = end
        if crashed:
            self.next_offset = QueueOffset(end // SIZE)
        else:
            self._set_end(QueueOffset(end // SIZE), zero=False)
        self.min_offset = self.first_offset

    def cut_back(self, before: int) -> None:
        """After a crash: keep only the entries of records before `before`, which were certainly on disk.

        The others are zeroed or deleted, to be rebuilt from the log.
        """
        for start in reversed(self._segments):
            sure = self._sure(start, before)
            if sure:
                self._set_end(QueueOffset(start // SIZE + sure), zero=True)
                break
        else:
            self.clear()
        self.min_offset = self.first_offset

    def mend(self, log_start: int) -> None:
        """Repair a queue with a missing file between others; the log begins at `log_start`.

        Either a power failure undid the deletion of some files before the hole; or somebody
        deleted the wrong file, and the rest must be rebuilt from the log.
        """
        for first, second in reversed(list(itertools.pairwise(self._segments))):
            hole = first + self._segment_size
            if second == hole:
                continue
            last = self.last_real(hole // SIZE)
            entry = None if last is None else self.entry(last)
            if entry is None or entry[0] < log_start:
                self._delete_files(self._segments[: self._segments.index(second)])
                break
            self.cut(QueueOffset(hole // SIZE))
            self.gap = Gap(self.next_offset, self.max_physical)
        self.min_offset = max(self.min_offset, self.first_offset)

    def _sure(self, start: int, before: int) -> int:
        """How many leading entries of the file at `start` certainly belong to records before `before`.

        Nothing written after them is reliable. An entry that spans two sectors may have half of an
        offset, and so seem to belong; but then it is out of order.
        """
        fd = self._files.get(self._path(start))
        low, high = 0, -(-self._segment_size // (CHUNK * SIZE))
        # The first entry of a chunk lies in one sector: it is there or not.
        while high - low > 1:
            middle = (low + high) // 2
            physical, size, _ = ENTRY.unpack(os.pread(fd, SIZE, middle * CHUNK * SIZE))
            if size == PRE_BLANK_SIZE:  # says nothing about earlier entries
                low = 0
                break
            if size > 0 and 0 <= physical < before:
                low = middle
            else:
                high = middle
        sure = index = low * CHUNK
        end, only_fillers = 0, True
        while chunk := os.pread(fd, min(CHUNK * SIZE, self._segment_size - index * SIZE), index * SIZE):
            for physical, size, _ in ENTRY.iter_unpack(chunk):
                index += 1
                if size == PRE_BLANK_SIZE and physical == 0:
                    # Fillers at the beginning keep the offsets; other fillers belong to what follows them.
                    sure = index if only_fillers else sure
                    continue
                if size <= 0 or not end <= physical < before:
                    return sure
                sure, end, only_fillers = index, physical + size, False
        return sure

    def _end_after_stop(self) -> int:
        for start in reversed(self._segments):
            used = self._used(start)
            if used:
                return start + used * SIZE
        return self._segments[0]

    def _used(self, start: int) -> int:
        """How many entries of the file at `start` are written: a prefix, found by bisection."""
        fd = self._files.get(self._path(start))

        def is_free(index: int) -> bool:
            physical, size, _ = ENTRY.unpack(os.pread(fd, SIZE, index * SIZE))
            return bool(physical < 0 or size <= 0)

        return bisect.bisect_left(range(self._segment_size // SIZE), True, key=is_free)

    def truncate(self, end: int) -> None:
        """Forget, and zero, the entries of records that begin at or after `end`."""
        keep = self.search(end)
        last = self.last_real(keep)
        # Fillers at the end belong to messages that are gone; those at the beginning keep the offsets.
        self.cut(keep if last is None else QueueOffset(last + 1))

    def reaching(self, end: int) -> QueueOffset:
        """The first offset whose record ends after `end`, else the end."""
        keep = self.search(end)
        last = self.last_real(keep)
        entry = None if last is None else self.entry(last)
        return keep if entry is None or last is None or entry[0] + entry[1] <= end else last

    def cut(self, keep: QueueOffset) -> None:
        """Forget, and zero, the entries from `keep` on."""
        if keep < self.next_offset:
            self.write_out()
            self._set_end(keep, zero=True)

    def drop_unknown(self, holds: Callable[[int, int], bool], since: int) -> None:
        """Forget entries at the end, of records from `since` on, that point to no such record.

        A crash tears entries, and RocketMQ leaves stale ones behind when it cuts its log.
        """
        keep = self.next_offset
        while (last := self.last_real(keep)) is not None and (entry := self.entry(last)) is not None:
            physical, size, _ = entry
            if 0 <= physical < since or holds(physical, size):
                break
            keep = last
        if keep < self.next_offset:
            logger.warning("%r: entries from %d on do not belong to this log", self, keep)
            self.cut(keep)
            self.gap = Gap(keep, self.max_physical)

    def _set_end(self, keep: QueueOffset, *, zero: bool) -> None:
        """End the queue before the entry `keep`. `zero` erases what followed for good."""
        position = keep * SIZE
        disk = self._files.disk
        failpoints.hit("queue.cut")
        self._delete_files([start for start in self._segments if start >= position])
        if zero and self._segments and self._segments[-1] + self._segment_size > position:
            start = self._segments[-1]
            disk.zero(self._files.get(self._path(start)), position - start, self._segment_size)
            self._unsynced.add(start)
        self.tail.clear()
        self._tail_start = self._written = position
        self.next_offset = keep
        self.min_offset = min(self.min_offset, keep)
        newest = self.last_real(keep)
        entry = None if newest is None else self.entry(newest)
        self.max_physical = 0 if entry is None else entry[0] + entry[1]

    def _delete_files(self, starts: list[int]) -> None:
        for start in reversed(starts):
            self._files.forget(self._path(start))
            self._files.disk.delete(self._path(start))
            self._unsynced.discard(start)
            self._segments.remove(start)
            # Otherwise a power failure could bring the file back when the queue has grown up to it again.
            self._folder_changed = True

    def correct_min(self, log_start: int) -> None:
        """Set `min_offset` to the first message still in the log. An empty queue keeps its offsets."""
        first = self.first_offset
        entry = self.entry(first)
        if entry is not None and entry[0] >= log_start and entry[1] != PRE_BLANK_SIZE:
            self.min_offset = first  # as in most queues: saves searching ten thousand of them
        else:
            self.min_offset = self.search(log_start)

    def expire(self, log_start: int) -> list[Path]:
        """Give up the files whose records all lie before `log_start`, never the last file, and correct the minimum.

        Returns their paths, for the caller to delete once the records are gone.
        """
        expired = []
        while len(self._segments) > 1:
            first, second = self._segments[:2]
            last = self.last_real(second // SIZE, first // SIZE)
            entry = None if last is None else self.entry(last)
            if entry is not None and entry[0] >= log_start:
                break
            self._files.forget(self._path(first))
            self._unsynced.discard(first)
            del self._segments[0]
            expired.append(self._path(first))
        self.correct_min(log_start)
        if self.ext is not None:
            oldest = self.entry(self.min_offset)
            # What precedes an entry without an address is unknown; it goes once an entry with an address comes.
            if oldest is not None and oldest[2] <= MAX_EXT_ADDRESS:
                expired += self.ext.expire(oldest[2])
        return expired

    def delete(self) -> None:
        """Delete the queue and all its files: its topic or its log is gone."""
        self.clear()
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        if self.ext is not None:
            self.ext.delete()
            self.ext = None

    def clear(self) -> None:
        """Forget all entries and offsets."""
        self._delete_files(list(self._segments))
        self.tail.clear()
        self._unsynced.clear()
        self._tail_start = self._written = 0
        self.next_offset = self.min_offset = QueueOffset(0)
        if self.ceiling != UNLIMITED:
            self.ceiling = 0
        self.max_physical = 0
        self.gap = None
