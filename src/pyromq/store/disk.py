"""The few calls by which the store changes a disk: the places where crashes and full disks hurt.

`Disk` is the real one. Tests use one that runs out of space, fails its fsyncs or forgets what was not flushed.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEEP_SIZE = 1
_PUNCH_HOLE = 2
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Disk:
    """The machine's own disk. Every method raises OSError as the system does."""

    def write(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write all of `data`, or raise; the system may take it in several steps."""
        written = os.pwrite(fd, data, at)
        if written != len(data):
            view = memoryview(data)
            while written < len(data):
                written += os.pwrite(fd, view[written:], at + written)

    def sync(self, fd: int) -> None:
        """Return once what was written to `fd` survives a power failure."""
        os.fdatasync(fd)

    def sync_folder(self, folder: Path) -> None:
        """Return once the names in `folder` survive a power failure."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, folder: Path) -> bool:
        """Return True once everything on the file system of `folder` survives a power failure.

        False, and nothing is done, where the system does not report errors of this: Linux does since 5.8.
        """
        if _libc_syncfs is None:
            return False
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _libc_syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)
        return True

    def create(self, path: Path, size: int, *, reserve: bool = True) -> int:
        """Create a file of `size` zeros; returns its descriptor. `reserve` allocates the space at once, if possible.

        The file gets its name only at its full size, since a shorter one would keep a broker from starting.
        """
        # The file has no name until it is whole; a temporary name in this folder would be a stray file after a crash.
        fd = self._create_nameless(path, size, reserve)
        if fd is not None:
            return fd
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            self._set_size(fd, size, reserve)
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        return fd

    def reserve(self, fd: int, start: int, end: int) -> None:
        """Allocate the space of [start, end) now, so that writing there cannot run out."""
        if start < end:
            try:
                _fallocate(fd, 0, start, end - start)
            except OSError as exc:
                if exc.errno not in _UNSUPPORTED:
                    raise

    def make_folder(self, folder: Path) -> None:
        """Create `folder` and its missing parents; once this returns they survive a power failure."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self.sync_folder(folder.parent)

    def map(self, fd: int, size: int) -> mmap.mmap:
        """Map `fd` into memory, read-only."""
        return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def zero(self, fd: int, start: int, end: int) -> None:
        """Make [start, end) read as zeros, giving the space back if the file system can."""
        if start >= end:
            return
        try:
            _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, start, end - start)
        except OSError as exc:
            if exc.errno not in _UNSUPPORTED:
                raise
            zeros = bytes(1 << 20)
            for at in range(start, end, len(zeros)):
                self.write(fd, memoryview(zeros)[: min(len(zeros), end - at)], at)

    def delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def boot_id(self) -> str | None:
        """Another one each time the machine starts, and with it the memory in which unsynced data waits.

        None if the system has none; Linux does.
        """
        try:
            return _BOOT_ID.read_text().strip() or None
        except OSError:
            return None

    def used_ratio(self, folder: Path) -> float:
        """How full the disk of `folder` is, 0 to 1, rounded up to whole percent as RocketMQ does; -1 if unknown."""
        try:
            stat = os.statvfs(folder)
        except OSError:
            return -1.0
        used = stat.f_blocks - stat.f_bfree
        total = used + stat.f_bavail
        return -(-100 * used // total) / 100 if total else -1.0

    def _create_nameless(self, path: Path, size: int, reserve: bool) -> int | None:
        try:
            fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except (AttributeError, OSError):
            return None
        try:
            self._set_size(fd, size, reserve)
        except BaseException:
            os.close(fd)
            raise
        try:
            # Python asks the system to follow the link only if a folder is given; an absolute path ignores it.
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        except OSError:  # no /proc, or a file system without links; any other error will show again
            os.close(fd)
            return None
        return fd

    def _set_size(self, fd: int, size: int, reserve: bool) -> None:
        if reserve:
            self.reserve(fd, 0, size)
        os.ftruncate(fd, size)


def _fallocate(fd: int, mode: int, start: int, size: int) -> None:
    # Python's own posix_fallocate writes every block where the file system cannot reserve: a second per GiB.
    if _libc_fallocate is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    while _libc_fallocate(fd, mode, start, size) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def _load_fallocate() -> ctypes._NamedFuncPointer | None:
    function: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
        function.restype = ctypes.c_int
    return function


def _load_syncfs() -> ctypes._NamedFuncPointer | None:
    system = os.uname()
    version = tuple(int(part) for part in re.findall(r"\d+", system.release)[:2])
    if system.sysname != "Linux" or version < (5, 8):
        return None
    function: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes = [ctypes.c_int]
        function.restype = ctypes.c_int
    return function


_libc_fallocate = _load_fallocate()
_libc_syncfs = _load_syncfs()
