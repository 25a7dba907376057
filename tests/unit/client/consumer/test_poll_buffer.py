from __future__ import annotations

import asyncio

from pyromq.client.consumer.poll_buffer import PollBuffer


def filled(limit=10):
    buffer: PollBuffer[str, int] = PollBuffer(limit)
    buffer.put("one", [1, 2, 3])
    buffer.put("other", [4])
    buffer.put("one", [5, 6])
    return buffer


def test_the_first_batch_is_taken_as_it_came():
    buffer = filled()
    assert buffer.take() == [("one", [1, 2, 3])]
    assert len(buffer) == 3


def test_as_many_messages_are_taken_as_asked_for_in_their_order():
    buffer = filled()
    assert buffer.take(2) == [("one", [1, 2])]
    assert buffer.take(3) == [("one", [3]), ("other", [4]), ("one", [5])]
    assert buffer.take(9) == [("one", [6])]
    assert buffer.take(9) == []
    assert len(buffer) == 0


def test_what_came_of_one_queue_can_be_forgotten():
    buffer = filled()
    buffer.discard("one")
    assert len(buffer) == 1
    assert buffer.take() == [("other", [4])]


def test_it_is_full_when_there_are_more_than_its_limit():
    assert not filled(6).is_full
    assert filled(5).is_full


async def test_who_waits_hears_of_what_comes():
    buffer: PollBuffer[str, int] = PollBuffer()
    waiting = asyncio.ensure_future(buffer.wait(60))
    await asyncio.sleep(0)
    assert not waiting.done()
    buffer.put("one", [1])
    await waiting


async def test_waiting_ends_when_the_time_is_up_or_somebody_says_so():
    buffer: PollBuffer[str, int] = PollBuffer()
    await buffer.wait(0.001)
    waiting = asyncio.ensure_future(buffer.wait(60))
    await asyncio.sleep(0)
    buffer.wake()
    await waiting


async def test_an_emptied_buffer_lets_wait_again():
    buffer = filled()
    buffer.take(99)
    waiting = asyncio.ensure_future(buffer.wait(60))
    await asyncio.sleep(0)
    assert not waiting.done()
    buffer.put("one", [1])
    buffer.discard("one")
    await asyncio.sleep(0)
    await waiting
    assert len(buffer) == 0
