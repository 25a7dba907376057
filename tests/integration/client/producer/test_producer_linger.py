"""How many requests leave with linger, counted by a mock broker."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.client.producer.mock_kit import HANG, MockBroker, MockCluster, until

from pyromq.client.producer.producer import Producer
from pyromq.errors import SendFailed
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.codes import RequestCode


@pytest.fixture
async def pair():
    async with MockCluster(MockBroker("a"), MockBroker("b"), queues=1) as cluster:
        yield cluster


def batches(broker):
    return [request for request in broker.sends if request.code == RequestCode.SEND_BATCH_MESSAGE]


async def test_many_messages_leave_in_few_requests(pair):
    async with Producer("makers", namesrv=pair.namesrv, linger=0.02) as producer:
        for queue in await producer.queues("T"):
            await producer.send("T", b"x", queue=queue)  # so that both are connected to
        for number in range(200):
            await producer.submit("T", b"%d" % number)
        await producer.flush()
    requests = [request for broker in pair.brokers.values() for request in batches(broker)]
    assert len(requests) <= 10
    bodies = [item.body for request in requests for item in decode_batch(request.body_bytes)]
    assert sorted(map(int, bodies)) == list(range(200))
    assert {request.ext["m"] for request in requests} == {"true"}


async def test_a_batch_is_retried_as_a_whole_on_another_broker(pair):
    a, b = pair.brokers.values()
    a.always = 2
    async with Producer("makers", namesrv=pair.namesrv, linger=60.0, timeout=100) as producer:
        for _ in range(2):
            futures = [await producer.submit("T", b"%d" % number) for number in range(10)]
            await producer.flush()
            assert {future.result().queue.broker_name for future in futures} == {"b"}
    assert batches(a)
    assert len(batches(b)) == 2


async def test_when_a_batch_fails_all_its_messages_do_and_the_window_is_empty_again(pair):
    for broker in pair.brokers.values():
        broker.always = 2
    async with Producer("makers", namesrv=pair.namesrv, linger=60.0, timeout=100) as producer:
        futures = [await producer.submit("T", b"x") for _ in range(5)]
        await producer.flush()
        for future in futures:
            with pytest.raises(SendFailed):
                await future
        assert producer._window.count == 0


async def test_lingering_messages_count_for_the_window(pair):
    async with Producer("makers", namesrv=pair.namesrv, linger=0.02, window=10) as producer:
        for broker in pair.brokers.values():
            broker.always = HANG
        for _ in range(10):
            await producer.submit("T", b"x", timeout=30)
        waiting = asyncio.create_task(producer.submit("T", b"x", timeout=30))
        await until(lambda: any(broker.hanging for broker in pair.brokers.values()))
        assert not waiting.done()
        for broker in pair.brokers.values():
            broker.always = 0
            broker.release()
        await (await waiting)
