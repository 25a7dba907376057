"""A consume queue: where the messages of one queue of a topic lie in the commit log, in the order of their offsets.

Entries are added in memory, where readers find them at once, and go to the files page by page. Losing what was not
written costs nothing but time: recovery makes the entries anew from the commit log.

A store may have ten thousand queues, so a queue keeps no file open: `OpenFiles` lends descriptors.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import StoreError
from pyromq.protocol.names import TIMED_TOPICS
from pyromq.protocol.record import MAGIC_V1, MAX_TOPIC_LENGTH, MIN_RECORD_SIZE, TOPIC_LENGTH

from .. import failpoints
from ..format import ENTRY, MAX_EXT_ADDRESS, PRE_BLANK, PRE_BLANK_SIZE, QueueOffset, segment_files, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..open_files import OpenFiles
    from .consume_queue_ext import ConsumeQueueExt

logger = logging.getLogger(__name__)

SIZE = ENTRY.size
PAGE = 4096

# Entries that stay in memory after they were written, for the consumers that are close behind.
_KEEP = 64 * SIZE
_CHUNK = 1024  # entries read at a time when many are looked at
_FILLED = 64 * 1024  # bytes of fillers that are written at once
# A record further ahead of its queue than that is damaged, and filling the hole would cost more than the record.
_LARGEST_HOLE = 300_000
_LARGEST_OFFSET = 2**63 // SIZE - _LARGEST_HOLE


class Gap(NamedTuple):
    """Entries that are missing though their messages may be in the log."""

    offset: QueueOffset  # of the first of them
    physical: int  # where the record before it ends


class ConsumeQueue:
    """The entries of one queue. `max_offset` is the offset that the next message gets.

    `add` makes an entry readable; `write_out` hands it to the system; syncing what `take_unsynced` returns makes it
    survive a power failure.
    """

    __slots__ = (
        "_files",
        "_folder",
        "_folder_changed",
        "_folder_name",
        "_segment_size",
        "_segments",
        "_tail_start",
        "_unsynced",
        "_written",
        "ext",
        "fixed_size",
        "gap",
        "has_fast_path",
        "held",
        "is_schedule",
        "max_offset",
        "max_physical",
        "min_offset",
        "queue_id",
        "tail",
        "topic",
        "topic_field",
    )

    def __init__(self, topic: str, queue_id: int, folder: Path, segment_size: int, files: OpenFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._folder = folder
        self._folder_name = str(folder)
        self._segment_size = segment_size
        self._files = files
        self._segments: list[int] = []  # starts of the files, in order
        # Positions are bytes from entry 0. What lies in [_tail_start, end) is in memory, from _written on only there.
        self.tail = bytearray()
        self._tail_start = 0
        self._written = 0
        self._unsynced: set[int] = set()
        self._folder_changed = False
        # Real tags codes of entries that hold an address instead; None if there never were any.
        self.ext: ConsumeQueueExt | None = None
        # During recovery: entries that were found missing, and a message whose place is not known yet.
        self.gap: Gap | None = None
        self.held: tuple[int, int, int] | None = None
        self.min_offset = QueueOffset(0)
        self.max_offset = QueueOffset(0)
        # The end of the newest record that has an entry here.
        self.max_physical = 0
        # Entries here carry the time of delivery in place of a tag.
        self.is_schedule = topic in TIMED_TOPICS
        # Topic with its length, as a record of version 1 carries it.
        encoded = topic.encode()
        fits_v1 = len(encoded) <= MAX_TOPIC_LENGTH[MAGIC_V1]
        self.topic_field = TOPIC_LENGTH[MAGIC_V1].pack(len(encoded)) + encoded if fits_v1 else b""
        # Whether messages may take the fast path of `put`.
        self.has_fast_path = bool(self.topic_field) and not self.is_schedule
        self.fixed_size = MIN_RECORD_SIZE + len(encoded)

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} {self.min_offset}..{self.max_offset}>"

    # Adding

    def add(self, physical: int, size: int, tags_code: int) -> None:
        """The entry of the message that just got `max_offset`."""
        self.tail += ENTRY.pack(physical, size, tags_code)
        self.max_offset += 1  # type: ignore[assignment]  # still a queue offset
        self.max_physical = physical + size

    def add_all(self, entries: bytes, end: int) -> None:
        """The entries of the messages that got the next offsets; the last of them ends at `end` in the log."""
        self.tail += entries
        self.max_offset += len(entries) // SIZE  # type: ignore[assignment]  # still a queue offset
        self.max_physical = end

    def mark(self) -> tuple[int, int, int]:
        """Where the queue ends now, for `reset`."""
        return self.max_offset, len(self.tail), self.max_physical

    def reset(self, mark: tuple[int, int, int]) -> None:
        """Take back the entries added since `mark`, none of which was written out or read."""
        max_offset, tail_length, self.max_physical = mark
        del self.tail[tail_length:]
        self.max_offset = QueueOffset(max_offset)

    def put(self, offset: QueueOffset, physical: int, size: int, tags_code: int) -> bool:
        """The entry of a message that is read back from the log; False if it is there already, or makes no sense.

        Where entries are missing in front of it, the hole is filled so that every message keeps its offset, and `gap`
        says so.
        """
        if physical + size <= self.max_physical:
            return False
        if not 0 <= offset < _LARGEST_OFFSET:
            logger.warning("%r: the record at %d claims the offset %d; passed over", self, physical, offset)
            return False
        if self.held is not None:
            self.settle(is_new=offset == 1)
        if not self._has_entries():
            if offset > self.max_offset:
                self.gap = self.gap or Gap(self.max_offset, self.max_physical)
            self._begin_at(offset)
        elif offset == 0 and self.max_offset > 0:
            # Either the topic was deleted and came back, its messages counted from 0 again; or these bytes are damaged.
            # The next message of the queue will tell.
            self.held = (physical, size, tags_code)
            return True
        elif offset < self.max_offset:
            return False
        elif offset > self.max_offset and not self.fill_up_to(offset):
            logger.warning("%r: the record at %d claims the offset %d; passed over", self, physical, offset)
            return False
        if self.gap is not None and offset == self.gap.offset:
            self.gap = None
        self.add(physical, size, tags_code)
        return True

    def settle(self, *, is_new: bool) -> None:
        """Decide on a message that claimed the offset 0 of a queue with entries: the queue is new, or that is wrong."""
        if self.held is not None:
            held, self.held = self.held, None
            if is_new:
                self.clear()
            self.add(*held)

    def fill_up_to(self, offset: QueueOffset) -> bool:
        """Let fillers stand for the messages from the end up to `offset`; False if they would be too many."""
        if not self._has_entries():
            self._begin_at(offset)
            return True
        if offset - self.max_offset > _LARGEST_HOLE:
            return False
        self.gap = self.gap or Gap(self.max_offset, self.max_physical)
        self.tail += PRE_BLANK * (offset - self.max_offset)
        self.max_offset = offset
        return True

    def _has_entries(self) -> bool:
        return bool(self._segments) or bool(self.tail)

    def _begin_at(self, offset: QueueOffset) -> None:
        """The first entry of the queue is not entry 0: older messages are gone. Its file is filled up to it."""
        position = offset * SIZE
        self._tail_start = self._written = position - position % self._segment_size
        self.tail = bytearray(PRE_BLANK * ((position - self._written) // SIZE))
        self.max_offset = self.min_offset = offset
        if len(self.tail) > _FILLED:
            # Recovery may begin ten thousand queues like this one; their fillers must not all stay in memory.
            self.write_out()

    # Writing

    @property
    def _position(self) -> int:
        """Where the next entry goes."""
        return self._tail_start + len(self.tail)

    @property
    def dirty(self) -> int:
        """Bytes that are in memory only."""
        return self._position - self._written

    def write_out(self) -> None:
        """Hand all entries to the system. OSError leaves what is not written in memory, still readable."""
        while self._written < (end := self._position):
            start = self._written - self._written % self._segment_size
            stop = min(end, start + self._segment_size)
            fd = self._descriptor(start)
            chunk = self.tail[self._written - self._tail_start : stop - self._tail_start]
            failpoints.hit("queue.write.before")
            self._files.disk.write(fd, chunk, self._written - start)
            failpoints.hit("queue.write.after")
            self._unsynced.add(start)
            self._written = stop
        surplus = len(self.tail) - _KEEP
        if surplus > 0:
            del self.tail[:surplus]
            self._tail_start += surplus

    def take_unsynced(self) -> list[Path]:
        """Files written since the last call, then folders in which files came or went.

        Syncing them, by any descriptor and in any thread, is the caller's.
        """
        paths = [self._path(start) for start in sorted(self._unsynced)]
        self._unsynced.clear()
        if self._folder_changed:
            self._folder_changed = False
            # Queue, topic, `consumequeue` and the root: all but the first are new at most once, and cost nothing then.
            paths += (self._folder, *self._folder.parents[:3])
        if self.ext is not None:
            paths += self.ext.take_unsynced()
        return paths

    def _descriptor(self, start: int) -> int:
        path = self._path(start)
        if self._segments and self._segments[-1] >= start:
            return self._files.get(path)
        fd = self._files.create(path, self._segment_size)
        failpoints.hit("queue.create")
        self._segments.append(start)
        self._folder_changed = True
        return fd

    def _path(self, start: int) -> Path:
        return self._folder / segment_name(start)

    # Reading

    def entries(self, offset: int, count: int) -> bytes:
        """Up to `count` entries from `offset` on, as bytes; never beyond the end of the file that holds `offset`.

        StoreError if the file cannot be read.
        """
        position = offset * SIZE
        start = position - position % self._segment_size
        stop = min(position + count * SIZE, start + self._segment_size, self._position)
        if position >= self._tail_start:
            return bytes(self.tail[position - self._tail_start : stop - self._tail_start])
        if position < 0 or start not in self._segments:
            return b""
        in_file = min(stop, self._tail_start)
        try:
            # Not a Path, which takes longer to make than the entries to read.
            fd = self._files.get(f"{self._folder_name}/{start:020d}")
            data = os.pread(fd, in_file - position, position - start)
        except OSError as exc:
            raise StoreError(f"cannot read {self._path(start)}: {exc.strerror}") from exc
        if len(data) != in_file - position:
            raise StoreError(f"{self._path(start)} ends before byte {in_file - start}")
        return data + self.tail[: stop - self._tail_start] if stop > in_file else data

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of one message; None if there is no such entry."""
        data = self.entries(offset, 1)
        return ENTRY.unpack(data) if len(data) == SIZE else None

    def next_file_offset(self, offset: int) -> QueueOffset:
        """The first offset of the file behind the one that holds `offset`."""
        position = offset * SIZE
        return QueueOffset((position - position % self._segment_size + self._segment_size) // SIZE)

    @property
    def first_offset(self) -> QueueOffset:
        """The first entry that is kept, filler or not."""
        start = self._segments[0] if self._segments else self._tail_start
        return QueueOffset(start // SIZE)

    def first_real(self, low: int, high: int | None = None) -> QueueOffset:
        """The first offset from `low` on that stands for a message; `high`, or the end, if there is none before it."""
        high = int(self.max_offset) if high is None else high
        count = 1  # most often it is the very first
        while low < high:
            data = self.entries(low, min(count, high - low))
            if not data:  # a file is missing
                low = self.next_file_offset(low)
                continue
            if data != PRE_BLANK * (len(data) // SIZE):
                sizes = (size for _, size, _ in ENTRY.iter_unpack(data))
                return QueueOffset(low + next(at for at, size in enumerate(sizes) if size != PRE_BLANK_SIZE))
            low += len(data) // SIZE
            count = _CHUNK
        return QueueOffset(high)

    def last_real(self, high: int, low: int | None = None) -> QueueOffset | None:
        """The last offset before `high`, not below `low` or the beginning, that stands for a message."""
        low = int(self.first_offset) if low is None else low
        while high > low:
            entry = self.entry(high - 1)
            if entry is not None and entry[1] != PRE_BLANK_SIZE:
                return QueueOffset(high - 1)
            high -= 1
        return None

    def search(self, physical: int) -> QueueOffset:
        """The first offset whose record begins at or after `physical`, the end if there is none. No filler counts."""
        high = int(self.max_offset)
        low = int(self.first_real(self.first_offset))
        while low < high:
            middle = (low + high) // 2
            # A filler says nothing about its place; the first real entry behind it does.
            probe = self.first_real(middle, high)
            entry = self.entry(probe) if probe < high else None
            if entry is not None and entry[0] < physical:
                low = probe + 1
            else:
                high = middle
        return self.first_real(low)

    # Ends

    def load(self, *, crashed: bool = False) -> None:
        """Find the files, and the end of the entries in them: what comes before the first that was never written.

        After a crash the end cannot be found like this, since pages may be missing or torn: `cut_back` must follow.
        """
        files = segment_files(self._folder, self._segment_size, remove_empty=self._files.disk.delete)
        self._segments = [file.start for file in files]
        if not self._segments:
            return
        end = self._segments[-1] + self._segment_size if crashed else self._end_after_stop()
        self._tail_start = self._written = end
        if crashed:
            self.max_offset = QueueOffset(end // SIZE)
        else:
            self._set_end(QueueOffset(end // SIZE), zero=False)
        self.min_offset = self.first_offset

    def cut_back(self, before: int) -> None:
        """After a crash: keep the entries of records before `before`, which were surely on disk, and no others.

        The others are zeroed or deleted, to be made anew from the log.
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
        """See that no file is missing between others, of a log that begins at `log_start`.

        In front of the hole lie files that were deleted, which a power failure undid for some of them; or somebody
        deleted the wrong one, and the rest is to be made anew from the log.
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
            self.gap = Gap(self.max_offset, self.max_physical)
        self.min_offset = max(self.min_offset, self.first_offset)

    def _sure(self, start: int, before: int) -> int:
        """How many entries of the file at `start`, from its beginning, are surely those of records before `before`.

        Behind them nothing that is written can be relied on. An entry that lies in two sectors may have got half of an
        offset, and so seem to be one of them; but then it is not behind the one in front of it.
        """
        fd = self._files.get(self._path(start))
        low, high = 0, -(-self._segment_size // (_CHUNK * SIZE))
        # The first entry of a chunk lies in one sector: it is there, or is not.
        while high - low > 1:
            middle = (low + high) // 2
            physical, size, _ = ENTRY.unpack(os.pread(fd, SIZE, middle * _CHUNK * SIZE))
            if size == PRE_BLANK_SIZE:  # says nothing of what is in front of it
                low = 0
                break
            if size > 0 and 0 <= physical < before:
                low = middle
            else:
                high = middle
        sure = index = low * _CHUNK
        end, only_fillers = 0, True
        while chunk := os.pread(fd, min(_CHUNK * SIZE, self._segment_size - index * SIZE), index * SIZE):
            for physical, size, _ in ENTRY.iter_unpack(chunk):
                index += 1
                if size == PRE_BLANK_SIZE and physical == 0:
                    # At the beginning fillers keep the offsets what they are; others belong to what comes behind them.
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
        """How many entries of the file at `start` are written: a prefix of it, found by halving."""
        fd = self._files.get(self._path(start))

        def is_free(index: int) -> bool:
            physical, size, _ = ENTRY.unpack(os.pread(fd, SIZE, index * SIZE))
            return bool(physical < 0 or size <= 0)

        return bisect.bisect_left(range(self._segment_size // SIZE), True, key=is_free)

    def truncate(self, end: int) -> None:
        """Forget the entries of records that begin at or after `end`; their bytes are zeroed."""
        keep = self.search(end)
        last = self.last_real(keep)
        # Fillers at the end belong to messages that are gone; those at the beginning keep the offsets what they are.
        self.cut(keep if last is None else QueueOffset(last + 1))

    def cut(self, keep: QueueOffset) -> None:
        """Forget the entries from `keep` on; their bytes are zeroed."""
        if keep < self.max_offset:
            self.write_out()
            self._set_end(keep, zero=True)

    def drop_unknown(self, holds: Callable[[int, int], bool], since: int) -> None:
        """Forget entries at the end, of records from `since` on, that point where the log holds no such record.

        A crash tears entries, and RocketMQ leaves stale ones behind when it cuts its log.
        """
        keep = self.max_offset
        while (last := self.last_real(keep)) is not None and (entry := self.entry(last)) is not None:
            physical, size, _ = entry
            if 0 <= physical < since or holds(physical, size):
                break
            keep = last
        if keep < self.max_offset:
            logger.warning("%r: entries from %d on do not belong to this log", self, keep)
            self.cut(keep)
            self.gap = Gap(keep, self.max_physical)

    def _set_end(self, keep: QueueOffset, *, zero: bool) -> None:
        """End the queue before the entry `keep`. `zero` makes what lay behind it unreadable for good."""
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
        self.max_offset = keep
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
            # Or a power failure may bring the file back, when the queue has grown up to it again.
            self._folder_changed = True

    def correct_min(self, log_start: int) -> None:
        """Set `min_offset` to the first message that is still in the log. The offsets of an empty queue are kept."""
        first = self.first_offset
        entry = self.entry(first)
        if entry is not None and entry[0] >= log_start and entry[1] != PRE_BLANK_SIZE:
            self.min_offset = first  # as in most queues; ten thousand need not be searched
        else:
            self.min_offset = self.search(log_start)

    def expire(self, log_start: int) -> list[Path]:
        """Give up the files, never the last, all of whose records lie below `log_start`, and correct the minimum.

        Returns their paths, for the caller to delete: not before the records are gone, which would miss their entries.
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
            # What lies in front of an entry without an address is not known, and goes when one with an address comes.
            if oldest is not None and oldest[2] <= MAX_EXT_ADDRESS:
                expired += self.ext.expire(oldest[2])
        return expired

    def delete(self) -> None:
        """Remove the queue and all its files: its topic is gone, or the log it belonged to is."""
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
        self.max_offset = self.min_offset = QueueOffset(0)
        self.max_physical = 0
        self.gap = None
