"""Pops that wait: who is tried when something arrives, and who is not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.bounds import TOO_LONG
from tests.unit.broker.message_kit import Peer

from pyromq.broker.pop.held_pops import HeldPop, HeldPops, Wanted
from pyromq.store import MessageStore, StoreConfig


class Waiter:
    """Somebody who waits; `gets` tells how often there is something for him."""

    def __init__(self, held: HeldPops, wanted: Wanted, *, gets: int = 1, seconds: float = 60.0) -> None:
        self.peer: Any = Peer()
        self.gets = gets
        self.tried = 0
        self.answer = ""
        held.hold(HeldPop(cast("Any", self.peer), wanted, self.serve, self.give_up), seconds)

    def serve(self) -> bool:
        self.tried += 1
        if self.gets:
            self.answer = "served"
        return bool(self.gets)

    def give_up(self) -> None:
        self.answer = "gave up"


@pytest.fixture
async def held(monkeypatch):
    monkeypatch.setattr("pyromq.broker.turns._TURN", 60.0)  # all in one turn, however slow this machine is
    made = HeldPops()
    yield made
    made.stop()


@pytest.fixture
def store(tmp_path):
    config = StoreConfig(root=str(tmp_path), commit_log_file_size=1 << 20, consume_queue_file_size=6000, index=False)
    with MessageStore(config) as store:
        yield store


async def test_arrivals_wake_those_who_wait_for_the_queue_or_for_any(held, store):
    any_queue, this, other = (Waiter(held, Wanted("T", "g", number)) for number in (-1, 1, 2))
    elsewhere = Waiter(held, Wanted("U", "g"))
    held.arrived(store.queue("T", 1))
    assert [each.answer for each in (any_queue, this, other, elsewhere)] == ["served", "served", "", ""]
    assert len(held) == 2


@pytest.mark.parametrize("retry", ["%RETRY%g_T", "%RETRY%g+T"])
async def test_retried_messages_wake_the_group_whatever_queue_it_waits_for(held, store, retry):
    mine, others = Waiter(held, Wanted("T", "g", 3)), Waiter(held, Wanted("T", "h"))
    held.arrived(store.queue(retry, 0))
    assert (mine.answer, others.answer) == ("served", "")


async def test_one_who_is_tried_in_vain_speaks_for_those_behind(held, store):
    waiters = [Waiter(held, Wanted("T", "g"), gets=number == 0) for number in range(100)]
    held.arrived(store.queue("T", 0))
    assert [each.tried for each in waiters[:3]] == [1, 1, 0]
    assert (len(held), held.count(Wanted("T", "g"))) == (99, 99)


async def test_who_is_gone_is_passed_over(held, store):
    gone, there = Waiter(held, Wanted("T", "g")), Waiter(held, Wanted("T", "g"))
    gone.peer.closed = True
    held.arrived(store.queue("T", 0))
    assert (gone.tried, there.answer, len(held)) == (0, "served", 0)
    gone = Waiter(held, Wanted("T", "g"))
    gone.peer.closed = True
    held.sweep()
    assert len(held) == 0


async def test_waiting_ends_with_a_last_try(held):
    lucky, unlucky = Waiter(held, Wanted("T", "g"), seconds=0.0), Waiter(held, Wanted("T", "h"), gets=0, seconds=0.0)
    async with asyncio.timeout(TOO_LONG):
        while len(held):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (lucky.answer, unlucky.answer) == ("served", "gave up")


async def test_a_topic_that_goes_and_a_broker_that_stops_answer_all(held):
    here, there = Waiter(held, Wanted("T", "g")), Waiter(held, Wanted("U", "g"))
    held.forget("T")
    assert (here.answer, there.answer) == ("gave up", "")
    held.stop()
    assert (there.answer, len(held), held._watchers, held._groups) == ("gave up", 0, {}, {})
