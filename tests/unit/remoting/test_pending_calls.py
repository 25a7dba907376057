"""Calls that wait: numbers, deadlines and the one timer, on a clock that the tests turn."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyromq.errors import ConnectionLost, RequestTimeout
from pyromq.protocol.command import Command
from pyromq.remoting import calls
from pyromq.remoting.calls import PendingCalls, next_opaque

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class TurnedLoop:
    """As much of an event loop as the calls need; time passes when `turn` says so."""

    def __init__(self) -> None:
        self._real = asyncio.new_event_loop()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self.now = 100.0
        self.fired = 0

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Command]:
        return self._real.create_future()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def timers(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def turn(self, until: float) -> None:
        while self._timers and self._timers[0][0] <= until:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if timer.callback is not None:
                self.fired += 1
                timer.callback()
        self.now = until

    def close(self) -> None:
        self._real.close()


@pytest.fixture
def loop() -> Iterator[TurnedLoop]:
    turned = TurnedLoop()
    yield turned
    turned.close()


@pytest.fixture
def pending(loop: TurnedLoop) -> PendingCalls:
    return PendingCalls(cast("Any", loop), "peer")


def reply(opaque: int) -> Command:
    return Command(opaque=opaque, flag=1)


def test_a_reply_reaches_its_call_and_no_other(pending: PendingCalls):
    first = pending.start(1, 105, 103.0, 3.0)
    second = pending.start(2, 105, 103.0, 3.0)
    assert pending.resolve(reply(2))
    assert second.result().opaque == 2
    assert not first.done()
    assert len(pending) == 1


def test_a_reply_that_nobody_waits_for_is_refused(pending: PendingCalls):
    future = pending.start(1, 105, 103.0, 3.0)
    assert not pending.resolve(reply(7))
    assert pending.resolve(reply(1))
    assert not pending.resolve(reply(1))
    assert future.done()


def test_a_forgotten_call_takes_no_reply(pending: PendingCalls):
    future = pending.start(1, 105, 103.0, 3.0)
    pending.forget(1)
    pending.forget(1)
    assert not pending.resolve(reply(1))
    assert not future.done()


def test_a_caller_that_left_is_not_answered(pending: PendingCalls):
    pending.start(1, 105, 103.0, 3.0).cancel()
    assert not pending.resolve(reply(1))


def test_each_call_ends_at_its_own_deadline_with_one_timer_for_all(pending: PendingCalls, loop: TurnedLoop):
    futures = {seconds: pending.start(seconds, 105, 100.0 + seconds, seconds) for seconds in (5, 1, 3, 2)}
    assert loop.timers == 1
    for now in (0.9, 1.1, 2.1, 3.1, 5.1):
        loop.turn(100.0 + now)
        assert {seconds for seconds, future in futures.items() if future.done()} == {s for s in futures if s < now}
    error = futures[3].exception()
    assert isinstance(error, RequestTimeout)
    assert (error.peer, error.request_code, error.seconds) == ("peer", 105, 3)
    assert len(pending) == loop.timers == 0
    for future in futures.values():
        future.exception()


def test_a_timer_that_fires_early_is_set_again(pending: PendingCalls, loop: TurnedLoop):
    """uvloop rounds to milliseconds, so a timer may fire just before its time."""
    future = pending.start(1, 105, 103.0, 3.0)
    loop.now = 102.9999
    pending._expire()
    assert not future.done()
    loop.turn(103.1)
    assert isinstance(future.exception(), RequestTimeout)


def test_answered_calls_leave_nothing_but_one_timer(pending: PendingCalls, loop: TurnedLoop):
    for opaque in range(1000):
        pending.start(opaque, 105, loop.now + 3.0, 3.0)
        pending.resolve(reply(opaque))
    assert loop.timers == 1
    loop.turn(loop.now + 10)
    assert loop.fired == 1
    assert loop.timers == 0


def test_many_deadlines_close_together_do_not_fire_the_timer_for_each(pending: PendingCalls, loop: TurnedLoop):
    """Each firing looks at every call, so with all permits taken there must be few of them."""
    count = 20_000
    futures = [pending.start(n, 105, 101.0 + n / count, 1.0) for n in range(count)]
    late = 0.0
    while len(pending):
        loop.turn(loop.now + 0.001)
        done = count - len(pending)
        due = min(count, max(0, int((loop.now - 101.0) * count)))
        late = max(late, (due - done) / count)
    assert loop.fired < 200
    assert late < 0.03
    assert all(isinstance(future.exception(), RequestTimeout) for future in futures)


def test_the_end_of_the_connection_ends_every_call(pending: PendingCalls, loop: TurnedLoop):
    futures = [pending.start(n, 105, 103.0, 3.0) for n in range(3)]
    futures[0].cancel()
    pending.fail_all("closed by the peer")
    errors = [future.exception() for future in futures[1:]]
    assert [str(error) for error in errors] == ["peer: closed by the peer"] * 2
    assert all(isinstance(error, ConnectionLost) for error in errors)
    assert errors[0] is not errors[1]  # each caller may add to its own
    assert len(pending) == loop.timers == 0


def test_numbers_count_up_and_wrap_around_to_negative(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calls, "_numbers", itertools.count())
    assert [next_opaque() for _ in range(3)] == [0, 1, 2]
    monkeypatch.setattr(calls, "_numbers", itertools.count(2**31 - 1))
    assert [next_opaque() for _ in range(2)] == [2**31 - 1, -(2**31)]
    monkeypatch.setattr(calls, "_numbers", itertools.count(2**32 - 1))
    assert [next_opaque() for _ in range(2)] == [-1, 0]
