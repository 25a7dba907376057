"""Deleting files without holding anybody up: a gigabyte takes the file system a tenth of a second."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from . import failpoints

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .disk import Disk

logger = logging.getLogger(__name__)


class Removal:
    """Deletes files in a thread, in the order in which they were given up, each with its own pause after it.

    Where one cannot be deleted, those behind it wait, and `run` tries again. So after a restart the log is what is
    there, without holes, and whatever pointed to a file is deleted only when that is gone for good. All methods belong
    to one thread.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: deque[tuple[Path, float]] = deque()
        self._at_work = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many files are still there."""
        return len(self._waiting)

    def add(self, paths: Iterable[Path], pause: float) -> None:
        """Give up files; `pause` seconds pass after each of them, for the disk to serve others."""
        self._waiting.extend((path, pause) for path in paths)

    def take(self, folder: Path) -> list[Path]:
        """Those of the files that lie in `folder` or below it. From now on they are the caller's to delete."""
        with self._at_work:
            taken = [each for each in self._waiting if folder in each[0].parents]
            for each in taken:
                self._waiting.remove(each)
        return [path for path, _ in taken]

    def run(self) -> None:
        """See that the thread is at work, if there is some."""
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._work, name="remove", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Return once everything that can be deleted is."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Make an end, without pauses."""
        self._closing.set()
        self.run()
        self.wait()

    def _work(self) -> None:
        while True:
            with self._at_work:
                if not self._waiting:
                    return
                path, pause = self._waiting[0]
                try:
                    self._disk.delete(path)
                    failpoints.hit("clean.deleted")
                    # For good, before the next one goes: a power failure must not undo some of it and leave holes.
                    with contextlib.suppress(FileNotFoundError):
                        self._disk.sync_folder(path.parent)
                except OSError as exc:
                    logger.error("%s not deleted: %s; trying again with the next clean-up", path, exc)
                    return
                self._waiting.popleft()
            self._closing.wait(pause)
