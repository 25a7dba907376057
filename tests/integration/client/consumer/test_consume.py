"""Concurrent consumers: what handlers get, what becomes of it, and how far the group is then."""

from __future__ import annotations

import asyncio
import os
import threading
import zlib
from datetime import UTC, datetime

import pytest
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
    refuse,
    send,
    send_many,
    serve,
    stored,
    watch,
)

from pyromq.client.consumer import concurrent
from pyromq.client.consumer.outcomes import Ack, AckUpTo, DeadLetter, Retry
from pyromq.client.consumer.push_consumer import Consumer
from pyromq.client.consumer.subscriptions import Sql
from pyromq.client.hooks import ConsumeReturn, Hook
from pyromq.client.producer.producer import Producer
from pyromq.errors import BrokerError, ConfigError, ConnectFailed, NoNameServer, ReplyError, StateError
from pyromq.protocol import sysflag
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import SendMessageV2
from pyromq.protocol.message import Message


async def test_a_coroutine_handler_gets_what_is_sent(cluster):
    await cluster.create_topic(TOPIC, 2)
    await send_many(cluster, 20, queues=2)
    basket = Basket()
    consumer = Consumer(GROUP, namesrv=cluster.namesrv)
    consumer.subscribe(TOPIC, "*", basket)
    async with consumer:
        assert sorted(await basket.holds(20)) == sorted(numbers(20))
    assert (await committed(cluster, 0), await committed(cluster, 1)) == (10, 10)


async def test_a_plain_handler_runs_in_threads(cluster, consume):
    await send_many(cluster, 10)
    got = []
    done = threading.Event()

    def handler(message):
        got.append((message.body, threading.current_thread() is threading.main_thread()))
        if len(got) == 10:
            done.set()

    await consume(cluster, TOPIC, handler)
    assert await asyncio.to_thread(done.wait, 10)
    assert sorted(got) == sorted((body, False) for body in numbers(10))
    await commits(cluster, 10)


@pytest.mark.parametrize("error", [StopIteration("end"), ValueError("no")])
async def test_whatever_a_plain_handler_raises_fails_its_message(impatient, consume, error):
    await send(impatient, b"x")
    got = []

    def handler(message):
        got.append(message.reconsume_times)
        if message.reconsume_times == 0:
            raise error

    await consume(impatient, TOPIC, handler)
    await commits(impatient, 1, topic=f"%RETRY%{GROUP}")
    assert got == [0, 1]


async def test_each_topic_has_its_own_decorated_handler(cluster):
    consumer = Consumer(GROUP, namesrv=cluster.namesrv)
    orders, refunds = Basket(), Basket()

    @consumer.on("orders")
    async def on_order(message):
        await orders.add(message)

    @consumer.on("refunds")
    async def on_refund(message):
        await refunds.add(message)

    await send(cluster, b"order", "orders")
    await send(cluster, b"refund", "refunds")
    async with consumer:
        assert await orders.holds(1) == [b"order"]
        assert await refunds.holds(1) == [b"refund"]


