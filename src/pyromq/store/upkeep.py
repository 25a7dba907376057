"""Upkeep: brings queue entries and the index to disk, and advances the checkpoint.

The thread that owns the store writes; another syncs. A round may have ten thousand queues to write, so it is
done in parts, between which the owner continues its work.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import StoreError

from . import failpoints
from .flush import PAGE
from .index.index import BATCH as INDEX_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from .config import StoreConfig
    from .disk import Disk
    from .flush import Flusher
    from .index.index import IndexFiles
    from .metadata.checkpoint import Checkpoint
    from .queues.consume_queue import ConsumeQueue

_QUEUES_PER_STEP = 200
_STEP = 0.004  # seconds; creating a file takes longer than two hundred writes
# The system syncs files together if asked together: 1,500 files and folders of 500 new
# queues took 1.6 s one by one, and 0.16 s by sixteen threads.
_MANY = 32
_TOGETHER = 16
# From here on it is better to sync the whole file system: 45,000 files of 15,000 new queues took 5.3 s before.
_VERY_MANY = 2000
_DIRTY_LIMIT = 2 * PAGE  # a queue with more dirty bytes is written out at once


class Mark(NamedTuple):
    """A position in the log."""

    store_time: int  # of its newest message
    log_end: int


class Upkeep:
    """Every method but `_sync` belongs to the thread that owns the store.

    OSError: the disk did not take it; StoreError: the index cannot be read back. Either way nothing is lost, and the
    next step tries again.
    """

    def __init__(
        self,
        queues: Iterable[ConsumeQueue],
        index: IndexFiles | None,
        checkpoint: Checkpoint,
        flusher: Flusher,
        disk: Disk,
        config: StoreConfig,
    ) -> None:
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._flusher = flusher
        self._disk = disk
        self._config = config
        self._dirty: dict[ConsumeQueue, object] = {}
        self._round: deque[ConsumeQueue] = deque()
        # Queues that a thorough round has yet to ask what to sync, once all are written; and the paths so far.
        self._unasked: deque[ConsumeQueue] | None = None
        self._paths: list[Path] = []
        self._last_round = 0.0
        self._last_thorough: float | None = None  # when the last thorough round began; None if one is overdue
        # During a thorough round: up to where everything will be on disk.
        self._round_mark: Mark | None = None
        self._syncing: Future[None] | None = None
        # Where the log ended when the last thorough round began: all earlier records have entries on disk.
        self.synced_end = 0

    def start(self, now: float, log_end: int) -> None:
        """Everything is on disk, up to the end of the log."""
        self._last_round = self._last_thorough = now
        self.synced_end = log_end

    def hurry(self) -> None:
        """Make the next round a thorough one, whatever the time."""
        self._last_thorough = None

    def after_put(self, touched: Mapping[ConsumeQueue, object]) -> None:
        """New entries are in memory: write queues that have many, and hash the collected keys."""
        self._dirty.update(touched)
        for queue in touched:
            if queue.dirty > _DIRTY_LIMIT:
                queue.write_out()
        if self._index is not None:
            self._index.drain(INDEX_BATCH)

    def step(self, now: float, mark: Mark) -> None:
        """Do part of the current round, or begin the next one.

        Every `queue_flush_thorough_interval` all queues and the index are written and synced; then the checkpoint
        advances to `mark`, where the log ended when the round began.
        """
        if not self._round and self._round_mark is None:
            self._begin(now, mark)
        until = time.perf_counter() + _STEP
        try:
            for _ in range(min(_QUEUES_PER_STEP, len(self._round))):
                self._write_out([self._round.popleft()])
                if time.perf_counter() > until:
                    break
            if self._index is not None:
                self._index.drain()
            reached = self._round_mark
            if not self._round and reached is not None and self._all_asked(until):
                paths = self._take_paths()
                self._round_mark = None
                self._syncing = self._flusher.run(lambda: self._sync(paths, reached))
        except (OSError, StoreError):
            self._give_up()
            raise

    def _all_asked(self, until: float) -> bool:
        """Ask queues what to sync, for as long as there is time."""
        if self._unasked is None:
            # The index first: if it cannot be written, nothing was taken from the queues.
            self._paths += [] if self._index is None else self._index.flush()
            self._unasked = deque(self._queues)
        while self._unasked:
            for _ in range(min(_QUEUES_PER_STEP, len(self._unasked))):
                self._paths += self._unasked.popleft().take_unsynced()
            if time.perf_counter() > until:
                break
        return not self._unasked

    def _take_paths(self) -> list[Path]:
        """The paths to sync; queues share the folders above them."""
        paths, self._paths, self._unasked = list(dict.fromkeys(self._paths)), [], None
        return paths

    def _give_up(self) -> None:
        """Something was not written, so the checkpoint must not advance: start the round over with the next step."""
        self._round.clear()
        self._unasked = None
        if self._round_mark is not None:
            self._round_mark = None
            self._last_thorough = None

    def finish(self, mark: Mark) -> None:
        """Bring everything to disk, wait for it, and save the checkpoint. StoreNotWritable if a sync failed."""
        self._write_out(list(self._dirty))
        self._unasked = None
        self._all_asked(math.inf)
        paths = self._take_paths()
        self._flusher.run(lambda: self._sync(paths, mark)).result()

    def write_and_sync(self, queues: Iterable[ConsumeQueue]) -> None:
        """Write and sync `queues` here and now."""
        queues = list(queues)
        self._write_out(queues)
        for path in dict.fromkeys(path for queue in queues for path in queue.take_unsynced()):
            self._sync_path(path)

    def _begin(self, now: float, mark: Mark) -> None:
        config = self._config
        busy = self._syncing is not None and not self._syncing.done()
        if now < self._last_round:  # the clock was set back
            self._last_round = now
            self._last_thorough = None if self._last_thorough is None else now
        thorough = not busy and (
            self._last_thorough is None or (now - self._last_thorough) * 1000 >= config.queue_flush_thorough_interval
        )
        if not thorough and (now - self._last_round) * 1000 < config.queue_flush_interval:
            return
        self._last_round = now
        if thorough:
            self._last_thorough = now
            self._round_mark = mark
        least = 1 if thorough else max(config.queue_flush_least_pages, 1) * PAGE
        self._round = deque(queue for queue in self._dirty if queue.dirty >= least)

    def _write_out(self, queues: Iterable[ConsumeQueue]) -> None:
        for queue in queues:
            queue.write_out()
            self._dirty.pop(queue, None)

    def _sync(self, paths: list[Path], mark: Mark) -> None:
        """In another thread, after a flush of the log: sync the files, then save the checkpoint."""
        self._sync_all(paths)
        failpoints.hit("upkeep.synced")
        self.synced_end = mark.log_end
        checkpoint = self._checkpoint
        checkpoint.physic = checkpoint.logics = mark.store_time
        if self._index is not None:
            checkpoint.index = mark.store_time
        checkpoint.save()

    def _sync_all(self, paths: list[Path]) -> None:
        if len(paths) < _MANY:
            for path in paths:
                self._sync_path(path)
            return
        if len(paths) > _VERY_MANY and self._disk.sync_file_system(Path(self._config.root)):
            return
        folders = {path for path in paths if path.is_dir()}
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="sync queues") as threads:
            # A name must not reach the disk before its file; and any error is raised here.
            for wave in ([path for path in paths if path not in folders], folders):
                for _ in threads.map(self._sync_path, wave):
                    pass

    def _sync_path(self, path: Path) -> None:
        try:
            if path.is_dir():
                self._disk.sync_folder(path)
                return
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # deleted meanwhile
            return
        try:
            self._disk.sync(fd)
        finally:
            os.close(fd)
