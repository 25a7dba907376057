"""The window of a producer."""

from __future__ import annotations

import asyncio

import pytest

from pyromq.client.producer.window import Window
from pyromq.errors import TooManyRequests


async def test_messages_enter_until_the_count_is_reached():
    window = Window(2, 1000)
    assert window.try_enter(1)
    assert window.try_enter(1)
    assert not window.try_enter(1)
    window.leave(1)
    assert window.try_enter(1)
    assert (window.count, window.bytes) == (2, 2)


async def test_messages_enter_until_the_bytes_are_reached():
    window = Window(10, 100)
    assert window.try_enter(60)
    assert not window.try_enter(41)
    assert window.try_enter(40)


async def test_a_message_larger_than_the_window_passes_alone():
    window = Window(10, 100)
    assert window.try_enter(1000)
    assert not window.try_enter(1)
    window.leave(1000)
    assert window.try_enter(1)
    assert not window.try_enter(1000)


async def test_who_waits_enters_in_order_of_arrival():
    window = Window(1, 1000)
    window.try_enter(1)
    entered = []

    async def enter(name, size):
        await window.enter(size, 10)
        entered.append(name)

    waiting = [asyncio.create_task(enter(name, size)) for name, size in (("large", 900), ("small", 1))]
    await asyncio.sleep(0)
    assert not window.try_enter(1)
    window.leave(1)
    await asyncio.sleep(0)
    assert entered == ["large"]
    window.leave(900)
    await asyncio.gather(*waiting)
    assert entered == ["large", "small"]


async def test_who_waits_too_long_is_told_how_much_is_under_way():
    window = Window(1, 1000)
    window.try_enter(7)
    with pytest.raises(TooManyRequests, match="1 messages of 7 bytes"):
        await window.enter(1, 0.01)
    window.leave(7)
    assert (window.count, window.bytes) == (0, 0)
    assert window.try_enter(1)


async def test_who_is_cancelled_while_waiting_leaves_nothing_behind():
    window = Window(1, 1000)
    window.try_enter(1)
    first, second = (asyncio.create_task(window.enter(1, 10)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    window.leave(1)
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    window.leave(1)
    assert (window.count, window.bytes) == (0, 0)


async def test_room_given_to_one_who_is_cancelled_in_the_same_moment_goes_to_the_next():
    window = Window(1, 1000)
    window.try_enter(1)
    first, second = (asyncio.create_task(window.enter(1, 10)) for _ in range(2))
    await asyncio.sleep(0)
    window.leave(1)
    first.cancel()
    await second
    assert window.count == 1
    assert first.cancelled()
