"""Work that takes longer than a page: it goes on in the background, counts, and keeps a result for each row."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, TooManyRequests

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable

    from .database import Database

logger = logging.getLogger(__name__)

_AT_ONCE = 8
_KEPT = 500
_SAVE_EVERY = 0.5


class State(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RowResult:
    """What became of one row of a job."""

    name: str
    outcome: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """`total` is None while it is not known. `error` says why it ended early."""

    id: int
    kind: str
    what: str
    cluster: str
    user: str
    began: float
    ended: float | None
    state: State
    total: int | None
    done: int
    failed: int
    error: str | None = None

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.state is State.DONE:
            return 1.0
        return min(1.0, self.done / self.total) if self.total else 0.0


class Jobs:
    """Runs jobs until `close`. Those that a stop interrupted are listed as such at the next start."""

    def __init__(
        self,
        database: Database,
        changed: Callable[[Job], None] = lambda job: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._changed = changed
        self._clock = clock
        self._running: dict[int, Job] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        database.run_now(
            lambda db: db.execute("UPDATE jobs SET state = ? WHERE state = ?", (State.INTERRUPTED, State.RUNNING))
        )

    async def start(
        self,
        kind: str,
        what: str,
        work: Callable[[int], AsyncGenerator[RowResult, None]],
        *,
        user: str,
        cluster: str,
        total: int | None = None,
    ) -> Job:
        """Begin to work. `work` is called with the job's number. Raises TooManyRequests if too many are running."""
        if len(self._tasks) >= _AT_ONCE:
            raise TooManyRequests(f"{_AT_ONCE} jobs are running already; wait until one has ended")
        draft = Job(0, kind, what, cluster, user, self._clock(), None, State.RUNNING, total, 0, 0)
        job = replace(draft, id=await self._database.run(lambda db: _insert(db, draft)))
        self._running[job.id] = job
        self._tasks[job.id] = asyncio.create_task(self._run(job.id, work(job.id)), name=f"job {job.id}")
        self._changed(job)
        return job

    async def _run(self, number: int, work: AsyncGenerator[RowResult, None]) -> None:
        rows: list[RowResult] = []
        saved = self._clock()
        state, error = State.DONE, None
        try:
            async with aclosing(work) as results:
                async for row in results:
                    rows.append(row)
                    job = self._running[number]
                    self._running[number] = replace(job, done=job.done + 1, failed=job.failed + row.failed)
                    if self._clock() - saved >= _SAVE_EVERY:
                        saved = self._clock()
                        await self._save(self._running[number], rows)
        except PyroMQError as exc:
            state, error = State.FAILED, str(exc)
        except asyncio.CancelledError:
            state = State.STOPPED
        except Exception as exc:  # it must not stay "running" for ever
            logger.exception("job %d failed", number)
            state, error = State.FAILED, f"{type(exc).__name__}: {exc}"
        # It counts as running until its rows can be read.
        ended = replace(self._running[number], state=state, error=error, ended=self._clock())
        await asyncio.shield(self._save(ended, rows))
        del self._running[number], self._tasks[number]

    async def _save(self, job: Job, rows: list[RowResult]) -> None:
        number, first = job.id, job.done - len(rows)
        written = [(number, first + index, row.name, row.outcome, row.failed) for index, row in enumerate(rows)]
        rows.clear()

        def write(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE jobs SET ended = ?, state = ?, total = ?, done = ?, failed = ?, error = ? WHERE id = ?",
                (job.ended, job.state, job.total, job.done, job.failed, job.error, number),
            )
            db.executemany("INSERT OR REPLACE INTO job_rows VALUES (?, ?, ?, ?, ?)", written)

        await self._database.run(write)
        self._changed(job)

    def is_running(self, number: int) -> bool:
        return number in self._tasks

    def stop(self, number: int) -> bool:
        """End a job early; what it did stays done. False if it is not running."""
        task = self._tasks.get(number)
        return task is not None and task.cancel()

    async def all(self, limit: int = 100) -> list[Job]:
        """Newest first."""
        rows = await self._database.run(
            lambda db: db.execute(f"{_SELECT} ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
        )
        return [self._running.get(row[0]) or _job(row) for row in rows]

    async def get(self, number: int) -> Job | None:
        if number in self._running:
            return self._running[number]
        row = await self._database.run(lambda db: db.execute(f"{_SELECT} WHERE id = ?", (number,)).fetchone())
        return _job(row) if row else None

    async def rows(
        self, number: int, *, failed_only: bool = False, after: int = -1, limit: int = 200
    ) -> list[RowResult]:
        found = await self._database.run(
            lambda db: db.execute(
                "SELECT name, outcome, failed FROM job_rows WHERE job = ? AND number > ? AND failed >= ? "
                "ORDER BY number LIMIT ?",
                (number, after, int(failed_only), limit),
            ).fetchall()
        )
        return [RowResult(name, outcome, bool(failed)) for name, outcome, failed in found]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


_SELECT = "SELECT id, kind, what, cluster, user, began, ended, state, total, done, failed, error FROM jobs"


def _insert(db: sqlite3.Connection, job: Job) -> int:
    cursor = db.execute(
        "INSERT INTO jobs (kind, what, cluster, user, began, state, total, done, failed) VALUES (?,?,?,?,?,?,?,0,0)",
        (job.kind, job.what, job.cluster, job.user, job.began, job.state, job.total),
    )
    number = cursor.lastrowid or 0
    db.execute("DELETE FROM job_rows WHERE job <= ?", (number - _KEPT,))
    db.execute("DELETE FROM jobs WHERE id <= ?", (number - _KEPT,))
    return number


def _job(row: tuple[int, str, str, str, str, float, float | None, str, int | None, int, int, str | None]) -> Job:
    return Job(*row[:7], State(row[7]), *row[8:])
