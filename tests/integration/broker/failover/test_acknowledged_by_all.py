"""What producers are answered while members of the in-sync set are missing (docs/spec/controller.md 4.6 and 7)."""

from __future__ import annotations

import pytest
from tests.integration.broker.failover.group_kit import in_sync, is_master, is_slave
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import end
from tests.integration.broker.scene_kit import batch_body, properties_text, send_ext

from pyromq.protocol.codes import RequestCode


@pytest.mark.slow
@pytest.mark.scenario("controller 9")
async def test_too_few_in_the_set_is_refused_before_anything_is_stored(group):
    broker = await group.start("a", "minInSyncReplicas=2")
    await is_master(broker)
    client = await broker.connect()
    await client.create_topic()
    before = end(broker)
    reply = await client.put(b"alone")
    assert (reply.code, reply.remark) == (1, "in-sync replicas not enough")
    batch = await client.call(RequestCode.SEND_BATCH_MESSAGE, send_ext(batch=True), batch_body(b"1", b"2"))
    assert (batch.code, batch.remark) == (1, "in-sync replicas not enough")
    assert end(broker) == before
    # Whoever does not wait for copies does not care how many there are.
    assert (await client.put(b"careless", properties=properties_text(WAIT="false"))).code == 0
    assert [message.body for message in await client.read()] == [b"careless"]

    slave = await group.start("b")
    await is_slave(slave)
    await in_sync(broker, 1, 2)
    await client.sent(b"together")
    assert end(slave) == end(broker)


@pytest.mark.slow
@pytest.mark.scenario("controller 8")
async def test_a_silent_member_holds_up_answers_and_readers_until_it_leaves_the_set(group):
    sets = ("slaveTimeout=200", "haMaxTimeSlaveNotCatchup=1500", "checkSyncStateSetPeriod=100")
    broker = await group.start("a", *sets)
    await is_master(broker)
    slave = await group.start("b")
    await is_slave(slave)
    await in_sync(broker, 1, 2)
    client = await broker.connect()
    await client.sent(b"first")

    # It is connected and takes nothing any more.
    follower = slave.broker._parts.replication._following
    follower.keep = lambda copying, pieces: None
    reply = await client.put(b"second")
    assert reply.code == 12
    assert [message.body for message in await client.read()] == [b"first"]
    assert await client.max_offset() == 1
    # Who has to know whether something was stored asks for what nobody may read yet.
    asked = {"topic": "T", "queueId": "0", "committed": "false"}
    assert (await client.call(RequestCode.GET_MAX_OFFSET, asked)).ext["offset"] == "2"

    await in_sync(broker, 1)

    async def seen():
        return await client.max_offset() == 2

    await eventually(seen)
    assert [message.body for message in await client.read()] == [b"first", b"second"]
    await client.sent(b"third")


@pytest.mark.slow
async def test_a_master_that_is_left_alone_goes_on_without_waiting_for_all(group):
    """`inSyncReplicas` counts among the set: a master alone has nobody to wait for."""
    broker = await group.start("a", "allAckInSyncStateSet=false")
    await is_master(broker)
    client = await broker.connect()
    await client.create_topic()
    await client.sent(b"alone")
    slave = await group.start("b", "allAckInSyncStateSet=false")
    await is_slave(slave)
    await in_sync(broker, 1, 2)
    await client.sent(b"together")
    assert end(slave) == end(broker)
    await group.stop("b")
    await in_sync(broker, 1)
    await client.sent(b"alone again")
