"""The commit log: every message of every topic, one after the other, in segment files.

A record never spans two files. The rest of a file that is too small for the next record becomes a blank record,
which sends a reader to the next file; so a file is never filled to the last byte.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
from typing import TYPE_CHECKING

from pyromq.errors import OffsetOutOfRange, StoreError
from pyromq.protocol.record import (
    HEAD_LAYOUTS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    SIZE_AND_MAGIC,
    encode_blank,
)

from . import failpoints
from .format import PhysicalOffset, segment_files, segment_name
from .segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .disk import Disk

logger = logging.getLogger(__name__)

BLANK_SIZE = SIZE_AND_MAGIC.size

# The fields that show that a head is the right record's.
HEAD = HEAD_LAYOUTS[0].only("total_size", "magic", "physical_offset")


class CommitLog:
    """The segments of the log, and the position where the next record goes.

    `write` belongs to one thread. `read` returns views of the files; nothing is copied.
    """

    def __init__(self, folders: Sequence[Path], file_size: int, disk: Disk) -> None:
        self._folders = folders
        self._file_size = file_size
        self._disk = disk
        self._segments: dict[int, Segment] = {}  # by start, in order
        self._allocator = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="allocate")
        self._spare: concurrent.futures.Future[Segment] | None = None
        # Part of a failed write may lie beyond the end.
        self._torn = False
        # Records end here; the next one begins here unless it does not fit into the file.
        self.end = PhysicalOffset(0)

    # Files

    def load(self) -> None:
        """Open the files; `end` is the end of the last file until recovery finds the real one."""
        for folder in self._folders:
            self._disk.make_folder(folder)
        files = sorted(
            file
            for folder in self._folders
            for file in segment_files(folder, self._file_size, remove_empty=self._disk.delete)
        )
        for file in files:
            if file.start in self._segments:
                raise StoreError(f"{file.path} and {self._segments[file.start].path} are the same segment")
            self._segments[file.start] = Segment.open(file.path, file.start, self._file_size, self._disk)
        if files:
            self.end = PhysicalOffset(files[-1].start + self._file_size)

    @property
    def file_size(self) -> int:
        return self._file_size

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments.values())

    @property
    def start(self) -> PhysicalOffset:
        """The offset of the oldest byte still there; the end if the log is empty."""
        return PhysicalOffset(next(iter(self._segments), self.end))

    def segment_at(self, offset: int) -> Segment | None:
        """The file that holds `offset`."""
        return self._segments.get(offset - offset % self._file_size)

    def truncate(self, end: PhysicalOffset) -> None:
        """Forget everything from `end` on. It reads as never written, even after the next crash.

        Otherwise a record of the right size at `end` would bring the old ones after it back to life.
        """
        self._drop_spare()  # it may be for another place than the log will need a file for
        for segment in reversed(self.segments):
            # An empty file that begins at the end stays: it may be all that says where the log is.
            if segment.start > end:
                del self._segments[segment.start]
                segment.delete()
        self.end = end
        failpoints.hit("log.truncate.deleted")
        last = self.segment_at(end)
        if last is not None:
            self._torn = True
            last.zero(end - last.start)
            self._torn = False
            failpoints.hit("log.truncate.zeroed")
            last.sync()

    def clear(self) -> None:
        """Forget everything, and where it was."""
        self._drop_spare()
        for segment in reversed(self.segments):
            del self._segments[segment.start]
            segment.delete()
        self.end = PhysicalOffset(0)
        self._torn = False

    def drop_oldest(self) -> Segment:
        """Take the oldest file out of the log, for the caller to delete. The last one stays."""
        if len(self._segments) < 2:
            raise StoreError("the last file of the commit log cannot be dropped")
        return self._segments.pop(next(iter(self._segments)))

    def close(self) -> None:
        """Close all files and remove the one created in advance, which RocketMQ's recovery does not expect."""
        self._allocator.shutdown(wait=True)
        self._drop_spare()
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None and spare.exception() is None:
            try:
                spare.result().delete()
            except OSError as exc:
                logger.warning("cannot delete the spare commit log file: %s; the next start will", exc)

    # Writing

    def room(self) -> int:
        """Bytes left in the current file; 0 when there is none yet."""
        segment = self.segment_at(self.end)
        return 0 if segment is None else segment.end - self.end

    def fits(self, size: int) -> bool:
        """Whether `size` bytes, followed by a blank record, fit into the current file."""
        return size + BLANK_SIZE <= self.room()

    def write(self, data: bytes) -> PhysicalOffset:
        """Append `data`, whole records that fit into the current file, by one write. Returns where they begin.

        OSError if the disk does not take them; then none of them is part of the log.
        """
        at = self.end
        segment = self.segment_at(at)
        if segment is None:
            raise StoreError(f"no file of the commit log holds offset {at}")
        failpoints.hit("log.write.before")
        self._write(segment, data)
        self.end = PhysicalOffset(at + len(data))
        failpoints.hit("log.write.after")
        if self._spare is None and 2 * (segment.end - self.end) < self._file_size:
            self._spare = self._allocator.submit(self._create, segment.end)
        return at

    def begin_at(self, offset: PhysicalOffset) -> None:
        """Let an empty log begin here, in the file that holds `offset`. OSError as for `write`."""
        if self._segments:
            raise StoreError(f"the commit log begins at {self.start} already")
        self._add(self._create(offset - offset % self._file_size))
        self.end = offset

    def append_copy(self, data: bytes | memoryview) -> None:
        """Append bytes of another log, which lie in one file there. OSError as for `write`.

        They may be a part of a record, or a blank record with what is left of its file.
        """
        segment = self.segment_at(self.end)
        if segment is None:
            segment = self._next_segment(self.end)
            self._add(segment)
        self._write(segment, data)
        self.end = PhysicalOffset(self.end + len(data))
        if self._spare is None and 2 * (segment.end - self.end) < self._file_size:
            self._spare = self._allocator.submit(self._create, segment.end)

    def _write(self, segment: Segment, data: bytes | memoryview) -> None:
        at = self.end - segment.start
        try:
            if self._torn:
                segment.zero(at)
                self._torn = False
            segment.write(data, at)
        except OSError:
            # Part of it may be there. It must not come back to life after the next record.
            self._torn = True
            with contextlib.suppress(OSError):
                segment.zero(at)
                self._torn = False
            raise

    def roll(self) -> None:
        """Continue in the next file, with a blank record in the rest of this one. OSError leaves the log as it was."""
        segment = self.segment_at(self.end)
        if segment is None:
            self._add(self._create(self.end))
            return
        failpoints.hit("log.roll.begin")
        # The new file first: if it cannot be created, nothing has changed.
        following = self._next_segment(segment.end)
        failpoints.hit("log.roll.made")
        left = segment.end - self.end
        try:
            # Another broker may have filled a file to the last byte; then its end is the end of its last record.
            if left >= BLANK_SIZE:
                self._write(segment, encode_blank(left))
        except OSError:
            self._spare = concurrent.futures.Future()
            self._spare.set_result(following)
            raise
        failpoints.hit("log.roll.blank")
        self._add(following)
        self.end = PhysicalOffset(following.start)

    def _next_segment(self, start: int) -> Segment:
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.suppress(OSError, concurrent.futures.CancelledError):
                return spare.result()
        return self._create(start)

    def _create(self, start: int) -> Segment:
        number = start // self._file_size
        folder = self._folders[number % len(self._folders)]
        segment = Segment.create(folder / segment_name(start), start, self._file_size, self._disk)
        failpoints.hit("log.create")
        try:
            self._disk.sync_folder(folder)
        except OSError:
            # Or it would be in the way of the next attempt.
            segment.delete()
            raise
        logger.info("commit log file %s created", segment.path.name)
        return segment

    def _add(self, segment: Segment) -> None:
        self._segments[segment.start] = segment

    # Reading

    def read(self, offset: int, size: int) -> memoryview:
        """The `size` bytes at `offset`, as a slice of the map. OffsetOutOfRange if they are not there."""
        segment = self._segments.get(offset - offset % self._file_size)
        if segment is None or offset + size > self.end or offset < 0 or size < 0:
            raise OffsetOutOfRange(f"commit log has no {size} bytes at {offset}")
        at = offset - segment.start
        if at + size > segment.size:
            raise OffsetOutOfRange(f"{size} bytes at {offset} do not lie in one file of the commit log")
        return segment.view[at : at + size]

    def holds(self, offset: int, size: int) -> bool:
        """Whether a record of `size` bytes begins at `offset`, judged by its head."""
        try:
            record = self.read(offset, size)
        except OffsetOutOfRange:
            return False
        return size >= MIN_RECORD_SIZE and is_head_of(record, offset)

    def sync(self, start: int = 0) -> None:
        """Return once the log from `start` on survives a power failure."""
        for segment in self.segments:
            if segment.end > start:
                segment.sync()


def is_head_of(record: memoryview, offset: int) -> bool:
    """Whether these bytes, enough for a head, are that of a record of this size and offset."""
    size, magic, physical = HEAD.unpack_from(record)
    return bool(physical == offset and size == len(record) and magic in (MAGIC_V1, MAGIC_V2))
