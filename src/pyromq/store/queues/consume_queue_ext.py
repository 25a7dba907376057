"""Consume queue ext: units with filter bitmaps, for which a queue entry has no room.

An entry whose tags code is at most MAX_EXT_ADDRESS holds the address of a unit instead (format.EXT_UNIT), and the unit
the real tags code. Only messages with a bitmap get a unit; any entry may go
without one. The same bytes as RocketMQ's (ConsumeQueueExt.java).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import StoreError

from ..format import ENTRY, EXT_BASE, EXT_END, EXT_UNIT, MAX_EXT_ADDRESS, segment_files, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from ..commit_log import CommitLog
    from ..open_files import OpenFiles
    from .consume_queue import ConsumeQueue

    # The bitmap of a record of some topic.
    Bitmap: TypeAlias = Callable[[memoryview], bytes]
    Mark: TypeAlias = tuple[int, int, int]  # of ConsumeQueue.mark

logger = logging.getLogger(__name__)

_USUAL_BITMAP = 64  # bytes; with RocketMQ's defaults it is 14
_MAX_BITMAP = 0x7FFF - EXT_UNIT.size  # a size is two bytes, with a sign
_MAX_POSITION = MAX_EXT_ADDRESS - EXT_BASE
_END = EXT_END.to_bytes(2, "big", signed=True)
_END_SIZE = 4  # left free at the end of a file, as RocketMQ does
_TAGS_CODE_AT = ENTRY.size - 8
_LOOKED_BACK = 1024  # entries to search for the newest unit after opening


class ExtUnit(NamedTuple):
    """A unit: a message's tags code, its store time (ms), and the bitmap of filters that match it."""

    tags_code: int
    store_time: int
    bitmap: bytes

    @property
    def size(self) -> int:
        return EXT_UNIT.size + len(self.bitmap)

    def encode(self) -> bytes:
        return EXT_UNIT.pack(self.size, self.tags_code, self.store_time, len(self.bitmap)) + self.bitmap


