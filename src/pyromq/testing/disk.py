"""A disk that fails on demand.

    disk = FaultyDisk()
    store = MessageStore(StoreConfig(root=...), disk=disk)
    disk.fill(100)          # a hundred bytes more, then it is full
    disk.free()
    disk.hold_syncs()       # fsync does not return ...
    disk.release_syncs()    # ... until now
    disk.fail_syncs()       # and from now on it fails

The real disk does everything but syncing. Any thread may use the switches.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import NamedTuple

from pyromq.store.disk import Disk


class _Fault(NamedTuple):
    code: int
    where: str


class FaultyDisk(Disk):
    """The real disk with switches. `where`, if given, limits them to paths that contain it, such as "consumequeue".

    `syncs`, `folder_syncs`, `writes` and `deletes` count the calls, failed ones included.
    """

    def __init__(self) -> None:
        self.syncs = 0
        self.folder_syncs = 0
        self.writes = 0
        self.deletes = 0
        # What `used_ratio` reports instead of the truth, if set.
        self.used: float | None = None
        self._space: int | None = None
        self._faults: dict[str, _Fault] = {}
        self._held_where = ""
        self._flowing = threading.Event()
        self._flowing.set()
        # Set while a sync is being held.
        self.is_held = threading.Event()

    # Switches

    def fill(self, space: int = 0) -> None:
        """Make the disk full after `space` more bytes. A longer write is cut off there."""
        self._space = space

    def free(self) -> None:
        self._space = None

    def fail_writes(self, code: int = errno.EIO, where: str = "") -> None:
        self._faults["write"] = _Fault(code, where)

    def fail_creates(self, code: int = errno.ENOSPC, where: str = "") -> None:
        self._faults["create"] = _Fault(code, where)

    def fail_zeros(self, code: int = errno.EIO, where: str = "") -> None:
        self._faults["zero"] = _Fault(code, where)

    def fail_syncs(self, code: int = errno.EIO, where: str = "") -> None:
        self._faults["sync"] = _Fault(code, where)

    def fail_folder_syncs(self, code: int = errno.EIO, where: str = "") -> None:
        self._faults["sync_folder"] = _Fault(code, where)

    def refuse_deletes(self, code: int = errno.EACCES, where: str = "") -> None:
        self._faults["delete"] = _Fault(code, where)

    def heal(self) -> None:
        """Everything works again, and there is space."""
        self._faults.clear()
        self._space = None

    def hold_syncs(self, where: str = "") -> None:
        self._held_where = where
        self._flowing.clear()

    def release_syncs(self) -> None:
        self._flowing.set()

    # The disk

    def write(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        self.writes += 1
        self._check("write", _path_of(fd))
        if self._space is not None and len(data) > self._space:
            space, self._space = self._space, 0
            super().write(fd, memoryview(data)[:space], at)
            raise _error(errno.ENOSPC)
        if self._space is not None:
            self._space -= len(data)
        super().write(fd, data, at)

    def zero(self, fd: int, start: int, end: int) -> None:
        self._check("zero", _path_of(fd))
        super().zero(fd, start, end)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        path = _path_of(fd)
        if not self._flowing.is_set() and self._held_where in str(path):
            self.is_held.set()
            self._flowing.wait()
            self.is_held.clear()
        # Not passed to the real disk: its power will not fail, and tests are faster without.
        self._check("sync", path)

    def sync_file_system(self, folder: Path) -> bool:
        return False  # faults are of single files

    def sync_folder(self, folder: Path) -> None:
        self.folder_syncs += 1
        self._check("sync_folder", folder)

    def create(self, path: Path, size: int, *, reserve: bool = True) -> int:
        self._check("create", path)
        if self._space is not None and reserve and size > self._space:
            raise _error(errno.ENOSPC)
        return super().create(path, size, reserve=reserve)

    def delete(self, path: Path) -> None:
        self.deletes += 1
        self._check("delete", path)
        super().delete(path)

    def used_ratio(self, folder: Path) -> float:
        return super().used_ratio(folder) if self.used is None else self.used

    def _check(self, what: str, path: Path) -> None:
        fault = self._faults.get(what)
        if fault is not None and fault.where in str(path):
            raise _error(fault.code)


def _path_of(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
