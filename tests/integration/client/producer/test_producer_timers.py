"""Our client and our broker: messages with a delivery time of their own, and their recall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.producer.reading_kit import stored

from pyromq.client.producer.producer import Producer
from pyromq.errors import IllegalOperation, InvalidMessage, MessageIllegal, NoPermission

TOPIC = "reminders"
FINE = "timerPrecisionMs=100"
RECALL = "recallMessageEnable=true"


@pytest.fixture
async def cluster(cluster_with):
    cluster = await cluster_with(FINE, RECALL)
    await cluster.create_topic(TOPIC, 1)
    return cluster


@pytest.fixture
async def producer(cluster):
    async with Producer("makers", namesrv=cluster.namesrv) as producer:
        yield producer


async def arrived(cluster, count):
    """The messages in the order in which they came, once there are so many."""

    async def enough():
        found = await stored(cluster, TOPIC)
        return found if len(found) >= count else None

    return await eventually(enough)


@pytest.mark.scenario("client 25")
@pytest.mark.slow
async def test_a_message_comes_at_its_time_and_a_recalled_one_never(cluster, producer):
    now = datetime.now(UTC)
    at = await producer.send(TOPIC, b"at", deliver_at=now + timedelta(seconds=4))  # after the next, however slow we are
    after = await producer.send(TOPIC, b"after", delay=timedelta(milliseconds=500))
    recalled = await producer.send(TOPIC, b"recalled", deliver_at=now + timedelta(seconds=0.8))
    assert recalled.recall_handle is not None
    assert await producer.recall(TOPIC, recalled.recall_handle) == recalled.id
    assert await stored(cluster, TOPIC) == []
    found = await arrived(cluster, 2)
    assert [(message.body, message.msg_id) for message in found] == [(b"after", after.id), (b"at", at.id)]
    late = [
        message.record.store_timestamp - int(1000 * (now + timedelta(seconds=asked)).timestamp())
        for message, asked in zip(found, (0.5, 4.0), strict=True)
    ]
    assert all(0 <= millis < 1000 * TOO_LONG for millis in late), late


async def test_a_timer_survives_the_restart_of_the_broker(cluster, producer):
    sent = await producer.send(TOPIC, b"later", delay=timedelta(milliseconds=400))
    await cluster.restart_broker()
    (found,) = await arrived(cluster, 1)
    assert found.msg_id == sent.id


async def test_a_time_in_the_past_is_now(cluster, producer):
    await producer.send(TOPIC, b"now", deliver_at=datetime.now(UTC) - timedelta(days=1))
    assert [message.body for message in await stored(cluster, TOPIC)] == [b"now"]


async def test_a_time_too_far_away_is_refused(producer):
    with pytest.raises(MessageIllegal, match="max delay 259200000ms"):
        await producer.send(TOPIC, b"never", delay=timedelta(days=4))


async def test_what_cannot_be_recalled_says_why(cluster, producer):
    sent = await producer.send(TOPIC, b"soon", delay=timedelta(milliseconds=200))
    with pytest.raises(IllegalOperation, match="topic not match"):
        await producer.recall("broker-a", sent.recall_handle)
    await arrived(cluster, 1)
    with pytest.raises(IllegalOperation, match="timestamp invalid"):
        await producer.recall(TOPIC, sent.recall_handle)
    with pytest.raises(InvalidMessage):
        await producer.recall(TOPIC, "no handle")
    await cluster.peer.configure(cluster.address(), "recallMessageEnable=false")
    with pytest.raises(NoPermission):
        await producer.recall(TOPIC, sent.recall_handle)
