"""Traces: found in the broker by the ids of the messages they describe."""

from __future__ import annotations

import asyncio

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.life_kit import PATIENCE, eventually
from tests.integration.client.producer.mock_kit import HANG, MockBroker, MockCluster, until
from tests.integration.client.producer.reading_kit import stored

from pyromq.client.client import Client
from pyromq.client.producer.producer import Producer
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import QueryMessage
from pyromq.protocol.message import Message, MessageExt, decode_records

LONG_AGO, FAR_AHEAD = 0, 2**62


async def traces(cluster, topic, key):
    """The records that a query for `key` finds, as lists of their fields."""
    header = QueryMessage(topic, key, 32, LONG_AGO, FAR_AHEAD)
    reply = await cluster.peer.invoke(cluster.address(), Command.request(RequestCode.QUERY_MESSAGE, header), PATIENCE)
    found = [MessageExt(record) for record in decode_records(reply.body_bytes)] if not reply.code else []
    return [
        record.split("\x01")
        for message in found
        for record in message.body.decode().split("\x02")
        if record and key in record
    ]


@pytest.mark.scenario("client 26")
@pytest.mark.parametrize(("setting", "topic"), [(True, "RMQ_SYS_TRACE_TOPIC"), ("my-traces", "my-traces")])
async def test_a_send_is_traced_and_found_by_its_id_and_by_its_key(cluster, client_of, setting, topic):
    client = await client_of(cluster, trace=setting)
    async with Producer("makers", client=client) as producer:
        result = await producer.send("orders", b"hello", tags="TagA", keys=["k-17"])
        later = await (await producer.submit("orders", b"hello", delay_level=3))
        await producer.send_oneway("orders", b"nobody knows")
    (record,) = await traces(cluster, topic, result.id)
    assert await traces(cluster, topic, "k-17") == [record]
    kind, time_ms, region, group, of, msg_id, tags, keys, address, size, cost, message_type, offset_id, success = record
    assert (kind, region, group, of, msg_id) == ("Pub", "DefaultRegion", "makers", "orders", result.id)
    assert (tags, keys, address, size) == ("TagA", "k-17", cluster.address(), "5")
    assert (message_type, offset_id, success) == ("0", result.offset_id, "true")
    assert int(time_ms) > 1_600_000_000_000
    assert int(cost) < 5000
    (delayed,) = await traces(cluster, topic, later.id)
    assert delayed[11] == "3"
    # What was sent without an answer, and the traces themselves, are not traced.
    (message,) = await stored(cluster, topic, 8)
    assert message.body.count(b"\x02") == 2


async def test_each_message_of_a_batch_is_found_by_its_id(cluster, client_of):
    client = await client_of(cluster, trace=True)
    async with Producer("makers", client=client) as producer:
        (result,) = await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")])
    for one in result.id.split(","):
        (record,) = await traces(cluster, "RMQ_SYS_TRACE_TOPIC", one)
        assert record[5] == result.id


@pytest.mark.slow
async def test_a_trace_leaves_by_itself(cluster, client_of):
    client = await client_of(cluster, trace=True)
    async with Producer("makers", client=client) as producer:
        result = await producer.send("orders", b"hello")
        async with asyncio.timeout(TOO_LONG):
            await eventually(lambda: traces(cluster, "RMQ_SYS_TRACE_TOPIC", result.id))


@pytest.mark.scenario("client 26")
async def test_traces_that_cannot_be_sent_hold_nobody_up_and_are_dropped():
    broker = MockBroker("a")
    async with MockCluster(broker) as cluster:
        producer = await Producer("makers", client=Client(cluster.namesrv, trace=True)).start()
        trace = producer._trace
        assert trace is not None
        assert trace._sending is not None
        await producer.send("T", b"x")
        broker.answers = [HANG]
        trace._sending.wake()
        await until(lambda: broker.hanging)
        async with asyncio.timeout(20):
            for _ in range(1100):
                await producer.send("T", b"x")
        assert trace.dropped == 1100 - 1024
        broker.always = 13
        broker.release()
        await producer.close()
        assert trace.dropped == 1100
