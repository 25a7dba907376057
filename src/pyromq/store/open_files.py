"""A cache of descriptors for many small files."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .disk import Disk

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class OpenFiles:
    """Descriptors of queue files, opened on demand; the least recently used are closed first.

    When the process runs out of descriptors, half of those kept here are closed and the call is retried.
    """

    def __init__(self, disk: Disk, limit: int = 256) -> None:
        self.disk = disk
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: Path | str) -> int:
        """A descriptor of the file at `path`: use it at once, do not keep it. OSError if it cannot be opened."""
        name = os.fspath(path)
        fd = self._open.get(name)
        if fd is not None:
            self._open.move_to_end(name)
            return fd
        return self._keep(name, lambda: os.open(name, os.O_RDWR | os.O_CLOEXEC))

    def create(self, path: Path, size: int) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sparse: ten thousand queues of six megabytes must not take sixty gigabytes.
        return self._keep(os.fspath(path), lambda: self.disk.create(path, size, reserve=False))

    def forget(self, path: Path) -> None:
        """Close the descriptor of `path`, if any: the file is about to be deleted."""
        fd = self._open.pop(os.fspath(path), None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        self._close_down_to(0)

    def _keep(self, name: str, opened: Callable[[], int]) -> int:
        try:
            fd = opened()
        except OSError as exc:
            if exc.errno not in _NO_DESCRIPTORS or not self._open:
                raise
            self._close_down_to(len(self._open) // 2)
            fd = opened()
        self._open[name] = fd
        self._close_down_to(self._limit)
        return fd

    def _close_down_to(self, count: int) -> None:
        while len(self._open) > count:
            os.close(self._open.popitem(last=False)[1])
