"""What changes around a group: the addresses of its brokers, and a name server that goes and comes back."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.broker.failover.group_kit import FailoverGroup, in_sync, is_master, is_slave, new_controller
from tests.integration.broker.life_kit import Peer, eventually, new_name_server
from tests.integration.broker.replication_kit import end
from tests.ports import free_port

from pyromq import Client
from pyromq.client.admin import AdminClient

pytestmark = pytest.mark.slow


async def same(*scenes):
    async def equal():
        return len({end(scene) for scene in scenes}) == 1

    await eventually(equal)


@pytest.fixture
async def addresses(group):
    """What the controller says where the brokers are, by id."""
    async with Client(group.namesrv) as client, AdminClient(client=client) as admin:

        async def told():
            info = (await admin.controllers.replicas([group.controller.address], ["g"]))["g"]
            return {
                each.broker_id: each.broker_address for each in (*info.in_sync_replicas, *info.not_in_sync_replicas)
            }

        yield told


@pytest.mark.scenario("controller 21")
async def test_brokers_that_moved_find_each_other_again(group, addresses):
    """Each start is at another port; first the master moves, then its successor."""
    first = await group.start("a")
    await is_master(first)
    second = await group.start("b")
    await in_sync(first, 1, 2)
    at = {1: first.broker.address, 2: second.broker.address}
    assert await addresses() == at

    await group.stop("a")
    await is_master(second)
    first = await group.start("a")
    assert first.broker.address != at[1]
    await in_sync(second, 1, 2)
    assert await addresses() == {1: first.broker.address, 2: at[2]}
    await (await second.connect()).sent(b"one", queue_id=0)
    await same(first, second)

    # Now it is the other that follows, and knows only the old address of this one.
    await group.stop("b")
    await is_master(first)
    second = await group.start("b")
    assert second.broker.address != at[2]
    await in_sync(first, 1, 2)
    assert await addresses() == {1: first.broker.address, 2: second.broker.address}
    client = await first.connect()
    await client.sent(b"two", queue_id=0)
    await same(first, second)
    assert [message.body for message in await client.read(queue_id=0)] == [b"one", b"two"]
    assert group.log("a") == group.log("b")


@pytest.mark.scenario("controller 21")
async def test_a_slave_follows_its_master_to_a_new_address(group, addresses):
    """The same broker is master again, and its slave never stopped: a learner, which nobody elects meanwhile."""
    master = await group.start("a")
    await is_master(master)
    learner = await group.start("b", "asyncLearner=true")
    await is_slave(learner)
    old = master.broker.address
    await (await master.connect()).sent(b"one", queue_id=0)
    await same(master, learner)
    await group.stop("a")
    master = await group.start("a")
    assert master.broker.address != old
    await is_master(master)
    assert (await addresses())[1] == master.broker.address
    client = await master.connect()
    await client.sent(b"two", queue_id=0)
    await same(master, learner)
    assert [message.body for message in await client.read(queue_id=0)] == [b"one", b"two"]
    assert group.log("a") == group.log("b")


@pytest.mark.scenario("controller 28")
async def test_a_name_server_that_was_restarted_knows_the_group_again(tmp_path):
    """Replication is not touched by it: the same connection goes on, and messages are taken all the while."""
    port = free_port()
    async with (
        asyncio.timeout(120),
        new_controller(tmp_path) as controller,
        contextlib.AsyncExitStack() as of_name_server,
        Peer() as peer,
        contextlib.AsyncExitStack() as life,
    ):
        server = await of_name_server.enter_async_context(new_name_server(tmp_path, port))
        group = FailoverGroup(tmp_path, server, controller, life)
        first = await group.start("a")
        await is_master(first)
        second = await group.start("b")
        await in_sync(first, 1, 2)
        client = await first.connect()
        await client.sent(b"before", queue_id=0)
        await peer.routed(group.namesrv, "T")

        async def both():
            return len(await peer.brokers(group.namesrv)) == 2

        await eventually(both)
        brokers = await peer.brokers(group.namesrv)
        since = follows_since(second)

        await of_name_server.aclose()
        await client.sent(b"meanwhile", queue_id=0)
        await of_name_server.enter_async_context(new_name_server(tmp_path, port))
        # As long as `eventually` waits, which is the 30 s of the scenario.
        assert await peer.routed(group.namesrv, "T")
        await eventually(both)
        assert await peer.brokers(group.namesrv) == brokers
        await client.sent(b"after", queue_id=0)
        await same(first, second)
        assert follows_since(second) == since
        assert [message.body for message in await client.read(queue_id=0)] == [b"before", b"meanwhile", b"after"]
        assert group.log("a") == group.log("b")


def follows_since(slave):
    """When the connection to its master was made."""
    return slave.broker._parts.replication._following.since
