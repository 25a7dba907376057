"""`async for message in consumer`."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.integration.client.consumer.consume_kit import (
    GROUP,
    TOPIC,
    commits,
    committed,
    dead_letters,
    numbers,
    send,
    send_many,
    stored,
)

PATIENCE = 30.0


async def take(consumer, count):
    """The bodies of so many messages, all of them acknowledged."""
    bodies = []
    async with asyncio.timeout(PATIENCE):
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == count:
                message.ack()
                break
    return bodies


async def test_a_message_is_done_when_the_next_one_is_asked_for(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    consumer = await consume(cluster, TOPIC)
    loop = aiter(consumer)
    async with asyncio.timeout(PATIENCE):
        assert [(await anext(loop)).body for _ in range(3)] == numbers(3)
        await commits(cluster, 2)
        await consumer.close()
        with pytest.raises(StopAsyncIteration):
            await anext(loop)


@pytest.mark.scenario("client 55")
@pytest.mark.parametrize("ordered", [False, True])
async def test_leaving_a_loop_by_an_exception_leaves_its_message_to_be_delivered_again(cluster, consume, ordered):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 4)
    consumer = await consume(cluster, TOPIC, ordered=ordered, suspend=0.01)
    seen = []

    async def fail_at_the_third():
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 3:
                raise ValueError("third")

    with pytest.raises(ValueError, match="third"):
        await asyncio.wait_for(fail_at_the_third(), PATIENCE)
    assert seen == numbers(3)
    again = await take(consumer, 2)
    assert again == [b"2", b"3"] if ordered else sorted(again) == [b"2", b"3"]
    await commits(cluster, 4)


@pytest.mark.scenario("client 55")
async def test_a_message_that_was_not_done_comes_again_after_a_restart(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    consumer = await consume(cluster, TOPIC, drain=3600.0)
    seen = []
    async with asyncio.timeout(PATIENCE):  # leaving the loop is enough: nothing has to be waited for
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 2:
                break
        await consumer.close()
    assert seen == numbers(2)
    assert await committed(cluster) == 1
    again = await consume(cluster, TOPIC)
    assert await take(again, 2) == [b"1", b"2"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_that_no_loop_finished_is_no_failure(cluster, consume, ordered):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 2)
    consumer = await consume(cluster, TOPIC, ordered=ordered, max_retries=0)
    async for message in consumer:
        assert message.body == b"0"
        break
    await consumer.close()
    again = await consume(cluster, TOPIC, ordered=ordered)
    assert await take(again, 2) == [b"0", b"1"]
    assert await stored(cluster, f"%DLQ%{GROUP}") == []


async def test_closing_inside_the_loop_ends_it(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    consumer = await consume(cluster, TOPIC, drain=3600.0)
    seen = []
    async with asyncio.timeout(PATIENCE):
        async for message in consumer:
            seen.append(message.body)
            message.ack()
            await consumer.close()
    assert seen == [b"0"]
    assert await committed(cluster) == 1


async def test_several_loops_share_the_messages(cluster, consume):
    await cluster.create_topic(TOPIC, 2)
    await send_many(cluster, 30, queues=2)
    consumer = await consume(cluster, TOPIC)
    seen = []

    async def work():
        async for message in consumer:
            await asyncio.sleep(0.001)
            seen.append(message.body)
            if len(seen) == 30:
                enough.set()

    enough = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as workers:
        for _ in range(3):
            workers.create_task(work())
        await enough.wait()
        await consumer.close()
    assert sorted(seen) == sorted(numbers(30))
    assert (await committed(cluster, 0), await committed(cluster, 1)) == (15, 15)


async def test_in_order_a_loop_holds_one_message_of_a_queue_at_a_time(cluster, consume):
    await cluster.create_topic(TOPIC, 2)
    await send_many(cluster, 8, queues=2)
    consumer = await consume(cluster, TOPIC, ordered=True)
    first, second, third = aiter(consumer), aiter(consumer), aiter(consumer)
    async with asyncio.timeout(PATIENCE):
        held = {(await anext(first)).queue.queue_id, (await anext(second)).queue.queue_id}
        assert held == {0, 1}
        more = asyncio.ensure_future(anext(third))
        await asyncio.sleep(0.05)
        assert not more.done()
        rest = asyncio.ensure_future(anext(first))
        (got,), (waiting,) = await asyncio.wait((more, rest), return_when=asyncio.FIRST_COMPLETED)
        assert got.result().body in (b"2", b"3")
        await asyncio.sleep(0.02)
        assert not waiting.done()
        waiting.cancel()


async def test_what_a_loop_says_of_a_message_counts(impatient, consume):
    await impatient.create_topic(TOPIC, 1)
    await send_many(impatient, 3)
    consumer = await consume(impatient, TOPIC)
    seen = []
    async with asyncio.timeout(PATIENCE):
        async for message in consumer:
            seen.append((message.body, message.reconsume_times))
            if message.body == b"0":
                message.dead_letter()
            elif message.body == b"1" and not message.reconsume_times:
                message.retry()
            if len(seen) == 4:
                break
    assert seen[:3] == [(b"0", 0), (b"1", 0), (b"2", 0)]
    assert seen[3] == (b"1", 1)
    assert [letter.body for letter in await dead_letters(impatient, 1)] == [b"0"]
    await commits(impatient, 3)


async def test_a_message_can_be_acknowledged_in_another_thread(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send(cluster, b"x")
    consumer = await consume(cluster, TOPIC)
    loop = aiter(consumer)
    message = await asyncio.wait_for(anext(loop), PATIENCE)
    await asyncio.to_thread(message.ack)
    await commits(cluster, 1)


async def test_a_loop_that_is_forgotten_gives_its_message_back(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send(cluster, b"x")
    consumer = await consume(cluster, TOPIC)
    loop = aiter(consumer)
    await asyncio.wait_for(anext(loop), PATIENCE)
    del loop
    gc.collect()
    assert await take(consumer, 1) == [b"x"]


async def test_a_loop_that_is_cancelled_while_it_waits_loses_nothing(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    consumer = await consume(cluster, TOPIC)
    loop = aiter(consumer)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(loop)
    await send(cluster, b"x")
    assert (await asyncio.wait_for(anext(loop), PATIENCE)).body == b"x"


async def test_a_predicate_selects_what_a_loop_gets(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 5)
    consumer = await consume(cluster, TOPIC, where=lambda message: message.body == b"3")
    assert await take(consumer, 1) == [b"3"]
    await commits(cluster, 4)  # nobody has looked at the last one yet
