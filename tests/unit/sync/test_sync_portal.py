"""The thread with the event loop: calls go through it from anywhere, and come back whatever happens."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import signal
import threading

import pytest

from pyromq.errors import StateError
from pyromq.sync.portal import THREAD_NAME, Portal, handed_over, portal

PATIENCE = 30.0


@pytest.fixture
def through():
    return portal("a test", "nothing")


def test_a_call_gives_what_the_coroutine_gives(through):
    async def answer():
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert through.wait(answer()) == THREAD_NAME


def test_a_call_raises_what_the_coroutine_raises(through):
    async def fail():
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        through.wait(fail())


def test_there_is_one_loop_for_all_threads():
    def look():
        async def loop():
            return asyncio.get_running_loop()

        return portal("a test", "nothing").wait(loop())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        loops = {future.result() for future in [pool.submit(look) for _ in range(32)]}
    assert len(loops) == 1
    assert [thread.name for thread in threading.enumerate()].count(THREAD_NAME) == 1


def test_a_call_sees_the_context_of_its_caller(through):
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("mine")

    async def look():
        return variable.get()

    assert through.wait(look()) == "mine"


async def test_a_thread_with_a_running_loop_is_turned_away():
    with pytest.raises(StateError, match=r"^Producer\.send would block the event loop .* use the async one there$"):
        portal("Producer.send", "the async one")


def test_ctrl_c_cancels_the_call_and_waits_until_it_has_cleaned_up(through):
    cleaned_up = []

    async def last_for_ever():
        signalled = threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT))
        signalled.start()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            cleaned_up.append(threading.current_thread().name)

    async def alive():
        return True

    with pytest.raises(KeyboardInterrupt):
        through.wait(last_for_ever())
    assert cleaned_up == [THREAD_NAME]
    assert through.wait(alive())


def test_a_future_of_the_loop_becomes_one_for_threads(through):
    async def given(outcome):
        future = asyncio.get_running_loop().create_future()
        set_outcome = future.set_exception if isinstance(outcome, Exception) else future.set_result
        asyncio.get_running_loop().call_soon(set_outcome, outcome)
        return future

    assert through.wait(handed_over(given(42))).result(PATIENCE) == 42
    with pytest.raises(LookupError):
        through.wait(handed_over(given(LookupError()))).result(PATIENCE)


def test_cancelling_either_future_cancels_the_other(through):
    futures = []

    async def given():
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    async def cancelled():
        try:
            async with asyncio.timeout(PATIENCE):
                await futures[-1]
        except asyncio.CancelledError:
            return True

    async def cancel():
        futures[-1].cancel()

    mine = through.wait(handed_over(given()))
    assert mine.cancel()
    assert through.wait(cancelled())

    mine = through.wait(handed_over(given()))
    through.wait(cancel())
    with pytest.raises(concurrent.futures.CancelledError):
        mine.result(PATIENCE)


def test_a_portal_that_was_stopped_or_inherited_takes_no_calls():
    async def nothing():
        pass

    own = Portal()
    own.stop()
    assert not own._thread.is_alive()
    with pytest.raises(StateError, match="ended with the interpreter"):
        own.wait(nothing())
    own.disown()
    with pytest.raises(StateError, match="belongs to the parent process"):
        own.wait(nothing())


def test_what_nobody_closed_is_closed_when_the_portal_stops():
    class Forgotten:
        closed = False

        async def close(self):
            await asyncio.sleep(0)
            self.closed = True

    own, forgotten, remembered = Portal(), Forgotten(), Forgotten()
    own.remember(forgotten)
    own.remember(remembered)
    own.forget(remembered)
    own.stop()
    assert forgotten.closed
    assert not remembered.closed
