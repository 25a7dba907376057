"""The admin client and our own producer and consumer: what one does, the other sees."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.integration.client.admin.admin_kit import GROUP, TOPIC, queue
from tests.integration.client.cluster_kit import eventually

from pyromq.client.admin import AdminClient, TrackState
from pyromq.client.consumer.push_consumer import Consumer
from pyromq.client.producer.producer import Producer
from pyromq.protocol.bodies import CMResult
from pyromq.protocol.message import Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATIENCE = 30.0


class Received:
    """Bodies as they come; the handler of a consumer."""

    def __init__(self):
        self.bodies: asyncio.Queue[bytes] = asyncio.Queue()
        self.fails = False

    async def __call__(self, message):
        self.bodies.put_nowait(message.body)
        if self.fails:
            raise RuntimeError("not now")

    async def next(self):
        async with asyncio.timeout(PATIENCE):
            return await self.bodies.get()


@pytest.fixture
async def received(cluster, topic, client_of):
    """A consumer of the group, with all queues of the topic."""
    received = Received()
    consumer = Consumer(GROUP, client=await client_of(cluster, offset_interval=0.05))
    consumer.subscribe(TOPIC, "*", received)
    async with consumer:

        async def has_all_queues():
            return len([owned for owned in consumer.assignment if owned.topic == TOPIC]) == 4

        await eventually(has_all_queues)
        yield received


@pytest.fixture
async def producer(cluster):
    async with Producer("producers", namesrv=cluster.namesrv) as producer:
        yield producer


async def caught_up(admin):
    async def lag_is_gone():
        progress = await admin.groups.progress(GROUP, TOPIC)
        return progress if progress.lag == 0 and any(row.consumer_offset for row in progress.rows) else None

    return await eventually(lag_is_gone)


@pytest.mark.scenario("client 48")
async def test_a_running_consumer_tells_all_about_itself(cluster, admin, received, producer):
    await producer.send(Message(TOPIC, b"seen"), queue=queue(1))
    assert await received.next() == b"seen"
    await caught_up(admin)
    [member] = (await admin.groups.connections(GROUP)).connection_set
    info = await admin.clients.running_info(GROUP, member.client_id, stacks=True)
    assert {owned for owned in info.mq_table if owned.topic == TOPIC} == {queue(number) for number in range(4)}
    assert info.mq_table[queue(1)].commit_offset == 1
    assert {each.topic for each in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CLIENT_VERSION"]
    assert TOPIC in info.status_table
    assert info.jstack
    progress = await admin.groups.progress(GROUP, TOPIC, clients=True)
    assert {row.client_id for row in progress.rows} == {member.client_id}
    assert (await admin.clients.consume_status(GROUP, TOPIC))[member.client_id][queue(1)] == 1


@pytest.mark.scenario("client 48")
async def test_a_running_consumer_handles_a_message_on_request(admin, received, producer):
    sent = await producer.send(Message(TOPIC, b"again", tags="red"))
    assert await received.next() == b"again"
    progress = await caught_up(admin)
    message = await admin.messages.by_offset_id(sent.offset_id)
    assert message.msg_id == sent.id
    result = await admin.messages.consume_directly(GROUP, message)
    assert await received.next() == b"again"
    assert (result.consume_result, result.order, result.auto_commit) == (CMResult.CR_SUCCESS, False, True)
    received.fails = True
    result = await admin.messages.consume_directly(GROUP, sent.offset_id)
    assert result.consume_result is CMResult.CR_THROW_EXCEPTION
    assert "not now" in result.remark
    # Neither moved the group's offsets.
    assert [row.consumer_offset for row in (await admin.groups.progress(GROUP, TOPIC)).rows] == [
        row.consumer_offset for row in progress.rows
    ]
    [track] = await admin.messages.track(message)
    assert (track.group, track.state) == (GROUP, TrackState.CONSUMED)


@pytest.mark.scenario("client 47")
async def test_a_running_consumer_goes_back_to_a_time(admin, received, producer):
    for number in range(4):
        await producer.send(Message(TOPIC, b"%d" % number), queue=queue(number))
    assert {await received.next() for _ in range(4)} == {b"0", b"1", b"2", b"3"}
    await caught_up(admin)
    result = await admin.offsets.reset(GROUP, TOPIC, EPOCH)
    assert result.online == ("broker-a",)
    assert {await received.next() for _ in range(4)} == {b"0", b"1", b"2", b"3"}


async def test_an_admin_on_the_client_of_a_producer(cluster, client_of, topic):
    client = await client_of(cluster)
    async with Producer("producers", client=client) as producer, AdminClient(client=client) as admin:
        sent = await producer.send(Message(TOPIC, b"found", keys=["k"]))
        [message] = await admin.messages.by_key(TOPIC, "k")
        assert message.msg_id == sent.id
        assert [member.client_id for member in await admin.groups.producers("producers", TOPIC)] == [client.client_id]
