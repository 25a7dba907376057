"""The lock that keeps a second process off the files of a store.

RocketMQ uses Java's FileLock, a POSIX lock on the first byte; so do we, and each refuses a store in use by the other.
A POSIX lock belongs to the process and is lost when the process closes *any* descriptor of the file, so
this module keeps its own list and never opens the file of a store that it has locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from typing import TYPE_CHECKING, Self

from pyromq.errors import StoreError

from .format import LOCK

if TYPE_CHECKING:
    from pathlib import Path

_CONTENT = b"lock"
_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN)
# struct flock of Linux on 64 bits: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")

_held: set[Path] = set()


class StoreLock:
    """Locked from its creation until `close`, or until the process ends in any way."""

    def __init__(self, root: Path) -> None:
        """StoreError if the store at `root` is in use, in this process or another, or cannot be locked."""
        self._path = root.resolve() / LOCK
        self._fd = -1
        if self._path in _held:
            raise StoreError(f"{root} is in use by this process (pid {os.getpid()})")
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise StoreError(f"cannot open {self._path}: {exc.strerror}") from exc
        try:
            self._lock(fd, root)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        _held.add(self._path)

    def _lock(self, fd: int, root: Path) -> None:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as exc:
            if exc.errno in _HELD_BY_OTHERS:
                raise StoreError(f"{root} is in use by another process{_holder(fd)}") from exc
            raise StoreError(f"cannot lock {self._path}: {exc.strerror}") from exc
        try:
            if os.pread(fd, len(_CONTENT) + 1, 0) != _CONTENT:
                os.pwrite(fd, _CONTENT, 0)
                os.fsync(fd)
        except OSError as exc:
            raise StoreError(f"cannot write {self._path}: {exc.strerror}") from exc

    def close(self) -> None:
        """Release the lock. The file stays; removing it would let two processes lock two files of the same name."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _held.discard(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _holder(fd: int) -> str:
    """Who holds the lock, if the system tells: a process on another machine or in another container has no pid here."""
    if sys.platform != "linux":
        return ""
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        kind, _, _, _, pid = _FLOCK.unpack(answer)
    except (OSError, struct.error):
        return ""
    return f" (pid {pid})" if kind != fcntl.F_UNLCK and pid > 0 else ""
