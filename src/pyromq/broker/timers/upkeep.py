"""Saves what timers need after a restart: their progress while they run, and RocketMQ's files at a stop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import StoreError

from ..staying import log_stays
from .delivered import NOTED_EVERY

if TYPE_CHECKING:
    from ..context import Context
    from .checkpoint import TimerCheckpoint, TimerProgress
    from .delivery import TimerService

logger = logging.getLogger(__name__)

_LAST_FLUSH = 10.0


class TimerUpkeep:
    """Saves the progress of `timers` every `timer_flush_interval`, if there was any.

    Delivered messages are on disk before the file says so. Otherwise a power failure could take the delivered copy, and
    the timer would count as done.
    """

    def __init__(self, context: Context, timers: TimerService, checkpoint: TimerCheckpoint) -> None:
        self._timers = timers
        self._store = context.store
        self._live = context.live
        self._clock = context.clock
        self._checkpoint = checkpoint
        self._noted = -NOTED_EVERY

    def load(self) -> None:
        """Let the timers continue where they were. StoreError if the file cannot be read."""
        self._timers.load(self._checkpoint.load())

    async def take_over(self, progress: TimerProgress) -> None:
        """Of a slave, which delivers nothing: keep how far its master is. OSError if it cannot be written."""
        if progress.queue_offset:  # or nobody ever sent one
            await asyncio.to_thread(self._checkpoint.save, progress, self._clock())

    async def run(self) -> None:
        """Save until cancelled. Failures are logged and tried again."""
        while True:
            await asyncio.sleep(self._live.config.timer_flush_interval / 1000)
            if not self._timers.dirty and not self._is_old():
                continue
            self._timers.dirty = False
            try:
                await self._save()
            except (OSError, StoreError) as exc:
                self._timers.dirty = True
                logger.error("%s not written: %s; trying again", self._checkpoint.path, exc)

    def _is_old(self) -> bool:
        """Whether so much log was written since that a start would have much to read."""
        return self._timers.queue.max_offset > 0 and self._store.log.end - self._noted >= NOTED_EVERY

    async def _save(self) -> None:
        progress = self._timers.progress()
        self._noted = int(self._store.log.end)
        await log_stays(self._store)
        await asyncio.to_thread(self._checkpoint.save, progress, self._clock())

    async def close(self) -> None:
        """Save the progress, and pending timers in RocketMQ's format. Nothing may be delivered any more."""
        progress = self._timers.progress()
        if not progress.queue_offset:
            return  # there never was a timer
        try:
            async with asyncio.timeout(_LAST_FLUSH):
                await log_stays(self._store)
            await asyncio.to_thread(self._write_all, progress)
        except (OSError, StoreError) as exc:  # TimeoutError is one
            logger.error("timers not saved: %s; some may be delivered again", exc)

    def _write_all(self, progress: TimerProgress) -> None:
        from .timer_log_files import write_timer_files  # needs numpy, which a start does not

        config = self._live.config
        now = self._clock()
        # First without the files, then with them: whenever this is interrupted, what is on disk is true.
        self._checkpoint.save(progress, now)
        log_end = write_timer_files(
            self._store.root,
            self._timers.queue,
            self._timers.waiting(),
            progress.queue_offset,
            now,
            precision=config.timer_step,
            roll_window=config.timer_roll_window,
            file_size=config.timer_log_file_size,
        )
        self._checkpoint.save(progress, now, log_end)
