"""Consumers as members of a group: who reads what, from where, and what happens when something goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.consumer.consume_kit import (
    GROUP,
    TOPIC,
    Basket,
    commits,
    committed,
    numbers,
    owns,
    quick_client,
    refuse,
    send,
    send_many,
    serve,
    stored,
    watch,
)

from pyromq.client.consumer.offset_store import LocalOffsetStore
from pyromq.client.consumer.outcomes import DeadLetter, Retry
from pyromq.client.consumer.push_consumer import Consumer
from pyromq.client.consumer.start_offset import StartAt
from pyromq.errors import BrokerError, ConnectionLost
from pyromq.protocol.bodies import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo, GetConsumerStatusBody
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    GetMinOffset,
    ResetOffset,
    UpdateConsumerOffset,
)


def topic_queues(consumer):
    return {queue.queue_id for queue in consumer.assignment if queue.topic == TOPIC}


async def commit(cluster, offset, queue_id=0):
    header = UpdateConsumerOffset(GROUP, TOPIC, queue_id, offset)
    await cluster.peer.ask(cluster.address(), RequestCode.UPDATE_CONSUMER_OFFSET, header)


# Members


@pytest.mark.scenario("client 29")
async def test_the_queues_of_a_member_that_leaves_are_taken_over_at_once(cluster, consume):
    await cluster.create_topic(TOPIC, 4)
    first = await consume(cluster, TOPIC, Basket())
    second = await consume(cluster, TOPIC, Basket())
    await owns(first, 2)
    await owns(second, 2)
    assert topic_queues(first) | topic_queues(second) == {0, 1, 2, 3}
    started = time.monotonic()
    await first.close()
    await owns(second, 4)
    assert time.monotonic() - started < TOO_LONG


@pytest.mark.scenario("client 29")
async def test_the_queues_of_a_member_that_is_killed_are_taken_over(cluster, consume):
    await cluster.create_topic(TOPIC, 4)
    first = await consume(cluster, TOPIC, Basket())
    second = await consume(cluster, TOPIC, Basket())
    await owns(first, 2)
    await owns(second, 2)
    # As far as the broker can see, this is what a killed process looks like.
    await first.client.tasks.close()
    await first.client.remoting.close()
    await owns(second, 4)


@pytest.mark.scenario("client 50")
async def test_what_a_handler_answers_for_a_queue_that_was_taken_away_is_ignored(cluster, consume):
    await cluster.create_topic(TOPIC, 2)
    await send(cluster, b"x", queue_id=1)
    taken_back = watch(cluster, 36)
    gate, first_got, second_got = asyncio.Event(), Basket(), Basket()

    async def slow(message):
        await first_got.add(message)
        await gate.wait()
        return Retry

    # Both have two queues to share, the second one goes to the member whose name is the greater.
    first = await consume(cluster, TOPIC, slow, client=quick_client(cluster, instance_name="1"))
    await first_got.holds(1)
    second = await consume(cluster, TOPIC, second_got, client=quick_client(cluster, instance_name="2"))
    await owns(second, 1)
    assert await second_got.holds(1) == [b"x"]
    gate.set()
    await commits(cluster, 1, 1)
    await send(cluster, b"y", queue_id=0)
    await first_got.holds(2)
    assert not taken_back
    assert await committed(cluster, 1) == 1
    assert topic_queues(first) == {0}


# Where to begin


@pytest.fixture
async def shortened(cluster_with):
    """A cluster, and the offset where queue 0 of the topic begins, which is not 0; the topic had a hundred messages."""
    cluster = await cluster_with(
        "mappedFileSizeCommitLog=64k", "fileReservedTime=0", "flushDiskType=SYNC_FLUSH", "cleanResourceInterval=100"
    )
    await cluster.create_topic(TOPIC, 1)
    for number in range(100):
        await send(cluster, str(number).encode().rjust(2000))
    await cluster.peer.ask(cluster.address(), RequestCode.DELETE_EXPIRED_COMMITLOG)

    log = cluster.broker._parts.context.store.log

    async def begins():
        if len(log.segments) > 1:
            return 0  # files are deleted one after the other, and the queue begins later with each
        header = GetMinOffset(TOPIC, 0)
        reply = await cluster.peer.ask(cluster.address(), RequestCode.GET_MIN_OFFSET, header)
        return int(reply.ext["offset"])

    return cluster, await eventually(begins)


@pytest.mark.scenario("client 30")
async def test_a_new_group_begins_at_the_first_message_that_is_left(shortened, consume):
    cluster, first = shortened
    basket = Basket()
    await consume(cluster, TOPIC, basket, start_at=StartAt.FIRST, max_concurrency=1)
    await basket.holds(100 - first)
    assert sorted(int(body) for body in basket.bodies) == list(range(first, 100))


@pytest.mark.scenario("client 30")
@pytest.mark.parametrize("start_at", [StartAt.LAST, StartAt.LATEST_STRICT])
async def test_a_new_group_begins_with_the_next_message(shortened, consume, start_at):
    cluster, _ = shortened
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, start_at=start_at)
    await owns(consumer, 1)
    await send(cluster, b"next")
    assert await basket.holds(1) == [b"next"]


@pytest.mark.scenario("client 30")
async def test_a_new_group_begins_at_a_time(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    await asyncio.sleep(0.005)
    between = datetime.now(UTC)
    await asyncio.sleep(0.005)
    await send(cluster, b"3")
    basket = Basket()
    # Of a queue as young as this one the broker would say 0, had it not been asked strictly.
    await consume(cluster, TOPIC, basket, start_at=between)
    assert await basket.holds(1) == [b"3"]


@pytest.mark.scenario("client 30")
@pytest.mark.parametrize(
    ("start_at", "expected"),
    [(StartAt.FIRST, b"old"), (StartAt.LAST, b"old"), (datetime.now(UTC) - timedelta(hours=1), b"new")],
)
async def test_a_new_group_begins_in_its_retry_topic(cluster, consume, start_at, expected):
    retry = f"%RETRY%{GROUP}"
    await cluster.create_topic(TOPIC, 1)
    await cluster.create_topic(retry, 1)
    await send(cluster, b"old", retry, RETRY_TOPIC=TOPIC)
    refuse(cluster, 14, 22)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, start_at=start_at)
    await owns(consumer, 1)

    async def owns_retry():
        return any(queue.topic == retry for queue in consumer.assignment)

    await eventually(owns_retry)
    await send(cluster, b"new", retry, RETRY_TOPIC=TOPIC)
    await basket.holds(1)
    assert basket.bodies[0] == expected


@pytest.mark.scenario("client 31")
async def test_a_queue_whose_offset_cannot_be_asked_for_is_skipped(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    await commit(cluster, 1)
    refused, before = refuse(cluster, 14)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket)

    async def asked():
        return [request for request in refused if request.ext["topic"] == TOPIC]

    await eventually(asked)
    assert topic_queues(consumer) == set()
    serve(cluster, 14, before)
    assert sorted(await basket.holds(2)) == [b"1", b"2"]


@pytest.mark.scenario("client 35")
async def test_a_group_that_fell_behind_the_first_message_goes_on_there(shortened, consume):
    cluster, first = shortened
    await commit(cluster, first - 1)
    basket = Basket()
    started = time.monotonic()
    await consume(cluster, TOPIC, basket)
    await basket.holds(100 - first)
    assert time.monotonic() - started < TOO_LONG
    assert min(int(body) for body in basket.bodies) == first
    await commits(cluster, 100)


# Brokers that go away


@pytest.mark.slow
@pytest.mark.scenario("client 34")
async def test_consumption_goes_on_after_a_broker_restart(cluster, consume):
    await cluster.create_topic(TOPIC, 4)
    await send_many(cluster, 8, queues=4)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket)
    await basket.holds(8)
    await cluster.restart_broker()
    for number in range(8, 16):
        await send(cluster, str(number).encode(), queue_id=number % 4)
    await basket.holds(16)
    assert {int(body) for body in basket.bodies} == set(range(16))
    assert topic_queues(consumer) == {0, 1, 2, 3}


@pytest.mark.slow
async def test_consumption_goes_on_after_connections_were_cut(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket)
    await owns(consumer, 1)
    cluster.cut_connections()
    with contextlib.suppress(ConnectionLost, BrokerError):  # the sender's connection was cut, too
        await cluster.peer.brokers(cluster.address())
    await send(cluster, b"x")
    assert await basket.holds(1) == [b"x"]


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
async def test_nothing_is_lost_while_connections_are_cut_and_handlers_fail(impatient, consume, ordered):
    await impatient.create_topic(TOPIC, 2)
    basket = Basket()

    async def handler(message):
        if int(message.body) % 7 == 0 and message.reconsume_times == 0:
            raise ValueError("at first")
        await basket.add(message)

    await consume(impatient, TOPIC, handler, ordered=ordered, suspend=0.01)
    sent = 0
    while sent < 200:
        try:
            await send(impatient, str(sent).encode(), queue_id=sent % 2)
        except ConnectionLost:
            continue  # perhaps it was stored: then it comes twice
        sent += 1
        if sent % 40 == 0:
            impatient.cut_connections()

    async def complete():
        return {int(body) for body in basket.bodies} == set(range(200))

    await eventually(complete)


# Broadcasting


@pytest.mark.scenario("client 46")
async def test_broadcasting_members_all_get_everything_and_retry_nothing(cluster, consume, tmp_path):
    await cluster.create_topic(TOPIC, 2)
    taken_back = watch(cluster, 36)
    baskets, consumers, stores = [], [], []
    for name in ("a", "b"):
        basket = Basket()

        async def handler(message, basket=basket):
            await basket.add(message)
            return Retry if message.body == b"1" else DeadLetter if message.body == b"2" else None

        client = quick_client(cluster, instance_name=name)
        store = LocalOffsetStore.of(client.client_id, GROUP, tmp_path)
        baskets.append(basket)
        stores.append(store)
        consumers.append(await consume(cluster, TOPIC, handler, broadcast=True, client=client, offset_store=store))
    for consumer in consumers:
        await owns(consumer, 2)
    await send_many(cluster, 6, queues=2)
    for basket in baskets:
        assert sorted(await basket.holds(6)) == numbers(6)
    for consumer in consumers:
        await consumer.close()
    assert [len(basket.messages) for basket in baskets] == [6, 6]
    assert not taken_back
    for store in stores:
        # As FastJSON writes it, the queue is the key.
        text = re.sub(r"\{(\"brokerName[^}]*)\}:", lambda found: json.dumps(found[1]) + ":", store.path.read_text())
        assert sorted(json.loads(text)["offsetTable"].values()) == [3, 3]
    assert await committed(cluster) is None


@pytest.mark.scenario("client 2")
async def test_a_broadcasting_consumer_keeps_its_name_and_its_place(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    await cluster.create_topic(TOPIC, 1)

    async def run(basket, count):
        consumer = Consumer(GROUP, broadcast=True, start_at=StartAt.FIRST, namesrv=cluster.namesrv)
        consumer.subscribe(TOPIC, "*", basket)
        async with consumer:
            await basket.holds(count)
        return consumer.client.client_id

    first, second = Basket(), Basket()
    await send_many(cluster, 3)
    before = await run(first, 3)
    await send(cluster, b"3")
    assert await run(second, 1) == before
    assert before.endswith("@DEFAULT")
    assert second.bodies == [b"3"]


# What is asked of a consumer


@pytest.mark.scenario("client 47")
@pytest.mark.parametrize("ordered", [False, True])
async def test_consumption_starts_over_where_an_admin_says(cluster, consume, ordered):
    await cluster.create_topic(TOPIC, 2)
    await send_many(cluster, 10, queues=2)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, ordered=ordered)
    await basket.holds(10)
    await commits(cluster, 5, 0)
    await commits(cluster, 5, 1)
    header = ResetOffset(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
    await cluster.peer.ask(cluster.address(), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    await basket.holds(20)
    assert sorted(basket.bodies[10:20]) == sorted(numbers(10))
    await commits(cluster, 5, 0)
    await owns(consumer, 2)


@pytest.mark.scenario("client 48")
async def test_a_consumer_tells_how_it_fares(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 3)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, expr="*", max_concurrency=7)
    await basket.holds(3)
    await commits(cluster, 3)
    header = GetConsumerRunningInfo(GROUP, consumer.client.client_id, jstack_enable=True)
    reply = await cluster.peer.ask(cluster.address(), RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = ConsumerRunningInfo.decode(reply.body_bytes)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_NAMESERVER_ADDR"] == cluster.namesrv
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert info.properties["PROP_CLIENT_VERSION"] == "V4_9_8"
    assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
    assert abs(int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) / 1000 - time.time()) < 60
    assert info.properties["pullBatchSize"] == "32"
    assert {subscription.topic for subscription in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
    (queue,) = [queue for queue in info.mq_table if queue.topic == TOPIC]
    held = info.mq_table[queue]
    assert (held.commit_offset, held.cached_msg_count, held.dropped) == (3, 0, False)
    assert abs(held.last_pull_timestamp / 1000 - time.time()) < 60
    assert info.status_table[TOPIC].consume_ok_tps > 0
    assert info.jstack is not None
    assert f"pull of {queue}" in info.jstack

    status = GetConsumerStatus(topic=TOPIC, group=GROUP)
    reply = await cluster.peer.ask(cluster.address(), RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
    table = GetConsumerStatusBody.decode(reply.body_bytes).consumer_table
    assert table == {consumer.client.client_id: {queue: 3}}


@pytest.mark.scenario("client 48")
async def test_a_message_can_be_given_to_the_handler_directly(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    answers = {b"ok": None, b"later": Retry, b"error": ValueError("no")}

    async def handler(message):
        answer = answers[message.body]
        if isinstance(answer, Exception):
            raise answer
        return answer

    for body in answers:
        await send(cluster, body, "elsewhere")
    await cluster.routed("elsewhere")
    messages = {message.body: message for message in await stored(cluster, "elsewhere")}
    consumer = await consume(cluster, ["elsewhere"], handler, start_at=StartAt.LATEST_STRICT)

    async def directly(body):
        header = ConsumeMessageDirectly(GROUP, consumer.client.client_id, messages[body].offset_msg_id)
        reply = await cluster.peer.ask(cluster.address(), RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        return ConsumeMessageDirectlyResult.decode(reply.body_bytes)

    results = {body: await directly(body) for body in answers}
    assert {body: result.consume_result for body, result in results.items()} == {
        b"ok": CMResult.CR_SUCCESS,
        b"later": CMResult.CR_LATER,
        b"error": CMResult.CR_THROW_EXCEPTION,
    }
    assert "ValueError: no" in results[b"error"].remark
    assert not results[b"ok"].order
    assert await stored(cluster, f"%RETRY%{GROUP}") == []


# The end


@pytest.mark.scenario("client 49")
@pytest.mark.parametrize("ordered", [False, True])
async def test_closing_lets_handlers_end_and_commits_their_work(cluster, consume, ordered):
    await cluster.create_topic(TOPIC, 2)
    await send_many(cluster, 200, queues=2)
    done, running = [], [0]
    basket = Basket()

    async def handler(message):
        running[0] += 1
        await asyncio.sleep(0.01)
        running[0] -= 1
        done.append((message.queue.queue_id, message.offset))
        await basket.add(message)

    consumer = await consume(cluster, TOPIC, handler, ordered=ordered, client=quick_client(cluster, offset_interval=60))
    await basket.holds(20)
    started = time.monotonic()
    await consumer.close()
    assert time.monotonic() - started < TOO_LONG
    assert running == [0]
    for queue in range(2):
        offsets = {offset for at, offset in done if at == queue}
        unfinished = next(offset for offset in range(101) if offset not in offsets)
        assert await committed(cluster, queue) == unfinished
    assert cluster.consumers(GROUP) == []
    before = len(done)
    await asyncio.sleep(0.05)
    assert len(done) == before


@pytest.mark.scenario("client 49")
@pytest.mark.parametrize("ordered", [False, True])
async def test_closing_ends_without_any_broker(cluster, consume, ordered):
    await cluster.create_topic(TOPIC, 2)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, ordered=ordered)
    await owns(consumer, 2)
    await send(cluster, b"x")
    await basket.holds(1)
    await cluster.stop_broker()
    await cluster.stop_name_server()
    async with asyncio.timeout(TOO_LONG):
        await consumer.close()


@pytest.mark.slow
@pytest.mark.scenario("client 49")
async def test_closing_ends_when_brokers_do_not_answer(cluster, consume):
    await cluster.create_topic(TOPIC, 2)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket, ordered=True)
    await owns(consumer, 2)
    await send(cluster, b"x")
    await basket.holds(1)
    never = asyncio.get_running_loop().create_future()
    for code in (15, 42, 35):
        serve(cluster, code, lambda connection, request: asyncio.shield(never))
    started = time.monotonic()
    await consumer.close()
    assert time.monotonic() - started < TOO_LONG
    never.cancel()


async def test_a_handler_that_does_not_end_is_cancelled(cluster, consume):
    await send(cluster, b"x")
    basket, cancelled = Basket(), asyncio.Event()

    async def handler(message):
        await basket.add(message)
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    consumer = await consume(cluster, TOPIC, handler, drain=0.05)
    await basket.holds(1)
    await consumer.close()
    assert cancelled.is_set()
    assert await committed(cluster) in (None, 0)


async def test_a_plain_handler_that_does_not_end_is_left_alone(cluster, consume):
    await send(cluster, b"x")
    started, gate = threading.Event(), threading.Event()

    def handler(message):
        started.set()
        gate.wait(10)

    consumer = await consume(cluster, TOPIC, handler, drain=0.05)
    await asyncio.to_thread(started.wait, 10)
    async with asyncio.timeout(TOO_LONG):
        await consumer.close()
    gate.set()


async def test_a_handler_may_close_its_consumer(cluster):
    await send(cluster, b"x")
    consumer = Consumer(GROUP, client=quick_client(cluster))

    @consumer.on(TOPIC)
    async def handler(message):
        await consumer.close()

    async with asyncio.timeout(5):
        await consumer.run()
    assert await committed(cluster) == 1


async def test_running_ends_when_it_is_cancelled(cluster):
    await send(cluster, b"x")
    basket = Basket()
    consumer = Consumer(GROUP, client=quick_client(cluster))
    consumer.subscribe(TOPIC, "*", basket)
    running = asyncio.create_task(consumer.run())
    await basket.holds(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await committed(cluster) == 1
    assert cluster.consumers(GROUP) == []


@pytest.mark.slow
@pytest.mark.scenario("client 58")
async def test_a_blocking_handler_keeps_nobody_else_from_anything(cluster, consume, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.push_member.REFRESH", 0.05)
    monkeypatch.setattr("pyromq.client.consumer.push_member.FIRST_REFRESH", 0.05)
    await cluster.create_topic(TOPIC, 2)
    started, gate = threading.Event(), threading.Event()

    def handler(message):
        started.set()
        gate.wait(10)

    await send(cluster, b"x")
    client = quick_client(cluster, heartbeat_interval=0.05)
    consumer = await consume(cluster, TOPIC, handler, ordered=True, client=client, max_concurrency=1)
    await asyncio.to_thread(started.wait, 10)
    await owns(consumer, 2)
    heartbeats, locks = watch(cluster, 34), watch(cluster, 41)

    async def goes_on():
        return len(heartbeats) > 3 and len(locks) > 3

    await eventually(goes_on)
    assert topic_queues(consumer) == {0, 1}
    gate.set()
    await commits(cluster, 1)
