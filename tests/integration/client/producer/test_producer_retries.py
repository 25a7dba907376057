"""Attempts over sockets, against brokers that answer as they are told (mock_kit)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from tests.bounds import TOO_LONG
from tests.integration.client.producer.mock_kit import HANG, MockBroker, MockCluster, until

from pyromq.client.producer.producer import Producer
from pyromq.client.producer.producer_settings import DEFAULT_RETRY_CODES
from pyromq.client.producer.send_result import SendStatus
from pyromq.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    GoAway,
    RemoteProtocolError,
    RequestTimeout,
    SendFailed,
    SendTimeout,
    StateError,
    TooManyRequests,
)
from pyromq.protocol.message_queue import MessageQueue


@pytest.fixture
async def pair():
    """Two brokers with two queues each."""
    async with MockCluster(MockBroker("a"), MockBroker("b"), queues=2) as cluster:
        yield cluster


def queue(broker, number=0, topic="T"):
    return MessageQueue(broker_name=broker, queue_id=number, topic=topic)


# Both ways to send take the same decisions.
async def by_send(producer, *args, **settings):
    return await producer.send(*args, **settings)


async def by_submit(producer, *args, **settings):
    return await (await producer.submit(*args, **settings))


either = pytest.mark.parametrize("send", [by_send, by_submit])


@either
@pytest.mark.scenario("client 9")
async def test_with_one_broker_gone_all_messages_reach_the_other(send):
    async with MockCluster(MockBroker("b"), gone=["a"], queues=2) as cluster:
        async with Producer("makers", namesrv=cluster.namesrv) as producer:
            results = [await send(producer, "T", b"x") for _ in range(100)]
        assert {result.queue.broker_name for result in results} == {"b"}
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        # Both queues of the broker that is there get their turn, whichever was tried first.
        assert set(Counter(header.queue_id for header in cluster.brokers["b"].headers)) == {0, 1}
        assert len(cluster.brokers["b"].sends) == 100


@pytest.mark.scenario("client 10")
async def test_a_broker_that_never_answers_gets_one_attempt_and_all_the_time(pair):
    a, b = pair.brokers.values()
    a.always = b.always = HANG
    async with Producer("makers", namesrv=pair.namesrv, timeout=0.6) as producer:
        began = time.monotonic()
        with pytest.raises(RequestTimeout) as caught:
            await producer.send("T", b"x")
        assert 0.6 <= time.monotonic() - began < TOO_LONG
    assert isinstance(caught.value, SendTimeout)
    assert len(caught.value.attempts) == 1
    assert len(a.sends) + len(b.sends) == 1


@either
@pytest.mark.scenario("client 10")
async def test_with_a_cap_the_second_attempt_goes_to_another_broker(pair, send):
    a, b = pair.brokers.values()
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv, timeout=3.0, attempt_timeout=0.2) as producer:
        for _ in range(4):
            result = await send(producer, "T", b"x")
            assert result.queue.broker_name == "b"
    assert a.sends
    assert len(b.sends) == 4


@either
@pytest.mark.scenario("client 11")
@pytest.mark.parametrize("code", sorted(DEFAULT_RETRY_CODES - {1500}))
async def test_a_retriable_code_is_retried_on_another_broker(pair, send, code):
    a, b = pair.brokers.values()
    a.always = code
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        results = [await send(producer, "T", b"x") for _ in range(4)]
    assert {result.queue.broker_name for result in results} == {"b"}
    assert a.sends
    # A retry names the queue and the broker that it goes to, and keeps the message's id.
    assert {header.broker_name for header in b.headers} == {"b"}
    ids = {result.id for result in results}
    assert {b.properties(number)["UNIQ_KEY"] for number in range(4)} == ids


@either
@pytest.mark.scenario("client 11")
async def test_a_broker_that_says_go_away_is_left_for_another(pair, send):
    a, b = pair.brokers.values()
    a.always = 1500
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        results = [await send(producer, "T", b"x") for _ in range(4)]
    assert {result.queue.broker_name for result in results} == {"b"}
    assert len(b.sends) == 4


@either
async def test_a_broker_that_says_go_away_once_is_connected_to_anew(pair, send):
    a, _ = pair.brokers.values()
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        await producer.send("T", b"x", queue=queue("a"))
        a.always = 1500
        with pytest.raises(GoAway):
            await send(producer, "T", b"x", queue=queue("a"))
        assert len(a.sends) > 2
        a.always, a.answers = 0, [1500]
        assert (await send(producer, "T", b"x", queue=queue("a"))).status is SendStatus.SEND_OK


@either
@pytest.mark.scenario("client 11")
@pytest.mark.parametrize("code", [13, 24])
async def test_another_code_is_raised_at_once_with_what_the_broker_said(pair, send, code):
    for broker in pair.brokers.values():
        broker.always = code
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        with pytest.raises(BrokerError, match="as the test wants it") as caught:
            await send(producer, "T", b"x")
    assert (caught.value.code, caught.value.topic) == (code, "T")
    assert caught.value.address in {broker.address for broker in pair.brokers.values()}
    assert sum(len(broker.sends) for broker in pair.brokers.values()) == 1


@either
@pytest.mark.scenario("client 12")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_a_message_that_was_stored_without_being_confirmed_is_a_result(pair, send, code, status):
    for broker in pair.brokers.values():
        broker.always = code
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        assert (await send(producer, "T", b"x")).status is status
    assert sum(len(broker.sends) for broker in pair.brokers.values()) == 1


@either
@pytest.mark.scenario("client 12")
async def test_if_wished_for_an_unconfirmed_message_is_sent_to_another_broker(pair, send):
    a, b = pair.brokers.values()
    a.always = 10
    async with Producer("makers", namesrv=pair.namesrv, retry_not_stored=True) as producer:
        assert (await send(producer, "T", b"x")).queue.broker_name == "b"
        b.always = 12
        last = await send(producer, "T", b"x")
    assert last.status in (SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT)
    assert len(a.sends) + len(b.sends) in (1 + 3, 2 + 3)


@either
@pytest.mark.scenario("client 13")
async def test_a_given_queue_gets_one_attempt_and_its_own_error(send):
    async with MockCluster(MockBroker("b"), gone=["a"]) as cluster:
        async with Producer("makers", namesrv=cluster.namesrv) as producer:
            with pytest.raises(ConnectFailed, match="brokerIP1"):
                await send(producer, "T", b"x", queue=queue("a", 1))
            cluster.brokers["b"].always = 2
            with pytest.raises(BrokerError) as caught:
                await send(producer, "T", b"x", queue=queue("b", 1))
            assert caught.value.code == 2
        assert len(cluster.brokers["b"].sends) == 1


@either
async def test_after_the_last_attempt_the_error_says_what_was_tried(pair, send):
    for broker in pair.brokers.values():
        broker.always = 2
    async with Producer("makers", namesrv=pair.namesrv, retries=2) as producer:
        with pytest.raises(SendFailed, match="3 attempts") as caught:
            await send(producer, "T", b"x")
    first, second, third = (broker for broker, _ in caught.value.attempts)
    assert first != second != third
    assert caught.value.code == 2


@either
@pytest.mark.scenario("client 14")
async def test_with_fault_tolerance_a_broker_that_failed_once_is_left_alone(pair, send):
    a = pair.brokers["a"]
    async with Producer("makers", namesrv=pair.namesrv, fault_tolerance=True) as producer:
        a.answers = [2]
        while a.answers:
            await send(producer, "T", b"x")
        seen = len(a.sends)
        for _ in range(8):
            assert (await send(producer, "T", b"x")).queue.broker_name == "b"
        assert len(a.sends) == seen


@either
async def test_a_lost_connection_is_retried_on_another_broker(pair, send):
    a, b = pair.brokers.values()
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        for broker in (a, b):
            await producer.send("T", b"x", queue=queue(broker.name))
        a.always = HANG
        sending = [asyncio.create_task(send(producer, "T", b"x")) for _ in range(4)]
        await until(lambda: len(a.hanging) == 2)
        for connection in a.connections:
            connection.abort()
        assert {result.queue.broker_name for result in await asyncio.gather(*sending)} == {"b"}


async def test_a_lost_connection_is_the_error_of_a_send_to_a_given_queue(pair):
    a = pair.brokers["a"]
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        a.always = HANG
        sending = asyncio.create_task(producer.send("T", b"x", queue=queue("a")))
        await until(lambda: a.hanging)
        for connection in a.connections:
            connection.abort()
        with pytest.raises(ConnectionLost):
            await sending


@pytest.mark.scenario("client 20")
async def test_a_full_window_suspends_and_fails_only_at_its_own_timeout(pair):
    a = pair.brokers["a"]
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv, window=10) as producer:
        futures = [await producer.submit("T", b"x", queue=queue("a"), timeout=30) for _ in range(10)]
        began = time.monotonic()
        with pytest.raises(TooManyRequests):
            await producer.submit("T", b"x", queue=queue("a"), timeout=0.2)
        assert time.monotonic() - began >= 0.2
        waiting = asyncio.create_task(producer.submit("T", b"x", queue=queue("a"), timeout=30))
        await until(lambda: len(a.sends) == 10)
        assert not waiting.done()
        a.always = 0
        a.release()
        await (await waiting)
        assert {result.status for result in await asyncio.gather(*futures)} == {SendStatus.SEND_OK}
        assert (producer._window.count, producer._window.bytes, producer._pending) == (0, 0, set())


async def test_the_window_also_counts_bytes(pair):
    a = pair.brokers["a"]
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv, window_bytes=3000) as producer:
        for _ in range(2):
            await producer.submit("T", b"x" * 1400, queue=queue("a"), timeout=30)
        with pytest.raises(TooManyRequests, match="2800 bytes"):
            await producer.submit("T", b"x" * 1400, queue=queue("a"), timeout=0.05)
        a.release()
        await producer.flush()


async def test_flush_waits_for_what_was_submitted_before_it(pair):
    a = pair.brokers["a"]
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        first = await producer.submit("T", b"x", queue=queue("a"), timeout=30)
        flushing = asyncio.create_task(producer.flush())
        await until(lambda: a.hanging)
        held = a.hanging.copy()
        later = await producer.submit("T", b"y", queue=queue("a"), timeout=30)
        await until(lambda: len(a.hanging) == 2)
        assert not flushing.done()
        a.hanging, rest = held, a.hanging[1:]
        a.release()
        await flushing
        assert first.done()
        assert not later.done()
        a.hanging = rest
        a.release()
        await later


@pytest.mark.scenario("client 61")
async def test_a_cancelled_send_leaves_nothing_behind_and_the_connection_usable(pair):
    a = pair.brokers["a"]
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        await producer.send("T", b"x", queue=queue("a"))
        a.answers = [HANG]
        sending = asyncio.create_task(producer.send("T", b"x", queue=queue("a")))
        await until(lambda: a.hanging)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        (connection,) = (c for c in producer.client.remoting.endpoint.connections if c.context == a.address)
        assert connection.calls_under_way == 0
        a.release()
        await producer.send("T", b"x", queue=queue("a"))
        assert len(a.connections) == 1


async def test_a_cancelled_wait_for_the_window_leaves_nothing_behind(pair):
    a = pair.brokers["a"]
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv, window=1) as producer:
        await producer.submit("T", b"x", queue=queue("a"), timeout=30)
        waiting = asyncio.create_task(producer.submit("T", b"x", queue=queue("a"), timeout=30))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: a.hanging)
        a.release()
        await producer.flush()
        assert producer._window.count == 0


async def test_a_future_that_its_holder_cancelled_still_makes_room_when_it_is_answered(pair):
    a = pair.brokers["a"]
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv, window=1) as producer:
        future = await producer.submit("T", b"x", queue=queue("a"), timeout=30)
        await until(lambda: a.hanging)
        future.cancel()
        assert producer._window.count == 1
        a.always = 0
        a.release()
        await (await producer.submit("T", b"y", queue=queue("a"), timeout=30))


async def test_closing_ends_what_the_broker_never_answers(pair):
    for broker in pair.brokers.values():
        broker.always = HANG
    producer = await Producer("makers", namesrv=pair.namesrv, timeout=0.1).start()
    future = await producer.submit("T", b"x", timeout=60)
    async with asyncio.timeout(5):
        await producer.close()
    with pytest.raises(StateError, match="was closed"):
        await future


async def test_a_silent_connection_is_given_up_so_that_the_next_send_finds_out(pair):
    a = pair.brokers["a"]
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        await producer.send("T", b"x", queue=queue("a"))
        a.answers = [HANG]
        with pytest.raises(RequestTimeout):
            await producer.send("T", b"x", queue=queue("a"), timeout=0.1)
        await until(lambda: not a.connections)
        await producer.send("T", b"x", queue=queue("a"))
        a.answers = [HANG]
        future = await producer.submit("T", b"x", queue=queue("a"), timeout=0.1)
        with pytest.raises(RequestTimeout):
            await future
        await until(lambda: not a.connections)
        await producer.send("T", b"x", queue=queue("a"))


async def test_an_answer_that_does_not_say_where_the_message_is_is_an_error_and_no_retry(pair):
    for broker in pair.brokers.values():
        broker.answers = [{"queueOffset": "many"}] * 2
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        for send in (by_send, by_submit):
            with pytest.raises(RemoteProtocolError):
                await send(producer, "T", b"x")
    assert sum(len(broker.sends) for broker in pair.brokers.values()) == 2


async def test_a_broker_that_does_not_read_makes_submit_wait(pair):
    a = pair.brokers["a"]
    a.always = HANG
    async with Producer("makers", namesrv=pair.namesrv) as producer:
        await producer.submit("T", b"x", queue=queue("a"), timeout=30)
        await until(lambda: a.hanging)
        (connection,) = a.connections
        connection.transport.pause_reading()
        body = b"x" * 4000
        count = 0

        async def fill():
            nonlocal count
            while True:
                await producer.submit("T", body, queue=queue("a"), timeout=30)
                count += 1

        filling = asyncio.create_task(fill())
        before = -1
        while count != before:
            before = count
            await asyncio.sleep(0.05)
        # Far below the window: what stops it is the connection.
        assert 100 < count < 9000
        assert len(asyncio.all_tasks()) < 50
        connection.transport.resume_reading()
        await until(lambda: count > before)
        filling.cancel()
        a.always = 0
        await asyncio.wait([filling])
        await asyncio.sleep(0)
        while producer._pending:
            a.release()
            await asyncio.sleep(0.005)
