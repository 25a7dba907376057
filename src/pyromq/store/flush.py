"""Flushing: brings the log to disk, and answers those who wait for it.

One thread syncs the log; the thread that appends never does. One fsync serves all who wait, and while it
runs the next ones gather: the slower the disk, the more messages share one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyromq.errors import StoreNotWritable

from . import failpoints
from .config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .commit_log import CommitLog
    from .config import StoreConfig

logger = logging.getLogger(__name__)

PAGE = 4096


def flush_is_due(dirty: int, least_pages: int, since_thorough: float, thorough_interval: float) -> bool:
    """Whether an asynchronous flush should run now: enough dirty pages, or too long since the last one."""
    if dirty <= 0:
        return False
    return dirty // PAGE >= least_pages or since_thorough >= thorough_interval


class Flusher:
    """Flushes the commit log.

    `flushed` is the offset up to which the log survives a power failure. When fsync fails, what the disk holds is
    unknown and stays so: `error` is set for good, every waiter gets it, and the store must take no more messages.
    """

    def __init__(self, log: CommitLog, config: StoreConfig, on_flushed: Callable[[], None] | None = None) -> None:
        self._log = log
        self._config = config
        self._on_flushed = on_flushed
        self._sync = config.flush is FlushDiskType.SYNC_FLUSH
        self._wake = threading.Condition()
        self._waiters: deque[tuple[int, Future[None]]] = deque()
        # Ten thousand queues take a while to sync. Waiters for the log must not wait for them.
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._flushing = threading.Lock()
        self._stopping = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self.flushed = int(log.end)
        self.syncs = 0
        self.error: Exception | None = None

    def start(self) -> None:
        self.flushed = int(self._log.end)
        self._thread.start()

    def stop(self) -> None:
        """Flush the rest, finish the jobs, and end the threads."""
        self._jobs.shutdown(wait=True)
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def wait_for(self, end: int) -> Future[None]:
        """A future that is done once the log up to `end` is on disk; StoreNotWritable if that failed."""
        future: Future[None] = Future()
        if self.error is not None:
            future.set_exception(self._failure())
        elif end <= self.flushed:
            future.set_result(None)
        else:
            with self._wake:
                if self._stopped:
                    future.set_exception(StoreNotWritable("the store was closed"))
                else:
                    self._waiters.append((end, future))
                    self._wake.notify()
        return future

    @contextlib.contextmanager
    def cutting(self) -> Iterator[None]:
        """While entered, nothing is flushed and the log may be cut. What is cut off no longer counts as flushed."""
        with self._flushing:
            yield
            self.flushed = min(self.flushed, int(self._log.end))

    def wake(self) -> None:
        """Something was written; under SYNC_FLUSH that is reason enough to flush."""
        if self._sync:
            with self._wake:
                self._wake.notify()

    def run(self, job: Callable[[], None]) -> Future[None]:
        """Run `job`, which syncs other files, in another thread, once the current log is on disk.

        Jobs run one after the other. An error in one counts as a failed flush.
        """
        flushed = self.wait_for(int(self._log.end))

        def work() -> None:
            flushed.result()
            try:
                job()
            except Exception as exc:
                self._fail(exc)
                raise self._failure() from exc

        try:
            return self._jobs.submit(work)
        except RuntimeError:
            future: Future[None] = Future()
            future.set_exception(StoreNotWritable("the store was closed"))
            return future

    def _run(self) -> None:
        config = self._config
        last_thorough = time.monotonic()
        while True:
            with self._wake:
                if not self._waiters and not self._stopping:
                    self._wake.wait(0.01 if self._sync else config.flush_interval / 1000)
                waiters, self._waiters = self._waiters, deque()
                stopping = self._stopping
            dirty = self._log.end - self.flushed
            since = (time.monotonic() - last_thorough) * 1000
            due = flush_is_due(dirty, config.flush_least_pages, since, config.flush_thorough_interval)
            if self.error is None and (waiters or stopping or due or (self._sync and dirty)):
                self._flush()
                last_thorough = time.monotonic()
            self._answer(waiters)
            with self._wake:
                if stopping and not self._waiters:
                    self._stopped = True
                    return

    def _flush(self) -> None:
        with self._flushing:
            self._sync_log()

    def _sync_log(self) -> None:
        # Take the end first: whatever is written during the sync belongs to the next flush.
        end = int(self._log.end)
        try:
            for segment in self._log.segments:
                if segment.end > self.flushed and segment.start <= end:
                    failpoints.hit("flush.before")
                    segment.sync()
                    failpoints.hit("flush.after")
                    self.syncs += 1
            self.flushed = end
            if self._on_flushed is not None:
                self._on_flushed()
        except Exception as exc:
            # Any error ends here: it goes to all who wait, now and later.
            self._fail(exc)

    def _answer(self, waiters: deque[tuple[int, Future[None]]]) -> None:
        for end, future in waiters:
            if not future.set_running_or_notify_cancel():
                continue
            if self.error is not None:
                future.set_exception(self._failure())
            elif end <= self.flushed:
                future.set_result(None)
            else:
                future.set_exception(StoreNotWritable(f"the commit log ends at {self.flushed}, before {end}"))

    def _fail(self, exc: Exception) -> None:
        logger.critical(
            "flush failed: %s; the store takes no more messages; restart it on a healthy disk",
            exc,
            exc_info=None if isinstance(exc, OSError) else exc,
        )
        self.error = exc

    def _failure(self) -> StoreNotWritable:
        return StoreNotWritable(f"a flush failed: {self.error}; what the disk holds is unknown until a restart")
