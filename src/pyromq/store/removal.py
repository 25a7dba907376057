"""Deletes files in the background: a gigabyte takes the file system a tenth of a second."""

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
    """Deletes files in a thread, in the order they were given up, with a pause after each.

    If one cannot be deleted, those after it wait, and `run` tries again. So after a restart the log has no
    holes, and whatever points to a file is deleted only once that is gone for good. All methods belong
    to one thread.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: deque[tuple[Path, float]] = deque()
        self._at_work = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many files remain."""
        return len(self._waiting)

    def add(self, paths: Iterable[Path], pause: float) -> None:
        """Give up files; after each, pause for `pause` seconds so that the disk can serve others."""
        self._waiting.extend((path, pause) for path in paths)

    def take(self, folder: Path) -> list[Path]:
        """Remove and return the files in or below `folder`; the caller deletes them."""
        with self._at_work:
            taken = [each for each in self._waiting if folder in each[0].parents]
            for each in taken:
                self._waiting.remove(each)
        return [path for path, _ in taken]

    def run(self) -> None:
        """Start the thread if there is work."""
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._work, name="remove", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Return once everything that can be deleted is gone."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Finish without pauses."""
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
                    # Sync before the next one: a power failure must not undo some deletions and leave holes.
                    with contextlib.suppress(FileNotFoundError):
                        self._disk.sync_folder(path.parent)
                except OSError as exc:
                    logger.error("%s not deleted: %s; trying again with the next clean-up", path, exc)
                    return
                self._waiting.popleft()
            self._closing.wait(pause)
