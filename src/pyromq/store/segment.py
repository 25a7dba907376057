"""One file of the commit log: fixed size, written in place, read through a map."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from pyromq.errors import StoreError

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from .disk import Disk


class Segment:
    """A segment file. Positions are counted from its first byte; `start` is that byte's offset in the log.

    Written bytes can be read at once; once `sync` returns they survive a power failure. Writing and
    zeroing belong to the thread that appends; `sync` may run in another.

    A log may have a thousand files and only the last is written to, so the others keep only their map, no descriptor.
    """

    __slots__ = ("_disk", "_fd", "_map", "path", "size", "start", "view")

    def __init__(self, path: Path, start: int, size: int, fd: int, disk: Disk) -> None:
        self.path = path
        self.start = start
        self.size = size
        self._fd = fd
        self._disk = disk
        self._map: mmap.mmap = disk.map(fd, size)
        self.view = memoryview(self._map)

    @classmethod
    def create(cls, path: Path, start: int, size: int, disk: Disk) -> Segment:
        """A new file of zeros. Raises OSError: no space, no permission."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = disk.create(path, size)
        try:
            return cls(path, start, size, fd, disk)
        except OSError:
            os.close(fd)
            # Or it would be in the way of the next attempt.
            disk.delete(path)
            raise

    @classmethod
    def open(cls, path: Path, start: int, size: int, disk: Disk) -> Segment:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                segment = cls(path, start, size, fd, disk)
                segment._fd = -1
            finally:
                os.close(fd)
        except OSError as exc:
            raise StoreError(f"cannot open {path}: {exc.strerror}") from exc
        return segment

    def __repr__(self) -> str:
        return f"<Segment {self.path.name}>"

    @property
    def end(self) -> int:
        """The offset of the first byte of the next segment."""
        return self.start + self.size

    def write(self, data: bytes | memoryview, at: int) -> None:
        self._disk.write(self._fd if self._fd >= 0 else self._open(), data, at)

    def zero(self, at: int) -> None:
        """Make everything from `at` on read as never written."""
        fd = self._fd if self._fd >= 0 else self._open()
        self._disk.zero(fd, at, self.size)
        # Zeroing may have freed the space. If it is taken meanwhile, the write that needs it will fail.
        with contextlib.suppress(OSError):
            self._disk.reserve(fd, at, self.size)

    def sync(self) -> None:
        if self._fd >= 0:
            self._disk.sync(self._fd)
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def _open(self) -> int:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._fd

    def close(self) -> None:
        """Close the file. Slices still in use keep the map alive."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()

    def delete(self) -> None:
        """Delete the file from disk."""
        self.close()
        self._disk.delete(self.path)