async def test_a_message_tells_where_it_comes_from(cluster, consume):
    basket = Basket()
    before = datetime.now(UTC)
    offset = await send(cluster, b"body", queue_id=2, TAGS="paid", KEYS="a b", UNIQ_KEY="0A" * 16, colour="red")
    await consume(cluster, TOPIC, basket)
    await basket.holds(1)
    (message,) = basket.messages
    assert (message.topic, message.body, message.tags, message.keys) == (TOPIC, b"body", "paid", ["a", "b"])
    assert (message.id, message.flag, message.reconsume_times) == ("0A" * 16, 7, 0)
    assert (message.queue.broker_name, message.queue.queue_id, message.offset) == ("broker-a", 2, offset)
    assert message.properties["colour"] == "red"
    assert {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"} <= message.properties.keys()
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert abs((message.stored_at - before).total_seconds()) < 5
    assert message.store_host == cluster.address()
    assert message.born_host.startswith("127.0.0.1:")
    assert message.commit_offset == int(message.offset_id[16:], 16)
    assert message.transaction_id is None


# Selecting


@pytest.mark.scenario("client 36")
async def test_of_tags_with_the_same_hash_only_the_wanted_one_comes(cluster, consume):
    for number, tag in enumerate(("BB", "Aa", "BB", "Aa")):
        await send(cluster, str(number).encode(), TAGS=tag)
    await send(cluster, b"4")
    basket = Basket()
    await consume(cluster, TOPIC, basket, expr="Aa")
    assert await basket.holds(2) == [b"1", b"3"]
    await commits(cluster, 4)
    assert len(basket.messages) == 2


async def test_what_a_predicate_refuses_counts_as_consumed(cluster, consume):
    await send_many(cluster, 10)
    basket = Basket()
    await consume(cluster, TOPIC, basket, where=lambda message: int(message.body) % 2)
    assert sorted(await basket.holds(5)) == [b"1", b"3", b"5", b"7", b"9"]
    await commits(cluster, 10)
    assert len(basket.messages) == 5


async def test_a_predicate_that_raises_fails_the_message(impatient, consume):
    await send(impatient, b"x")
    errors, answers = [], iter([ValueError("odd"), None])

    def where(message):
        if error := next(answers):
            raise error
        return True

    basket = Basket()
    await consume(impatient, TOPIC, basket, where=where, on_error=lambda error, message: errors.append(error))
    await basket.holds(1)
    assert basket.messages[0].reconsume_times == 1
    assert [str(error) for error in errors] == ["odd"]


async def test_an_expression_that_the_broker_does_not_understand_fails_the_start(cluster):
    await cluster.create_topic(TOPIC)
    consumer = Consumer(GROUP, {TOPIC: Sql("a >")}, namesrv=cluster.namesrv)
    with pytest.raises(BrokerError):
        await consumer.start()

    async def gone():
        return cluster.consumers(GROUP) == []

    await eventually(gone)  # the broker hears of it by the end of the connection


# Outcomes


@pytest.mark.scenario("client 38")
async def test_a_message_that_fails_comes_again_under_its_own_topic_and_ends_among_the_dead_letters(impatient, consume):
    await send(impatient, b"poison", UNIQ_KEY="0B" * 16)
    seen = watch(impatient, 36)
    basket = Basket()
    errors = []

    async def handler(message):
        await basket.add(message)
        raise ValueError("no")

    await consume(impatient, TOPIC, handler, on_error=lambda error, message: errors.append((str(error), message.body)))
    await basket.holds(17)
    (letter,) = await dead_letters(impatient, 1)
    assert [message.reconsume_times for message in basket.messages] == list(range(17))
    assert {(message.topic, message.id) for message in basket.messages} == {(TOPIC, "0B" * 16)}
    assert {message.queue.topic for message in basket.messages[1:]} == {f"%RETRY%{GROUP}"}
    assert (letter.body, letter.msg_id) == (b"poison", "0B" * 16)
    assert errors == [("no", b"poison")] * 17
    # The delay is left to the broker, which takes 10 s, then 30 s, and so on.
    assert {request.ext["delayLevel"] for request in seen} == {"0"}
    await commits(impatient, 1)


@pytest.mark.scenario("client 39")
async def test_a_dead_letter_is_one_at_once(cluster, consume):
    await send(cluster, b"bad")

    async def handler(message):
        return DeadLetter

    await consume(cluster, TOPIC, handler)
    assert [letter.body for letter in await dead_letters(cluster, 1)] == [b"bad"]
    await commits(cluster, 1)


@pytest.mark.slow
@pytest.mark.scenario("client 39")
async def test_a_retry_comes_after_the_delay_that_was_asked_for(cluster, consume, hurry):
    await send(cluster, b"later")
    basket = Basket()
    times = []

    async def handler(message):
        times.append(asyncio.get_running_loop().time())
        await basket.add(message)
        return Retry(1) if message.reconsume_times == 0 else None

    await consume(cluster, TOPIC, handler)
    await basket.holds(2)
    assert 0.9 < times[1] - times[0] < 2.5


async def test_retries_go_to_the_handler_of_their_own_topic(impatient):
    consumer = Consumer(GROUP, namesrv=impatient.namesrv)
    got = {"orders": Basket(), "refunds": Basket()}
    for topic in got:

        @consumer.on(topic)
        async def handler(message, basket=got[topic]):
            await basket.add(message)
            return Ack if message.reconsume_times else Retry

        await send(impatient, topic.encode(), topic)
    async with consumer:
        for topic, basket in got.items():
            assert await basket.holds(2) == [topic.encode()] * 2
            assert [message.topic for message in basket.messages] == [topic] * 2


@pytest.mark.scenario("client 41")
async def test_of_a_batch_the_rest_is_delivered_again(impatient, consume):
    await impatient.create_topic(TOPIC, 1)
    await send_many(impatient, 5)
    batches = []
    basket = Basket()

    async def handler(messages):
        batches.append([message.body for message in messages])
        for message in messages:
            await basket.add(message)
        return AckUpTo(1) if messages[0].reconsume_times == 0 else None

    await consume(impatient, TOPIC, handler, batch=5)
    await basket.holds(8)
    assert batches[0] == numbers(5)
    assert sorted(basket.bodies[5:]) == [b"2", b"3", b"4"]
    await commits(impatient, 5)


async def test_single_messages_of_a_batch_can_be_marked(impatient, consume):
    await impatient.create_topic(TOPIC, 1)
    await send_many(impatient, 4)
    basket = Basket()

    def handler(messages):  # plain: marks come from another thread
        again = messages[0].reconsume_times > 0
        for message in messages:
            basket.messages.append(message)
            if not again and message.body == b"1":
                message.retry(2)
            if message.body == b"2":
                message.dead_letter()
            if message.body == b"3":
                message.ack()
        if not again:
            raise ValueError("all the others failed")

    await consume(impatient, TOPIC, handler, batch=4)

    async def settled():
        return len(basket.messages) == 6

    await eventually(settled)
    assert sorted(basket.bodies[4:]) == [b"0", b"1"]
    assert [letter.body for letter in await dead_letters(impatient, 1)] == [b"2"]
    await commits(impatient, 4)


async def test_an_answer_that_is_none_is_a_failure_that_says_so(impatient, consume):
    await send(impatient, b"x")
    errors = []
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        return "ok" if message.reconsume_times == 0 else None

    await consume(impatient, TOPIC, handler, on_error=lambda error, message: errors.append(error))
    await basket.holds(2)
    (error,) = errors
    assert isinstance(error, TypeError)
    assert "Retry" in str(error)


@pytest.mark.scenario("client 40")
async def test_what_the_broker_will_not_take_back_is_sent_to_the_retry_topic(impatient, consume):
    refused, _ = refuse(impatient, 36)
    await send(impatient, b"x", UNIQ_KEY="0C" * 16, colour="red")
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        return Retry if message.reconsume_times == 0 else None

    await consume(impatient, TOPIC, handler)
    await basket.holds(2)
    again = basket.messages[1]
    assert (again.topic, again.id, again.reconsume_times, again.flag) == (TOPIC, "0C" * 16, 1, 7)
    assert again.properties["colour"] == "red"
    assert again.queue.topic == f"%RETRY%{GROUP}"
    assert len(refused) == 1
    await commits(impatient, 1)


async def test_a_dead_letter_that_the_broker_will_not_take_back_still_becomes_one(impatient, consume):
    refuse(impatient, 36)
    await send(impatient, b"x")

    async def handler(message):
        return DeadLetter

    await consume(impatient, TOPIC, handler)
    assert [letter.body for letter in await dead_letters(impatient, 1)] == [b"x"]


@pytest.mark.scenario("client 40")
async def test_what_no_broker_takes_is_tried_again_here_and_not_passed(impatient, consume, monkeypatch):
    monkeypatch.setattr(concurrent, "LOCAL_RETRY", 0.05)
    await send(impatient, b"0")
    await send(impatient, b"1")
    refuse(impatient, 36)
    _, send_before = refuse(impatient, 310)
    basket = Basket()
    times = []

    async def handler(message):
        if message.body == b"0":
            times.append(message.reconsume_times)
            await basket.add(message)
            return Retry if len(basket.messages) < 3 else None
        return None

    consumer = await consume(impatient, TOPIC, handler)
    await basket.holds(2)
    assert await committed(impatient) in (None, 0)
    await basket.holds(3)
    assert times == [0, 1, 2]
    await commits(impatient, 2)
    serve(impatient, 310, send_before)
    assert len(consumer.assignment) > 0


@pytest.mark.scenario("client 42")
async def test_a_handler_that_takes_too_long_has_its_message_given_back_once(impatient, consume):
    await impatient.create_topic(TOPIC, 1)
    seen = watch(impatient, 36)
    await send_many(impatient, 2)
    stuck = asyncio.Event()
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        if message.body == b"0" and message.reconsume_times == 0:
            await stuck.wait()
            return Retry
        return None

    await consume(impatient, TOPIC, handler, consume_timeout=0.1)
    await commits(impatient, 2)
    await basket.holds(3)
    assert basket.messages[2].reconsume_times == 1
    assert [request.ext["delayLevel"] for request in seen] == ["3"]
    stuck.set()  # its answer is ignored
    await commits(impatient, 1, topic=f"%RETRY%{GROUP}")
    assert len(seen) == 1


# Progress


@pytest.mark.scenario("client 37")
async def test_progress_stays_at_the_smallest_unfinished_message(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    await send_many(cluster, 10)
    gates = {body: asyncio.Event() for body in (b"0", b"5")}
    basket = Basket()

    async def handler(message):
        if message.body in gates:
            await gates[message.body].wait()
        await basket.add(message)

    await consume(cluster, TOPIC, handler)
    await basket.holds(8)
    await commits(cluster, 0)
    gates[b"0"].set()
    await commits(cluster, 5)
    gates[b"5"].set()
    await commits(cluster, 10)


@pytest.mark.scenario("client 32")
async def test_nothing_is_pulled_while_a_queue_holds_too_much(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    pulls = watch(cluster, 11)
    await send_many(cluster, 100)
    gate = asyncio.Event()
    basket = Basket()

    async def handler(message):
        await gate.wait()
        await basket.add(message)

    await consume(cluster, TOPIC, handler, max_cached=40, pull_batch=32, max_concurrency=1)

    def offsets():
        return [int(request.ext["queueOffset"]) for request in pulls if request.ext["topic"] == TOPIC]

    async def full():
        return offsets() == [0, 32]

    await eventually(full)
    await asyncio.sleep(0.2)  # it looks every 50 ms whether there is room again
    assert offsets() == [0, 32]
    gate.set()
    assert len(await basket.holds(100)) == 100


@pytest.mark.scenario("client 32")
async def test_nothing_is_pulled_while_one_message_keeps_the_others_too_far_ahead(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    pulls = watch(cluster, 11)
    await send_many(cluster, 60)
    gate = asyncio.Event()
    basket = Basket()

    async def handler(message):
        if message.body in (b"0", b"29"):
            await gate.wait()
        await basket.add(message)

    await consume(cluster, TOPIC, handler, max_span=20, pull_batch=10)

    def offsets():
        return [int(request.ext["queueOffset"]) for request in pulls if request.ext["topic"] == TOPIC]

    async def full():
        return offsets() == [0, 10, 20]

    await eventually(full)
    await asyncio.sleep(0.2)
    assert offsets() == [0, 10, 20]
    gate.set()
    assert len(await basket.holds(60)) == 60


@pytest.mark.scenario("client 33")
@pytest.mark.usefixtures("no_rounds")
async def test_a_message_is_delivered_as_soon_as_it_is_there(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    pulls = watch(cluster, 11)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket)
    await owns(consumer, 1)

    async def held():
        return len(cluster.broker._parts.pulls.held)

    await eventually(held)
    await send(cluster, b"now")
    await basket.holds(1)
    offsets = [int(request.ext["queueOffset"]) for request in pulls if request.ext["topic"] == TOPIC]
    assert offsets.count(0) == 1  # the one that the broker held brought it


async def test_a_paused_consumer_pulls_nothing_until_it_is_resumed(cluster, consume):
    await cluster.create_topic(TOPIC, 1)
    basket = Basket()
    consumer = await consume(cluster, TOPIC, basket)
    await owns(consumer, 1)
    consumer.pause()
    await send(cluster, b"0")  # the pull that waits at the broker still brings this one
    await basket.holds(1)
    await send(cluster, b"1")
    await asyncio.sleep(0.1)
    assert basket.bodies == [b"0"]
    await consumer.resume()
    assert await basket.holds(2) == [b"0", b"1"]


async def test_a_topic_can_be_subscribed_and_given_up_while_running(cluster, consume):
    await cluster.create_topic("other", 1)
    await cluster.create_topic(TOPIC, 1)
    basket, other = Basket(), Basket()
    consumer = await consume(cluster, TOPIC, basket)
    await owns(consumer, 1)
    consumer.subscribe("other", "*", other)
    await send(cluster, b"x", "other")
    await other.holds(1)
    await consumer.unsubscribe("other")
    assert {queue.topic for queue in consumer.assignment} == {TOPIC, f"%RETRY%{GROUP}"}
    assert await committed(cluster, topic="other") == 1
    await send(cluster, b"y", "other")
    await send(cluster, b"z")
    await basket.holds(1)
    assert other.bodies == [b"x"]


async def test_a_topic_that_comes_to_exist_later_is_consumed(cluster, consume):
    basket = Basket()
    await consume(cluster, TOPIC, basket)
    await send(cluster, b"first")
    assert await basket.holds(1) == [b"first"]


# Starting


async def test_a_consumer_without_name_servers_does_not_start(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    consumer = Consumer(GROUP, {TOPIC: "*"})
    with pytest.raises(NoNameServer):
        await consumer.start()


async def test_a_consumer_whose_name_servers_are_down_does_not_start(cluster):
    await cluster.stop_name_server()
    consumer = Consumer(GROUP, {TOPIC: "*"}, namesrv=cluster.namesrv)
    with pytest.raises(ConnectFailed):
        await consumer.start()
    await consumer.close()


async def test_handlers_and_loops_exclude_each_other(cluster, consume):
    consumer = Consumer(GROUP, {TOPIC: "*"}, namesrv=cluster.namesrv)
    consumer.subscribe("other", "*", Basket())
    with pytest.raises(StateError):
        await consumer.start()
    running = await consume(cluster, TOPIC, Basket())
    with pytest.raises(StateError):
        aiter(running)
    with pytest.raises(StateError):
        running.subscribe("third")


async def test_a_consumer_that_does_not_run_says_so(cluster):
    consumer = Consumer(GROUP, namesrv=cluster.namesrv)
    with pytest.raises(ConfigError):
        await consumer.start()  # subscribes to nothing
    consumer.subscribe(TOPIC)
    with pytest.raises(StateError):
        consumer.pause()
    with pytest.raises(StateError):
        aiter(consumer)
    await consumer.close()
    async with consumer:
        with pytest.raises(StateError):
            await consumer.start()
    with pytest.raises(StateError):
        aiter(consumer)
    with pytest.raises(StateError):
        await consumer.start()


async def test_two_consumers_of_one_group_do_not_share_a_client(cluster, client_of, consume):
    client = await client_of(cluster)
    await consume(cluster, TOPIC, Basket(), client=client)
    with pytest.raises(StateError):
        await consume(cluster, TOPIC, Basket(), client=client)


# Hooks


async def test_hooks_hear_of_each_handler_call(impatient, consume):
    class Watcher(Hook):
        def __init__(self):
            self.before, self.after = [], []

        def before_consume(self, context):
            self.before.append([message.body for message in context.messages])
            raise ValueError("changes nothing")

        async def after_consume(self, context):
            self.after.append((context.group, context.success, context.returned, context.status))

    watcher = Watcher()
    await send(impatient, b"x")
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        if message.reconsume_times == 0:
            raise ValueError("no")

    await consume(impatient, TOPIC, handler, client=quick_client(impatient, hooks=[watcher]))
    await basket.holds(2)

    async def heard():
        return len(watcher.after) == 2

    await eventually(heard)
    assert watcher.before == [[b"x"], [b"x"]]
    assert watcher.after == [
        (GROUP, False, ConsumeReturn.EXCEPTION, "Retry"),
        (GROUP, True, ConsumeReturn.SUCCESS, "Ack"),
    ]


async def test_a_namespace_is_not_seen_by_handlers(impatient, consume):
    basket = Basket()
    await send(impatient, b"x", "tenant%orders")

    async def handler(message):
        await basket.add(message)
        return Retry if message.reconsume_times == 0 else None

    await consume(impatient, TOPIC, handler, client=quick_client(impatient, namespace="tenant"))
    await basket.holds(2)
    assert [message.topic for message in basket.messages] == [TOPIC, TOPIC]
    assert basket.messages[1].queue.topic == f"%RETRY%tenant%{GROUP}"
    await commits(impatient, 1, topic="tenant%orders", group=f"tenant%{GROUP}")


async def test_a_consumer_traces_what_it_does(impatient, consume):
    await send(impatient, b"x", UNIQ_KEY="0D" * 16, KEYS="k1")
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        return Retry if message.reconsume_times == 0 else None

    consumer = await consume(impatient, TOPIC, handler, client=quick_client(impatient, trace="traces"))
    await basket.holds(2)
    await consumer.close()
    found = [message for queue in range(4) for message in await stored(impatient, "traces", queue)]
    records = [record.split("\x01") for message in found for record in message.body.decode().split("\x02") if record]
    assert {"0D" * 16, "k1"} <= {key for message in found for key in message.keys}
    before = [record for record in records if record[0] == "SubBefore"]
    after = [record for record in records if record[0] == "SubAfter"]
    assert [(record[3], record[5], record[6]) for record in before] == [
        (GROUP, "0D" * 16, "0"),
        (GROUP, "0D" * 16, "1"),
    ]
    assert [(record[2], record[4], record[6]) for record in after] == [
        ("0D" * 16, "false", "4"),
        ("0D" * 16, "true", "0"),
    ]
    assert [record[4] for record in before] == [record[1] for record in after]


async def test_a_request_is_answered_through_the_broker_that_it_came_from(cluster, consume):
    replies = watch(cluster, 325)
    results = []
    basket = Basket()

    async def handler(message):
        try:
            results.append(await message.reply(b"answer"))
        except (ReplyError, BrokerError) as exc:
            results.append(exc)
        await basket.add(message)

    await cluster.create_topic(TOPIC, 1)
    await send(cluster, b"no request")
    await consume(cluster, TOPIC, handler)
    await basket.holds(1)
    assert isinstance(results[0], ReplyError)
    await send(cluster, b"request", CORRELATION_ID="c1", REPLY_TO_CLIENT="gone", TTL="3000")
    await basket.holds(2)
    (reply,) = replies
    assert reply.body_bytes == b"answer"
    assert reply.ext["b"] == "DefaultCluster_REPLY_TOPIC"
    assert "CORRELATION_ID\x01c1" in reply.ext["i"]


async def test_who_asks_gets_the_answer(cluster, consume):
    await cluster.create_topic(TOPIC, 1)

    async def handler(message):
        await message.reply(b"re: " + message.body)

    consumer = await consume(cluster, TOPIC, handler)
    await owns(consumer, 1)
    async with Producer("askers", namesrv=cluster.namesrv) as producer:
        answer = await producer.request(Message(TOPIC, b"question"), timeout=5.0)
    assert answer.body == b"re: question"


async def test_a_large_compressed_body_is_opened_before_the_handler_gets_it(cluster, consume):
    body = os.urandom(100_000)
    header = SendMessageV2("p", TOPIC, "TBW102", 4, 0, sysflag.with_compression(0, sysflag.ZLIB), 1, 0)
    await cluster.peer.ask(cluster.address(), RequestCode.SEND_MESSAGE_V2, header, zlib.compress(body))
    basket = Basket()
    await consume(cluster, TOPIC, basket)
    assert await basket.holds(1) == [body]


async def test_a_handler_that_cancels_what_it_waits_for_fails_and_the_worker_goes_on(impatient, consume):
    await impatient.create_topic(TOPIC, 1)
    await send_many(impatient, 2)
    basket = Basket()

    async def handler(message):
        await basket.add(message)
        if message.body == b"0" and message.reconsume_times == 0:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(10)

    await consume(impatient, TOPIC, handler, max_concurrency=1)
    assert sorted(await basket.holds(3)) == [b"0", b"0", b"1"]
    assert not await stored(impatient, f"%DLQ%{GROUP}")
