"""Upkeep: how queue entries and the index reach the disk, and the checkpoint that says how far they have come.

The thread that owns the store writes; the flush thread syncs. A round may have ten thousand queues to write, so it is
taken in parts, between which the owner goes on with its work.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyromq.errors import StoreError

from . import failpoints
from .flush import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from .checkpoint import Checkpoint
    from .config import StoreConfig
    from .consume_queue import ConsumeQueue
    from .disk import Disk
    from .flush import Flusher
    from .index import IndexFiles

_QUEUES_PER_STEP = 200
_DIRTY_LIMIT = 2 * PAGE  # a queue with more is written out at once
_INDEX_BATCH = 1024  # records whose keys are hashed together: the more, the cheaper each


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
        self._round: list[ConsumeQueue] = []
        self._last_thorough: float | None = None  # when the last thorough round began; None if one is overdue
        # While a thorough round is under way: the store time up to which it will bring everything to the disk.
        self._round_timestamp: int | None = None
        self._syncing: Future[None] | None = None

    def start(self, now: float) -> None:
        self._last_thorough = now

    def after_put(self, touched: Mapping[ConsumeQueue, object]) -> None:
        """New entries are in memory: write the queues that have many, and hash the keys that have come together."""
        self._dirty.update(touched)
        for queue in touched:
            if queue.dirty > _DIRTY_LIMIT:
                queue.write_out()
        if self._index is not None:
            self._index.drain(_INDEX_BATCH)

    def step(self, now: float, last_timestamp: int) -> None:
        """A part of the round that is under way, or the beginning of the next one.

        Every `queue_flush_thorough_interval` all queues and the index are written and synced; then the checkpoint moves
        on, to the store time that was the newest when the round began.
        """
        if not self._round and self._round_timestamp is None:
            self._begin(now, last_timestamp)
        part, self._round = self._round[:_QUEUES_PER_STEP], self._round[_QUEUES_PER_STEP:]
        try:
            self._write_out(part)
            if self._index is not None:
                self._index.drain()
            timestamp = self._round_timestamp
            if not self._round and timestamp is not None:
                paths = self._unsynced()
                self._round_timestamp = None
                self._syncing = self._flusher.run(lambda: self._sync(paths, timestamp))
        except (OSError, StoreError):
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Something was not written, so the checkpoint must not pass it: the round begins anew with the next step."""
        self._round = []
        if self._round_timestamp is not None:
            self._round_timestamp = None
            self._last_thorough = None

    def finish(self, last_timestamp: int) -> None:
        """Bring everything to the disk, wait for it, and save the checkpoint. StoreNotWritable if a sync failed."""
        self._write_out(list(self._dirty))
        paths = self._unsynced()
        self._flusher.run(lambda: self._sync(paths, last_timestamp)).result()

    def write_and_sync(self, queues: Iterable[ConsumeQueue]) -> None:
        """Write and sync `queues` here and now, before the flush thread runs."""
        queues = list(queues)
        self._write_out(queues)
        for path in dict.fromkeys(path for queue in queues for path in queue.take_unsynced()):
            self._sync_path(path)

    def _begin(self, now: float, last_timestamp: int) -> None:
        config = self._config
        busy = self._syncing is not None and not self._syncing.done()
        if self._last_thorough is not None and now < self._last_thorough:
            self._last_thorough = now  # the clock was set back
        thorough = not busy and (
            self._last_thorough is None or (now - self._last_thorough) * 1000 >= config.queue_flush_thorough_interval
        )
        if thorough:
            self._last_thorough = now
            self._round_timestamp = last_timestamp
        least = 1 if thorough else max(config.queue_flush_least_pages, 1) * PAGE
        self._round = [queue for queue in self._dirty if queue.dirty >= least]

    def _write_out(self, queues: Iterable[ConsumeQueue]) -> None:
        for queue in queues:
            queue.write_out()
            self._dirty.pop(queue, None)

    def _unsynced(self) -> list[Path]:
        """All files that were written and not synced since the last call, and folders in which files were made."""
        # The index first: if it cannot be written, nothing was taken from the queues.
        paths = [] if self._index is None else self._index.flush()
        paths += [path for queue in self._queues for path in queue.take_unsynced()]
        # Queues share the folders above them.
        return list(dict.fromkeys(paths))

    def _sync(self, paths: list[Path], timestamp: int) -> None:
        """In the flush thread, after a flush of the log: sync the files, then let the checkpoint say so."""
        for path in paths:
            self._sync_path(path)
        failpoints.hit("upkeep.synced")
        checkpoint = self._checkpoint
        checkpoint.physic = checkpoint.logics = timestamp
        if self._index is not None:
            checkpoint.index = timestamp
        checkpoint.save()

    def _sync_path(self, path: Path) -> None:
        try:
            if path.is_dir():
                self._disk.sync_folder(path)
                return
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # cleaned up meanwhile
            return
        try:
            self._disk.sync(fd)
        finally:
            os.close(fd)
