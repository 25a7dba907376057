"""The timer wheel keeps its order, whatever goes in when."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyromq.broker.timers import wheel
from pyromq.broker.timers.wheel import TimerWheel


@pytest.fixture(params=[1, 20_000], ids=["with numpy", "without"])
def many(request, monkeypatch):
    monkeypatch.setattr(wheel, "_MANY", request.param)


def popped(wheel: TimerWheel, limit: int) -> list[tuple[int, list[int]]]:
    slots = []
    while (slot := wheel.pop(limit)) is not None:
        slots.append((slot[0], list(slot[1])))
    return slots


# Close together, around the borders of groups, and far away.
SLOTS = st.one_of(st.integers(0, 200), st.integers(0, 40).map(lambda n: n * 64), st.integers(0, 2**40))
STEPS = st.lists(st.one_of(SLOTS.map(lambda slot: ("add", slot)), SLOTS.map(lambda slot: ("pop", slot))))


@pytest.mark.usefixtures("many")
@given(STEPS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_gives_what_a_sorted_list_would_give(steps):
    wheel, model = TimerWheel(), []
    for number, (what, slot) in enumerate(steps):
        if what == "add":
            wheel.add(slot, number)
            model.append((slot, number))
        else:
            due = sorted(each for each in model if each[0] <= slot)
            model = [each for each in model if each[0] > slot]
            assert [(at, entry) for at, entries in popped(wheel, slot) for entry in entries] == due
        assert len(wheel) == len(model)
        assert sorted(zip(*wheel.all(), strict=True)) == sorted(model)


def test_a_slot_comes_out_whole_and_in_the_order_it_went_in():
    wheel = TimerWheel()
    for entry in (9, 3, 7):
        wheel.add(100, entry)
    wheel.add(99, 1)
    assert popped(wheel, 100) == [(99, [1]), (100, [9, 3, 7])]
    assert popped(wheel, 100) == []


def test_a_slot_that_was_taken_can_be_filled_again():
    wheel = TimerWheel()
    wheel.add(100, 1)
    assert popped(wheel, 105) == [(100, [1])]
    wheel.add(100, 2)
    assert popped(wheel, 105) == [(100, [2])]


def test_the_largest_entry_survives():
    wheel = TimerWheel()
    wheel.add(2**40, 2**57 - 1)
    assert popped(wheel, 2**41) == [(2**40, [2**57 - 1])]


def test_a_hundred_thousand_timers_over_three_days_take_nine_bytes_each():
    wheel, chance = TimerWheel(), random.Random(1)
    for entry in range(100_000):
        wheel.add(1_700_000_000 + chance.randrange(3 * 86_400), entry << 2)
    size = sum(sys.getsizeof(entries) for entries in wheel._far.values()) + sys.getsizeof(wheel._far)
    # Each of the 4050 groups has a list of its own, which is what counts when they are so few.
    assert size < 9 * 100_000 + 4051 * 110 + 150_000
