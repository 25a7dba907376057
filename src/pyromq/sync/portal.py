"""The one event loop behind all blocking calls of this process, in its own thread.

It starts with the first call and ends with the interpreter. A forked child has no copy of the thread, so its first call
starts a new loop; objects it inherited raise StateError.
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
    """Something that runs on the loop until closed."""

    async def close(self) -> None: ...


T = TypeVar("T")

THREAD_NAME = "pyromq.sync"
# Seconds the interpreter waits at exit to close what was left open.
_LAST_WORDS = 5.0
# A waiting thread sees Ctrl-C at once, or in rare cases this many seconds later.
_LOOK_UP = 0.5


class Portal:
    """An event loop in a daemon thread, and the way into it. Any number of threads may call at once."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=THREAD_NAME, daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._stopping: asyncio.Event
        self._living: set[Closable] = set()
        self._inherited = False

    def wait(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run `coro` on the loop and wait for it. It sees the caller's context variables.

        Ctrl-C cancels it, waits for its clean-up and raises KeyboardInterrupt; a second Ctrl-C does not wait. The loop
        and all other calls are not affected.
        """
        call = self._begin(coro)
        try:
            error = call.ended()
        except BaseException:  # not from the call: a signal handler raised it here while we waited
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
        """Run `coro` on the loop without waiting for it."""
        return self._begin(coro).outcome

    def remember(self, subject: Closable) -> None:
        """Remember something that runs, to close it at exit unless it is forgotten before."""
        self._living.add(subject)

    def forget(self, subject: Closable) -> None:
        """It was closed."""
        self._living.discard(subject)

    def stop(self) -> None:
        """Close everything still running and end the loop, in bounded time."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_LAST_WORDS + 1.0)

    def disown(self) -> None:
        """This process is a fork of the one that runs the loop."""
        self._inherited = True

    def _begin(self, coro: Coroutine[Any, Any, T]) -> _Call[T]:
        call = _Call(coro)
        try:
            if self._inherited:
                raise StateError("this belongs to the parent process; make a new one in this process")
            self._loop.call_soon_threadsafe(call.begin)
        except RuntimeError:
            coro.close()
            raise StateError("the event loop of pyromq.sync ended with the interpreter") from None
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
            started.set_exception(exc)  # out of file descriptors, for example: the caller gets the error

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._stopping = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                for last in (False, True):  # a client after its members
                    closing = [
                        subject.close() for subject in tuple(self._living) if isinstance(subject, Client) is last
                    ]
                    await asyncio.gather(*closing, return_exceptions=True)


class _Call(Generic[T]):
    """One coroutine on its way through the portal. `outcome` is set once it has really ended, even if cancelled."""

    __slots__ = ("_coro", "_task", "outcome")

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self._coro = coro
        self._task: asyncio.Task[T]
        self.outcome: Future[T] = Future()

    def ended(self) -> BaseException | None:
        """Wait for the end. Raises only what a signal handler raises in this thread."""
        while True:
            # A signal that arrives just before a thread goes to sleep does not wake it, so never wait forever.
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
    """The future that `coro` returns, as one for threads. Cancelling it cancels the other."""
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
# A collected loop would close file descriptors that it shares with the parent's: a child keeps what it inherits.
_inherited: list[Portal] = []


def portal(caller: str, instead: str) -> Portal:
    """The portal of this process. StateError in a thread with a running event loop, which `caller` would block."""
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
    _lock = threading.Lock()  # another thread may have held it
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
