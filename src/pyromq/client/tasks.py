"""Background tasks that survive errors: a client's tasks must not end by accident.

An exception is logged and the task restarts a second later. The same happens if someone other than its owner cancels
it: frameworks and tests that cancel "all tasks" do not know ours, and a client without its heartbeat would fail only
much later, far from the cause.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from pyromq.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Also after a foreign cancellation: a closing loop cancels everything and must not find it alive again.
RESTART_AFTER = 1.0


class Supervised:
    """A task that restarts whenever it fails, until it is cancelled here or returns."""

    def __init__(self, name: str, coro_fn: Callable[[], Coroutine[Any, Any, None]], owner: Tasks) -> None:
        self.name = name
        self._coro_fn = coro_fn
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._restart: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.cancelled = False
        self._start()

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The running task; None if it has ended or is about to restart."""
        return self._task

    @property
    def done(self) -> bool:
        """Whether it ended for good."""
        return self._task is None and self._restart is None

    def cancel(self) -> None:
        """End it for good, without waiting for it."""
        self.cancelled = True
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
            self._owner.forget(self)
        if self._task is not None:
            self._task.cancel()

    async def stop(self, timeout: float = 5.0) -> None:
        """End it for good and wait until it has, at most `timeout` seconds."""
        task = self._task
        self.cancel()
        if task is not None and task is not asyncio.current_task():
            await _wait_for([task], timeout)

    def _start(self) -> None:
        self._restart = None
        self._task = self._loop.create_task(self._coro_fn(), name=self.name)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if self.cancelled or (error is None and not task.cancelled()):
            if error is not None:
                logger.error("%s failed while it was being stopped", self.name, exc_info=error)
            self._owner.forget(self)
            return
        if error is None:
            logger.warning("%s was cancelled from outside; restarting it in %g s", self.name, RESTART_AFTER)
        else:
            logger.error("%s failed; restarting it in %g s", self.name, RESTART_AFTER, exc_info=error)
        self._restart = self._loop.call_later(RESTART_AFTER, self._start)


class Periodic:
    """Something done periodically; an error is logged and does not affect the next round."""

    def __init__(
        self,
        name: str,
        first: float,
        period: float | Callable[[], float],
        fn: Callable[[], Awaitable[None]],
        owner: Tasks,
    ) -> None:
        self.name = name
        self._delay = first
        self._period = period
        self._fn = fn
        self._woken = asyncio.Event()
        self._runner = Supervised(name, self._run, owner)

    def wake(self) -> None:
        """Do it now; if it is running, once more right after."""
        self._woken.set()

    def cancel(self) -> None:
        self._runner.cancel()

    async def stop(self, timeout: float = 5.0) -> None:
        """Cancel it and wait until it has ended, at most `timeout` seconds."""
        await self._runner.stop(timeout)

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The running task; None if it has ended or is about to restart."""
        return self._runner.task

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._delay):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            # Cancelling the work in the middle restarts it instead of skipping a round.
            self._delay = 0.0
            try:
                await self._fn()
            except Exception:  # a background error ends here; the next round may do better
                logger.exception("%s failed; trying again later", self.name)
            self._delay = self._period() if callable(self._period) else self._period


class Tasks:
    """All background tasks of one owner. `close` ends every one of them.

    Belongs to one event loop; construction needs none.
    """

    def __init__(self, name: str = "client") -> None:
        self._name = name
        self._supervised: set[Supervised] = set()
        self._single: set[asyncio.Task[Any]] = set()
        self._closed = False

    def spawn(self, name: str, coro_fn: Callable[[], Coroutine[Any, Any, None]]) -> Supervised:
        """Run `coro_fn()` until it returns, restarting it whenever it fails; see the module."""
        self._check_open()
        supervised = Supervised(f"{self._name} {name}", coro_fn, self)
        self._supervised.add(supervised)
        return supervised

    def every(
        self, name: str, first: float, period: float | Callable[[], float], fn: Callable[[], Awaitable[None]]
    ) -> Periodic:
        """Await `fn()` after `first` seconds, then `period` seconds after each end, or when woken."""
        self._check_open()
        periodic = Periodic(f"{self._name} {name}", first, period, fn, self)
        self._supervised.add(periodic._runner)
        return periodic

    def once(self, coro: Coroutine[Any, Any, T], name: str, *, log: bool = True) -> asyncio.Task[T]:
        """Run `coro` in a task that is held until it ends. Its error is logged, unless reported elsewhere."""
        if self._closed:
            coro.close()
            self._check_open()
        task = asyncio.get_running_loop().create_task(coro, name=f"{self._name} {name}")
        self._single.add(task)
        task.add_done_callback(self._logged if log else self._held)
        return task

    def forget(self, supervised: Supervised) -> None:
        """It has ended for good."""
        self._supervised.discard(supervised)

    async def close(self, timeout: float = 5.0) -> None:
        """Cancel everything and wait until it has ended, at most `timeout` seconds.

        May be called by one of the tasks: it alone is not cancelled.
        """
        self._closed = True
        waited: list[asyncio.Task[Any]] = []
        current = asyncio.current_task()
        for supervised in tuple(self._supervised):
            task = supervised.task
            if task is not None and task is current:
                supervised.cancelled = True
                continue
            supervised.cancel()
            if task is not None:
                waited.append(task)
        for single in tuple(self._single):
            if single is not current:
                single.cancel()
                waited.append(single)
        late = await _wait_for(waited, timeout)
        if late:
            logger.error("still running %g s after being cancelled: %s", timeout, ", ".join(t.get_name() for t in late))

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(f"{self._name} was closed")

    def _held(self, task: asyncio.Task[Any]) -> None:
        self._single.discard(task)
        if not task.cancelled():
            task.exception()

    def _logged(self, task: asyncio.Task[Any]) -> None:
        self._single.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)


async def _wait_for(tasks: Iterable[asyncio.Task[Any]], timeout: float) -> set[asyncio.Task[Any]]:
    """Wait for `tasks` to end; returns those that did not in time."""
    running = [task for task in tasks if not task.done()]
    if not running:
        return set()
    _, late = await asyncio.wait(running, timeout=timeout)
    return late
