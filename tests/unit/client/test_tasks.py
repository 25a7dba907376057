from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from pyromq.client import tasks as tasks_module
from pyromq.client.tasks import Tasks
from pyromq.errors import StateError


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(tasks_module, "RESTART_AFTER", 0.001)


@pytest.fixture
async def tasks():
    tasks = Tasks("test")
    yield tasks
    await tasks.close()


async def soon(waiting):
    return await asyncio.wait_for(waiting, 5)


class Runs:
    """A coroutine function that counts its runs and does something else in each."""

    def __init__(self, *deeds):
        self._deeds = list(deeds)
        self.count = 0
        self._counted = asyncio.Condition()

    async def __call__(self):
        self.count += 1
        async with self._counted:
            self._counted.notify_all()
        if self._deeds:
            await self._deeds.pop(0)()

    async def reached(self, count):
        async with self._counted:
            await asyncio.wait_for(self._counted.wait_for(lambda: self.count >= count), 5)


async def fail():
    raise ValueError("on purpose")


async def forever():
    await asyncio.Event().wait()


async def test_a_task_that_fails_is_logged_and_started_anew(tasks, caplog):
    runs = Runs(fail, fail, forever)
    tasks.spawn("work", runs)
    await runs.reached(3)
    assert caplog.text.count("test work failed; restarting it") == 2
    assert "on purpose" in caplog.text


@pytest.mark.scenario("client 59")
async def test_a_task_that_somebody_else_cancels_is_started_anew(tasks, caplog):
    runs = Runs(forever, forever)
    supervised = tasks.spawn("work", runs)
    await runs.reached(1)
    supervised.task.cancel()
    await runs.reached(2)
    assert "cancelled from outside" in caplog.text
    assert not supervised.done


async def test_a_task_that_returns_has_ended(tasks):
    supervised = tasks.spawn("work", Runs())
    await soon(supervised.task)
    await asyncio.sleep(0.003)
    assert supervised.done
    assert supervised.task is None


async def test_a_task_that_its_owner_stops_stays_stopped(tasks):
    runs = Runs(forever)
    supervised = tasks.spawn("work", runs)
    await runs.reached(1)
    await supervised.stop()
    assert supervised.done
    await asyncio.sleep(0.003)
    assert runs.count == 1


async def test_a_task_is_not_started_anew_when_it_was_cancelled_while_it_waited_for_that(tasks, monkeypatch):
    monkeypatch.setattr(tasks_module, "RESTART_AFTER", 0.01)
    runs = Runs(fail)
    supervised = tasks.spawn("work", runs)
    await runs.reached(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert supervised.task is None
    supervised.cancel()
    await asyncio.sleep(0.02)
    assert runs.count == 1
    assert supervised.done


async def test_something_periodic_is_done_again_and_again_whatever_it_raises(tasks, caplog):
    runs = Runs(fail)
    tasks.every("work", 0.0, 0.001, runs)
    await runs.reached(3)
    assert "test work failed; trying again later" in caplog.text


async def test_something_periodic_can_be_done_now(tasks):
    runs = Runs()
    periodic = tasks.every("work", 60.0, 60.0, runs)
    periodic.wake()
    await runs.reached(1)
    periodic.wake()
    await runs.reached(2)


async def test_waking_while_it_runs_does_it_once_more(tasks):
    going_on = asyncio.Event()
    runs = Runs(going_on.wait)
    periodic = tasks.every("work", 0.0, 60.0, runs)
    await runs.reached(1)
    periodic.wake()
    going_on.set()
    await runs.reached(2)


async def test_the_period_may_change_from_time_to_time(tasks):
    periods = [0.001, 60.0]
    runs = Runs()
    tasks.every("work", 0.0, lambda: periods.pop(0), runs)
    await runs.reached(2)
    await asyncio.sleep(0.005)
    assert periods == []
    assert runs.count == 2


@pytest.mark.scenario("client 59")
async def test_something_periodic_that_is_cancelled_in_the_middle_is_done_over(tasks):
    runs = Runs(forever)
    periodic = tasks.every("work", 0.0, 60.0, runs)
    await runs.reached(1)
    periodic.task.cancel()
    await runs.reached(2)


async def test_something_periodic_ends_when_it_is_stopped(tasks):
    runs = Runs()
    periodic = tasks.every("work", 0.0, 0.001, runs)
    await runs.reached(1)
    await periodic.stop()
    count = runs.count
    await asyncio.sleep(0.005)
    assert runs.count == count


async def test_a_single_task_gives_its_result_and_its_error_is_logged(tasks, caplog):
    async def answer():
        return 42

    assert await tasks.once(answer(), "question") == 42
    await asyncio.wait([tasks.once(fail(), "bad")])
    await asyncio.wait([tasks.once(fail(), "quiet", log=False)])
    assert [record.message for record in caplog.records] == ["test bad failed"]


async def test_closing_ends_everything_and_nothing_starts_after_it():
    tasks = Tasks("test")
    before = asyncio.all_tasks()
    tasks.spawn("one", forever)
    tasks.spawn("failing", fail)
    tasks.every("two", 60.0, 60.0, forever)
    single = tasks.once(forever(), "three")
    await asyncio.sleep(0)
    await tasks.close()
    assert asyncio.all_tasks() == before
    assert single.cancelled()
    await asyncio.sleep(0.003)
    assert asyncio.all_tasks() == before
    with pytest.raises(StateError, match="test was closed"):
        tasks.spawn("one", forever)
    with pytest.raises(StateError):
        tasks.every("two", 0.0, 1.0, forever)
    with pytest.raises(StateError):
        tasks.once(forever(), "three")


async def test_one_of_the_tasks_may_close_them_all():
    tasks = Tasks("test")
    closed = asyncio.Event()

    async def close():
        await tasks.close()
        closed.set()

    tasks.spawn("other", forever)
    tasks.spawn("closing", close)
    await soon(closed.wait())
    again = Tasks("test")
    await soon(again.once(again.close(), "closing"))


async def test_a_task_that_does_not_end_is_named_and_not_waited_for(caplog):
    tasks = Tasks("test")
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    task = tasks.once(stubborn(), "stubborn")
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        await tasks.close(timeout=0.01)
    assert "still running 0.01 s after being cancelled: test stubborn" in caplog.text
    release.set()
    await task
