"""The one event loop behind all blocking calls of this process, in a thread of its own.

It starts with the first call and ends with the interpreter. A forked child has no copy of the thread, so it gets a loop
of its own when it makes its first call; what it inherited raises StateError.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyromq.client import Client
from pyromq.errors import StateError
from pyromq.remoting import run

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Closable(Protocol):
    """What has a life on the loop."""

    async def close(self) -> None: ...


T = TypeVar("T")

THREAD_NAME = "pyromq.sync"
# The interpreter waits so long, in seconds, for what nobody closed to be closed.
_LAST_WORDS = 5.0
# A thread that waits sees Ctrl-C at once, or in rare cases so many seconds later.
_LOOK_UP = 0.5


class Portal:
    """An event loop in a daemon thread, and the way into it. Any thread may call, any number of them at once."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=THREAD_NAME, daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._stopping: asyncio.Event
        self._living: set[Closable] = set()
        self._inherited = False

    def wait(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run `coro` on the loop and wait for its end. It sees the context variables of the caller.

        Ctrl-C cancels it, waits until it has cleaned up, and goes on as KeyboardInterrupt; the second Ctrl-C does not
        wait. The loop and all other calls do not notice.
        """
        call = self._begin(coro)
        try:
            error = call.ended()
        except BaseException:  # not what the call raised: a signal handler raised it here while we waited
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call.cancel)
            call.ended()
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame, which would then refer to it
        return call.outcome.result()

    def start(self, coro: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `coro` on the loop and do not wait for it."""
        return self._begin(coro).outcome

    def remember(self, subject: Closable) -> None:
        """It runs: when the interpreter ends, close it, unless it is forgotten before."""
        self._living.add(subject)

    def forget(self, subject: Closable) -> None:
        """It was closed."""
        self._living.discard(subject)

    def stop(self) -> None:
        """Close what still runs, and end the loop, in bounded time."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_LAST_WORDS + 1.0)

    def disown(self) -> None:
        """This process is a child of the one that the loop runs in."""
        self._inherited = True

    def _begin(self, coro: Coroutine[Any, Any, T]) -> _Call[T]:
        call = _Call(coro)
        try:
            if self._inherited:
                raise StateError("this belongs to the parent process; make a new one in this process")
            self._loop.call_soon_threadsafe(call.begin)
        except RuntimeError:
            coro.close()
            raise StateError("the event loop of pyromq.sync has ended with the interpreter") from None
        except StateError:
            coro.close()
            raise
        return call

    def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            run(self._serve(started))
        except BaseException as exc:
            if started.done():
                raise
            started.set_exception(exc)  # no more file descriptors, say: the caller hears of it

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._stopping = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                for last in (False, True):  # a client after those who use it
                    closing = [
                        subject.close() for subject in tuple(self._living) if isinstance(subject, Client) is last
                    ]
                    await asyncio.gather(*closing, return_exceptions=True)


class _Call(Generic[T]):
    """One coroutine on its way through the portal. `outcome` is set once it has really ended, also when cancelled."""

    __slots__ = ("_coro", "_task", "outcome")

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self._coro = coro
        self._task: asyncio.Task[T]
        self.outcome: Future[T] = Future()

    def ended(self) -> BaseException | None:
        """Wait for the end. Raises nothing but what a signal handler raises in this thread."""
        while True:
            # A signal that arrives right before a thread goes to sleep does not wake it. Hence not for ever.
            with contextlib.suppress(TimeoutError):
                return self.outcome.exception(_LOOK_UP)

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coro)
        self._task.add_done_callback(self._note)

    def cancel(self) -> None:
        self._task.cancel()

    def _note(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


async def handed_over(coro: Coroutine[Any, Any, asyncio.Future[T]]) -> Future[T]:
    """The future that `coro` gives, as one for threads. Cancelling it cancels the other."""
    loop = asyncio.get_running_loop()
    source = await coro
    future: Future[T] = Future()

    def ended(source: asyncio.Future[T]) -> None:
        if source.cancelled():
            future.cancel()
        error = None if source.cancelled() else source.exception()
        if not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(source.result())
        else:
            future.set_exception(error)

    def cancelled(future: Future[T]) -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(source.cancel)

    source.add_done_callback(ended)
    future.add_done_callback(cancelled)
    return future


_portal: Portal | None = None
_lock = threading.Lock()
# A loop that is collected closes the file descriptors that it shares with the parent's: a child keeps what it inherits.
_inherited: list[Portal] = []


def portal(caller: str, instead: str) -> Portal:
    """The way into the loop. StateError in a thread that runs an event loop, which `caller` would block."""
    if asyncio._get_running_loop() is not None:
        raise StateError(f"{caller} would block the event loop that runs in this thread; use {instead} there")
    global _portal
    if _portal is None:
        with _lock:
            if _portal is None:
                _portal = Portal()
    return _portal


def _forked() -> None:
    global _portal, _lock
    _lock = threading.Lock()  # somebody may have held it
    if _portal is not None:
        _portal.disown()
        _inherited.append(_portal)
        _portal = None


def _exit() -> None:
    if _portal is not None:
        _portal.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_exit)
