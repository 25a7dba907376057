"""POP in a group that fails over: what was popped and not acknowledged comes back, from the next master, too."""

from __future__ import annotations

import pytest
from tests.integration.broker.failover.group_kit import in_sync, is_master
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.pop_kit import QUICK, REVIVE, ack, bodies, pop
from tests.integration.broker.scene_kit import GROUP, TOPIC

from pyromq import Client
from pyromq.client.admin import AdminClient
from pyromq.protocol.codes import RequestCode

pytestmark = pytest.mark.slow

SETS = (*QUICK, "brokerName=broker-a")


async def copied(slave, offset):
    """Wait until a slave knows how far the group is."""
    client = await slave.connect()
    asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}

    async def known():
        return (await client.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext.get("offset") == str(offset)

    await eventually(known)


@pytest.mark.parametrize("how", ["elected", "stopped"])
async def test_what_is_popped_is_acknowledged_at_the_next_master_or_comes_back(group, how):
    first = await group.start("a", *SETS)
    await is_master(first)
    second = await group.start("b", *SETS)
    await in_sync(first, 1, 2)
    client = await first.connect()
    for number in range(8):
        await client.sent(b"%d" % number, queue_id=0)
    some = await pop(client, 0, count=5, invisible=4000)
    assert bodies(some) == [b"0", b"1", b"2", b"3", b"4"]
    await ack(client, *some[:2])
    # Slaves copy offsets every few seconds. Until then the next master gives out again what was popped.
    await copied(second, 5)

    if how == "stopped":
        await group.stop("a")
    else:
        async with Client(group.namesrv) as tools, AdminClient(client=tools) as admin:
            await admin.controllers.elect([group.controller.address], "DefaultCluster", "broker-a", 2)
    await is_master(second)
    client = await second.connect()
    await ack(client, some[2])
    # The others come now, those that were popped when their time is over, and what was acknowledged never again.
    assert bodies(await pop(client, 0, invisible=60_000)) == [b"5", b"6", b"7"]
    again = await pop(client, poll=10_000, invisible=60_000)
    while len(again) < 2:
        again += await pop(client, poll=10_000, invisible=60_000)
    assert bodies(again) == [b"3", b"4"]
    assert await pop(client, poll=1500) == []


async def test_an_ack_counts_although_readers_do_not_see_it_yet(group):
    """The slave stops to confirm just before the ack is to be read: it is in the log, and nobody may see it."""
    slow = ("haMaxTimeSlaveNotCatchup=3000", "checkSyncStateSetPeriod=100")
    master = await group.start("a", *SETS, *slow)
    await is_master(master)
    slave = await group.start("b", *SETS)
    await in_sync(master, 1, 2)
    client = await master.connect()
    await client.sent(b"done", queue_id=0)
    await ack(client, *await pop(client, 0, invisible=2500))
    queues = master.broker._parts.context.store.queues

    async def checkpoint_is_there():
        return any((queue := queues.find(REVIVE, number)) and queue.max_offset for number in range(8))

    await eventually(checkpoint_is_there)
    slave.broker._parts.replication._following.keep = lambda copying, pieces: None
    await in_sync(master, 1)
    assert await pop(client, poll=2000) == []
    assert master.broker._parts._pops._reviver.revived == 0
