from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from pyromq.client.consumer import backlog as backlog_module
from pyromq.client.consumer.backlog import Backlog, BacklogClosed, on_loop


class Crew:
    """Takers that note what they took; `handle` is what each does with an item."""

    def __init__(self, backlog, size, handle=None):
        self.backlog = backlog
        self.taken = []
        self.wakes = 0
        self._handle = handle
        self.tasks = [asyncio.ensure_future(self._work(number)) for number in range(size)]

    async def _work(self, number):
        while True:
            try:
                item = await self.backlog.take()
            except BacklogClosed:
                return
            self.taken.append((number, item))
            if self._handle is not None:
                await self._handle(item)

    @property
    def items(self):
        return [item for _, item in self.taken]

    async def close(self):
        self.backlog.close()
        await asyncio.wait_for(asyncio.gather(*self.tasks), 5)


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_items_come_in_order():
    backlog: Backlog[object] = Backlog()
    crew = Crew(backlog, 3)
    backlog.put(range(5))
    await turns()
    backlog.put(range(5, 8))
    await turns()
    assert crew.items == list(range(8))
    await crew.close()


async def test_one_taker_that_does_not_wait_empties_it_alone():
    backlog: Backlog[object] = Backlog()
    crew = Crew(backlog, 10)
    await turns(2)
    backlog.put(range(100))
    await turns()
    assert crew.items == list(range(100))
    assert len({number for number, _ in crew.taken}) == 1
    await crew.close()


async def test_takers_that_wait_are_joined_by_others():
    backlog: Backlog[object] = Backlog()
    gate = asyncio.Event()

    async def wait(_):
        await gate.wait()

    crew = Crew(backlog, 4, wait)
    await turns(2)
    backlog.put(range(10))
    await turns(20)
    assert sorted(crew.items) == [0, 1, 2, 3]
    gate.set()
    await turns(20)
    assert sorted(crew.items) == list(range(10))
    await crew.close()


async def test_the_loop_gets_its_turn_although_nobody_waits(monkeypatch):
    monkeypatch.setattr(backlog_module, "TURN", 0.001)
    backlog: Backlog[object] = Backlog()
    ticks = []

    async def busy(_):
        time.sleep(0.0005)  # noqa: ASYNC251 - that is the point: a handler that never waits

    crew = Crew(backlog, 5, busy)
    await turns(2)
    backlog.put(range(30))
    while len(crew.items) < 30:
        ticks.append(len(crew.items))
        await asyncio.sleep(0)
    assert len(ticks) > 5
    steps = [later - earlier for earlier, later in itertools.pairwise(ticks)]
    assert max(steps) <= 4
    await crew.close()


async def test_what_is_put_back_is_the_next_to_be_taken():
    backlog: Backlog[object] = Backlog()
    backlog.put([1, 2, 3])
    assert await backlog.take() == 1
    backlog.put_first(1)
    assert [await backlog.take() for _ in range(3)] == [1, 2, 3]


async def test_a_taker_that_is_cancelled_when_it_is_woken_leaves_the_item_to_another():
    backlog: Backlog[object] = Backlog()
    first = asyncio.ensure_future(backlog.take())
    second = asyncio.ensure_future(backlog.take())
    await turns(1)
    backlog.put(["x"])  # wakes the second, who came last
    second.cancel()
    assert await asyncio.wait_for(first, 1) == "x"
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_a_taker_that_is_cancelled_while_it_waits_is_not_woken():
    backlog: Backlog[object] = Backlog()
    first = asyncio.ensure_future(backlog.take())
    second = asyncio.ensure_future(backlog.take())
    await turns(1)
    second.cancel()
    await turns(1)
    backlog.put(["x"])
    assert await asyncio.wait_for(first, 1) == "x"


async def test_after_the_end_nothing_is_handed_out():
    backlog: Backlog[object] = Backlog()
    waiting = asyncio.ensure_future(backlog.take())
    await turns(1)
    backlog.close()
    with pytest.raises(BacklogClosed):
        await waiting
    backlog.put([1])
    with pytest.raises(BacklogClosed):
        await backlog.take()


async def test_a_call_from_another_thread_is_made_in_that_of_the_loop():
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    on_loop(loop, called.set)
    assert called.is_set()
    called.clear()
    await asyncio.to_thread(on_loop, loop, called.set)
    await asyncio.wait_for(called.wait(), 1)


def test_a_call_for_a_closed_loop_is_dropped():
    loop = asyncio.new_event_loop()
    loop.close()
    on_loop(loop, pytest.fail)