class ConsumeQueueExt:
    """The units of one queue, in files of fixed size named for the position of their first byte.

    Once `append` returns, units survive a killed process; syncing what
    `take_unsynced` returns makes them survive a power failure.
    """

    __slots__ = ("_end", "_file_size", "_files", "_folder", "_folder_changed", "_is_failing", "_unsynced")

    def __init__(self, folder: Path, file_size: int, files: OpenFiles) -> None:
        self._folder = folder
        self._file_size = file_size
        self._files = files
        self._end: int | None = None  # where the next unit goes; None until the first write
        self._unsynced: set[int] = set()
        self._folder_changed = False
        self._is_failing = False

    # Reading

    def tags_code(self, address: int) -> int | None:
        """The tags code of the unit at `address`; None if there is no such unit: then the tag is unknown."""
        unit = self.unit(address)
        return None if unit is None else unit.tags_code

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at `address`, or None if there is none."""
        position = address - EXT_BASE
        start = position - position % self._file_size
        at = position - start
        try:
            fd = self._files.get(self._path(start))
            data = os.pread(fd, EXT_UNIT.size + _USUAL_BITMAP, at)
            if len(data) < EXT_UNIT.size:
                return None
            size, tags_code, store_time, bitmap_size = EXT_UNIT.unpack_from(data)
            if bitmap_size < 0 or size != EXT_UNIT.size + bitmap_size or at + size > self._file_size:
                return None
            if size > len(data):
                data = os.pread(fd, size, at)
        except OSError:
            return None
        if len(data) < size:
            return None
        return ExtUnit(tags_code, store_time, data[EXT_UNIT.size : size])

    # Writing

    @property
    def is_begun(self) -> bool:
        """Whether it is known where units go; if not, `go_on_behind` must come before `append`."""
        return self._end is not None

    def go_on_behind(self, address: int | None) -> bool:
        """Let the next unit follow the one at `address`, the newest that an entry points to; None if no entry does.

        False if the files are damaged: then nothing can be appended.
        """
        try:
            self._end = self._cleared_behind(address)
        except (OSError, StoreError) as exc:
            self._failed(exc)
            return False
        return True

    def _cleared_behind(self, address: int | None) -> int:
        """Clear what follows the last unit and return its end. It belongs to entries lost in a crash."""
        starts = [file.start for file in segment_files(self._folder, self._file_size)]
        last = None if address is None else self.unit(address)
        if address is None or last is None:
            # The end of its units is unknown, so they are left alone.
            return starts[-1] + self._file_size if starts else 0
        end = address - EXT_BASE + last.size
        start = end - end % self._file_size
        for later in reversed([each for each in starts if each > start]):
            self._files.forget(self._path(later))
            self._files.disk.delete(self._path(later))
            self._folder_changed = True
        if start in starts:
            self._files.disk.zero(self._files.get(self._path(start)), end - start, self._file_size)
            self._unsynced.add(start)
        return end

    def append(self, units: Sequence[ExtUnit]) -> list[int]:
        """Write units and return their addresses, one for each, or none at all if that is not possible.

        A bitmap is only an optimisation, so a failure is no reason to refuse a message.
        """
        assert self._end is not None
        end = self._end
        try:
            addresses = self._append(units)
        except (OSError, StoreError) as exc:
            self._end = end
            self._failed(exc)
            return []
        self._is_failing = False
        return addresses

    def _failed(self, exc: Exception) -> None:
        if not self._is_failing:
            logger.warning("%s: bitmaps not written: %s; filters look at the messages instead", self._folder, exc)
        self._is_failing = True

    def _append(self, units: Sequence[ExtUnit]) -> list[int]:
        assert self._end is not None
        file_size = self._file_size
        addresses: list[int] = []
        pieces: list[bytes] = []
        begin = end = self._end
        for unit in units:
            size = unit.size
            if len(unit.bitmap) > _MAX_BITMAP or size + _END_SIZE > file_size:
                raise StoreError(f"a bitmap of {len(unit.bitmap)} bytes does not fit its file")
            room = file_size - end % file_size
            if size + _END_SIZE > room:
                pieces.append(_END if room >= len(_END) else b"")
                self._write(begin, pieces)
                pieces = []
                begin = end = end + room
            if end + size > _MAX_POSITION:
                raise StoreError("no addresses are left")
            addresses.append(EXT_BASE + end)
            pieces.append(unit.encode())
            end += size
        self._write(begin, pieces)
        self._end = end
        return addresses

    def _write(self, position: int, pieces: list[bytes]) -> None:
        start = position - position % self._file_size
        path = self._path(start)
        try:
            fd = self._files.get(path)
        except FileNotFoundError:
            fd = self._files.create(path, self._file_size)
            self._folder_changed = True
        self._files.disk.write(fd, b"".join(pieces), position - start)
        self._unsynced.add(start)

    def take_unsynced(self) -> list[Path]:
        """Files written since the last call, then folders in which files came or went."""
        paths = [self._path(start) for start in sorted(self._unsynced)]
        self._unsynced.clear()
        if self._folder_changed:
            self._folder_changed = False
            paths += (self._folder, *self._folder.parents[:3])
        return paths

    # Ends

    def expire(self, address: int) -> list[Path]:
        """Give up the files of units before `address`, the oldest that an entry points to, for the caller to delete."""
        position = address - EXT_BASE
        expired: list[Path] = []
        try:
            files = segment_files(self._folder, self._file_size)
        except (OSError, StoreError) as exc:
            logger.warning("%s: old bitmaps not deleted: %s", self._folder, exc)
            return expired
        for start, path in files:
            if start + self._file_size > position:
                break
            self._files.forget(path)
            self._unsynced.discard(start)
            expired.append(path)
        return expired

    def delete(self) -> None:
        """Delete the units and their files: the queue is gone. Files that cannot be deleted do no harm."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                self._files.forget(path)
            shutil.rmtree(self._folder)
        self._end = None
        self._unsynced.clear()

    def _path(self, start: int) -> Path:
        return self._folder / segment_name(start)


def extend(
    queue: ConsumeQueue, ext: ConsumeQueueExt, since: Mark, log: CommitLog, bitmap: Bitmap, store_time: int
) -> None:
    """Give each message that `queue` got since the mark a unit, and point its entry there.

    Call it before these entries can be read or written out.
    """
    offset, at, _ = since
    if not ext.is_begun and not ext.go_on_behind(_newest_address(queue, offset)):
        return
    entries = list(ENTRY.iter_unpack(queue.tail[at:]))
    units = [ExtUnit(tags_code, store_time, bitmap(log.read(physical, size))) for physical, size, tags_code in entries]
    for address in ext.append(units):
        queue.tail[at + _TAGS_CODE_AT : at + ENTRY.size] = address.to_bytes(8, "big", signed=True)
        at += ENTRY.size


def _newest_address(queue: ConsumeQueue, before: int) -> int | None:
    """The newest address among the last entries before an offset."""
    first = max(int(queue.first_offset), before - _LOOKED_BACK)
    for offset in reversed(range(first, before)):
        entry = queue.entry(offset)
        if entry is not None and entry[2] <= MAX_EXT_ADDRESS:
            return entry[2]
    return None
