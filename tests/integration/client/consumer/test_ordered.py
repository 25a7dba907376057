"""Ordered consumers: one message of a queue after the other, whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict

import pytest
from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.consumer.consume_kit import (
    GROUP,
    TOPIC,
    Basket,
    commits,
    committed,
    dead_letters,
    numbers,
    owns,
    quick_client,
    send,
    send_many,
    serve,
    watch,
)

from pyromq.client.consumer import ordered, queue_locks
from pyromq.client.consumer.offset_store import LocalOffsetStore
from pyromq.client.consumer.outcomes import Commit, DeadLetter, Retry, Rollback, Suspend
from pyromq.client.consumer.start_offset import StartAt
from pyromq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody


@pytest.mark.slow
@pytest.mark.scenario("client 43")
async def test_a_failing_message_blocks_its_own_queue_only_and_order_is_kept(cluster, consume):
    await cluster.create_topic(TOPIC, 4)
    await send_many(cluster, 40, queues=4)
    basket = Basket()
    tries: list[tuple[float, int]] = []

    async def handler(message):
        if message.body == b"8" and len(tries) < 3:  # the third message of queue 0
            tries.append((time.monotonic(), message.reconsume_times))
            raise ValueError("not yet")
        await basket.add(message)

    await consume(cluster, TOPIC, handler, ordered=True, suspend=0.1)
    await basket.holds(40)
    by_queue = defaultdict(list)
    for message in basket.messages:
        by_queue[message.queue.queue_id].append(int(message.body))
    assert by_queue == {queue: list(range(queue, 40, 4)) for queue in range(4)}
    assert [times for _, times in tries] == [0, 1, 2]
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(tries)]
    assert all(0.1 <= pause < TOO_LONG for pause in pauses)
    # The others did not wait: they were done before the third try.
    assert {int(body) for body in basket.bodies[:32]} >= {number for number in range(40) if number % 4}
    for queue in range(4):
        await commits(cluster, 10, queue)


async def test_only_one_handler_at_a_time_is_at_a_queue(cluster, consume):
    await cluster.create_topic(TOPIC, 2)
    await send_many(cluster, 20, queues=2)
    running: Counter[int] = Counter()
    most: Counter[int] = Counter()
    basket = Basket()

    async def handler(message):
        at = message.queue.queue_id
        running[at] += 1
        most[at] = max(most[at], running[at])
        await asyncio.sleep(0.002)
        running[at] -= 1
        await basket.add(message)

    await consume(cluster, TOPIC, handler, ordered=True)
    await basket.holds(20)
    assert most == {0: 1, 1: 1}


async def test_max_concurrency_limits_the_handlers_of_all_queues(cluster, consume):
    await cluster.create_topic(TOPIC, 4)
    await send_many(cluster, 16, queues=4)
    running, most, basket = [0], [0], Basket()

    async def handler(message):
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.002)
        running[0] -= 1
        await basket.add(message)

    await consume(cluster, TOPIC, handler, ordered=True, max_concurrency=2)
    await basket.holds(16)
    assert most[0] == 2


@pytest.mark.scenario("client 44")
async def test_a_poison_message_is_a_dead_letter_after_so_many_retries_and_the_queue_goes_on(impatient, consume):
    await impatient.create_topic(TOPIC, 1)
    await send_many(impatient, 3)
    basket, tries = Basket(), []

    async def handler(message):
        if message.body == b"1":
            tries.append(message.reconsume_times)
            raise ValueError("never")
        await basket.add(message)

    await consume(impatient, TOPIC, handler, ordered=True, max_retries=3, suspend=0.01)
    assert await basket.holds(2) == [b"0", b"2"]
    (letter,) = await dead_letters(impatient, 1)
    assert letter.body == b"1"
    assert tries == [0, 1, 2, 3]
    await commits(impatient, 3)


async def test_a_dead_letter_lets_the_queue_go_on_at_once(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        return DeadLetter if message.body == b"1" else None

    await consume(cluster, TOPIC, handler, ordered=True)
    assert await basket.holds(3) == numbers(3)
    assert [letter.body for letter in await dead_letters(cluster, 1)] == [b"1"]
    await commits(cluster, 3)


async def test_the_handler_chooses_how_long_its_queue_pauses(cluster, consume):
    await send(cluster, b"x")
    times, basket = [], Basket()

    async def handler(message):
        times.append(time.monotonic())
        await basket.add(message)
        return Suspend(0.15) if len(times) == 1 else None

    await consume(cluster, TOPIC, handler, ordered=True)
    await basket.holds(2)
    assert 0.15 <= times[1] - times[0] < TOO_LONG


async def test_of_a_batch_what_comes_before_the_failure_is_done(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 4)
    batches, done = [], asyncio.Event()

    async def handler(messages):
        batches.append([message.body for message in messages])
        if len(batches) == 1:
            messages[2].retry()
        else:
            done.set()

    await consume(cluster, TOPIC, handler, ordered=True, batch=4, suspend=0.3)
    await commits(cluster, 2)
    await asyncio.wait_for(done.wait(), 5)
    assert batches == [numbers(4), numbers(4)[2:]]
    await commits(cluster, 4)


async def test_without_auto_commit_the_handler_commits_and_rolls_back(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 6)
    seen, basket = [], Basket()

    async def handler(message):
        message.ctx.auto_commit = False
        seen.append(int(message.body))
        await basket.add(message)
        if message.body == b"2":
            return Commit
        if message.body == b"4" and seen.count(4) == 1:
            return Rollback
        return None

    await consume(cluster, TOPIC, handler, ordered=True, suspend=0.01)
    await basket.holds(8)
    assert seen == [0, 1, 2, 3, 4, 3, 4, 5]
    await commits(cluster, 3)
    await asyncio.sleep(0.05)
    assert await committed(cluster) == 3


@pytest.mark.scenario("client 45")
async def test_without_its_lock_a_queue_stands_still(cluster, consume, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.push_member.REFRESH", 0.05)
    monkeypatch.setattr("pyromq.client.consumer.push_member.FIRST_REFRESH", 0.05)
    monkeypatch.setattr(ordered, "ASK_AGAIN", 0.05)
    await cluster.create_topic(TOPIC, 1)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, ordered=True)
    await owns(consumer, 1)
    await send(cluster, b"0")
    await basket.holds(1)
    refused = []

    def omit(connection, request):
        refused.append(LockBatchRequestBody.decode(request.body_bytes))
        return request.reply(body=LockBatchResponseBody().encode())

    before = serve(cluster, 41, omit)

    async def lost():
        return not any(held.locked for held in consumer._member._rebalancer.owned.values())

    await eventually(lost)
    await send(cluster, b"1")
    await asyncio.sleep(0.2)
    assert basket.bodies == [b"0"]
    assert refused
    serve(cluster, 41, before)
    assert await basket.holds(2) == [b"0", b"1"]


@pytest.mark.slow
@pytest.mark.scenario("client 45")
async def test_two_members_are_never_at_one_queue_at_once(cluster, consume):
    await cluster.create_topic(TOPIC, 2)
    running: Counter[int] = Counter()
    overlaps, basket = [], Basket()

    async def handler(message):
        at = message.queue.queue_id
        running[at] += 1
        if running[at] > 1:
            overlaps.append(message)
        await asyncio.sleep(0.02)
        running[at] -= 1
        await basket.add(message)

    await send_many(cluster, 20, queues=2)
    first = await consume(cluster, TOPIC, handler, ordered=True)
    await basket.holds(2)
    second = await consume(cluster, TOPIC, handler, ordered=True)
    await owns(first, 1)
    await owns(second, 1)
    await send_many(cluster, 10, queues=2)
    await basket.holds(30)
    assert not overlaps
    for queue in range(2):
        bodies = [int(m.body) for m in basket.messages if m.queue.queue_id == queue]
        assert bodies == [*range(queue, 20, 2), *range(queue, 10, 2)]


async def test_locks_are_given_back_at_the_end(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    unlocks = watch(cluster, 42)
    consumer = await consume(cluster, TOPIC, Basket(), ordered=True)
    await owns(consumer, 1)
    await consumer.close()
    bodies = [LockBatchRequestBody.decode(request.body_bytes) for request in unlocks]
    assert TOPIC in {queue.topic for body in bodies for queue in body.mq_set}
    other = await consume(cluster, TOPIC, Basket(), ordered=True)
    await owns(other, 1)


@pytest.mark.slow
async def test_a_handler_that_never_ends_keeps_its_queue_until_its_lock_is_old(cluster, consume, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.push_member.FORCE_AFTER", 0.0)
    await cluster.create_topic(TOPIC, 2)
    stuck, basket = asyncio.Event(), Basket()

    async def handler(message):
        await basket.add(message)
        await stuck.wait()

    await send(cluster, b"x", queue_id=1)
    first = await consume(cluster, TOPIC, handler, ordered=True, client=quick_client(cluster, instance_name="1"))
    await basket.holds(1)
    second = await consume(cluster, TOPIC, basket, ordered=True, client=quick_client(cluster, instance_name="2"))
    await owns(second, 1)
    await owns(first, 1)
    assert await basket.holds(2) == [b"x", b"x"]
    stuck.set()


async def test_broadcasting_in_order_needs_no_locks(cluster, consume, tmp_path):
    await cluster.create_topic(TOPIC, 1)
    locks = watch(cluster, 41)
    await send_many(cluster, 5)
    basket = Basket()
    store = LocalOffsetStore.of("me", GROUP, tmp_path)
    first = StartAt.FIRST
    await consume(cluster, TOPIC, basket, ordered=True, broadcast=True, offset_store=store, start_at=first)
    assert await basket.holds(5) == numbers(5)
    assert not locks


async def test_plain_handlers_keep_the_order_too(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 10)
    got = []

    def handler(message):
        got.append(message.body)
        return Retry if message.body == b"3" and message.reconsume_times == 0 else None

    await consume(cluster, TOPIC, handler, ordered=True, suspend=0.01)
    await commits(cluster, 10)
    assert got == [*numbers(4), *numbers(10)[3:]]


async def test_a_predicate_selects_in_order(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 10)
    basket = Basket()
    await consume(cluster, TOPIC, basket, ordered=True, where=lambda message: int(message.body) % 3 == 0)
    assert await basket.holds(4) == [b"0", b"3", b"6", b"9"]
    await commits(cluster, 10)


def test_locks_are_renewed_long_before_the_broker_gives_them_away():
    assert queue_locks.REFRESH < 30 < 60


async def test_a_runner_that_foreign_code_cancels_goes_on(cluster, consume, monkeypatch):
    monkeypatch.setattr("pyromq.client.tasks.RESTART_AFTER", 0.01)
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, ordered=True, client=quick_client(cluster))
    await basket.holds(3)
    for task in asyncio.all_tasks():
        if task.get_name().startswith(f"consumer {GROUP} "):
            task.cancel()
    await send(cluster, b"3")
    assert await basket.holds(4) == numbers(4)
    assert consumer.assignment
