"""Real brokers under controllers on a real etcd, whose parts are killed and cut off (docs/spec/controller.md 11)."""

from __future__ import annotations

import contextlib
import time

import pytest
from tests.integration.broker.failover.group_kit import FailoverGroup, in_sync, is_master, is_slave, member
from tests.integration.broker.life_kit import eventually, new_name_server
from tests.integration.broker.replication_kit import end
from tests.integration.controller.etcd_kit import Cluster, Spawned, controllers, metadata, needs_etcd, until, way_to

pytestmark = needs_etcd
# Seconds. Long enough for a busy machine to renew it in time, short enough to wait for its end.
LEASE = 4
SHORT = f"controllerEtcdLease={LEASE}000"
NOT_AVAILABLE = 14


@pytest.fixture
async def three(tmp_path):
    cluster = Cluster(tmp_path / "etcd", 3)
    cluster.start()
    await cluster.ready()
    yield cluster
    cluster.stop()


class Stage:
    """A pair of brokers under three controllers that are processes, each with a way of its own to etcd."""

    def __init__(self, controllers, ways, group):
        self.controllers = controllers
        self.ways = ways
        self.group = group
        self.sent = 0

    async def begin(self):
        self.first = await self.group.start("a")
        await is_master(self.first)
        self.second = await self.group.start("b")
        await in_sync(self.first, 1, 2)
        await self.takes(self.first)

    async def state(self):
        """Master, epoch and set, as the controller that leads says; empty while none does."""
        for scene in [*self.controllers.scenes.values()]:
            if (await metadata(scene))["isLeader"] == "true":
                return await scene.info("g")
        return {}

    async def takes(self, broker):
        """The master takes a message, as soon as it can."""
        client = await broker.connect()
        body = b"%d" % self.sent

        async def taken():
            return (await client.put(body, queue_id=0)).code == 0

        await eventually(taken)
        self.sent += 1

    async def kill(self, scene):
        self.controllers.process_of(scene).kill()
        await self.controllers.stop(self.controllers.name_of(scene))

    async def ends_well(self, master):
        """Everything that was taken is there, in the order of sending, and both logs are the same."""
        other = self.second if master is self.first else self.first
        await in_sync(master, 1, 2)
        await self.takes(master)

        async def same():
            return end(master) == end(other)

        await eventually(same)
        assert self.group.log("a") == self.group.log("b")
        bodies = await bodies_of(await master.connect(), 0)
        # A message that was refused may have been stored nevertheless.
        assert list(dict.fromkeys(bodies)) == [b"%d" % number for number in range(self.sent)]


async def bodies_of(client, queue_id):
    found: list[bytes] = []
    while messages := await client.read(queue_id=queue_id, offset=len(found)):
        found += [message.body for message in messages]
    return found


@pytest.fixture
async def stage(three, tmp_path):
    async with contextlib.AsyncExitStack() as life:
        enter = life.enter_async_context
        ways = [await enter(way_to(three)) for _ in range(3)]
        endpoints = [way.endpoints for way in ways]
        all_ = await enter(controllers(tmp_path, endpoints, SHORT, processes=True))
        await all_.leader()
        name_server = await enter(new_name_server(tmp_path))
        address = ";".join(peer.partition("-")[2] for peer in all_.peers.split(";"))
        stage = Stage(all_, ways, FailoverGroup(tmp_path, name_server, Spawned(address), life))
        await stage.begin()
        yield stage


@pytest.mark.scenario("controller 34")
async def test_a_pair_notices_nothing_of_a_killed_leader_and_fails_over_under_the_next(stage, three):
    before = await stage.state()
    assert (before["master"], before["epoch"], before["set"]) == (1, 1, [1, 2])
    old = await stage.controllers.leader()
    await stage.kill(old)
    killed = time.monotonic()
    await stage.controllers.leader()
    # etcd looks for ended leases twice a second; the rest is for a busy machine.
    assert time.monotonic() - killed < LEASE + 3
    await stage.takes(stage.first)
    assert await stage.state() == before  # nobody was deposed for it

    # With one member of etcd less, and one controller, the next decision is made all the same.
    three.members[0].kill()
    await stage.group.stop("a")
    await is_master(stage.second)
    await stage.takes(stage.second)
    stage.first = await stage.group.start("a")
    await is_slave(stage.first)
    await stage.ends_well(stage.second)
    after = await stage.state()
    assert (after["master"], after["epoch"], sorted(after["set"])) == (2, 2, [1, 2])


@pytest.mark.scenario("controller 34")
async def test_a_pair_lives_on_when_its_controller_is_cut_off_from_etcd(stage):
    before = await stage.state()
    old = await stage.controllers.leader()
    name = stage.controllers.name_of(old)
    way = stage.ways[int(name[1:])]
    way.pause()
    others = [scene for scene in stage.controllers.scenes.values() if scene is not old]

    async def another_leads():
        for scene in others:
            if (await metadata(scene))["isLeader"] == "true":
                assert (await metadata(old))["isLeader"] == "false"  # asked afterwards, so it had stopped before
                return True
        return False

    await until(another_leads, "another leads")
    await stage.takes(stage.first)
    assert await stage.state() == before
    # The brokers beat to all: the next one knows who is alive, and decides.
    await stage.group.stop("a")
    await is_master(stage.second)
    way.resume()
    await stage.controllers.leader(not_=name)
    stage.first = await stage.group.start("a")
    await is_slave(stage.first)
    await stage.ends_well(stage.second)


@pytest.mark.scenario("controller 35")
async def test_a_pair_waits_for_a_majority_of_etcd_and_goes_on(stage, three):
    """Nobody leads, so the master cannot renew its lease and takes nothing; nobody else does either."""
    before = await stage.state()
    client = await stage.first.connect()
    other = await stage.second.connect()
    for gone in three.members[1:]:
        gone.kill()
    taken: list[bytes] = []

    async def refuses():
        body = b"%d" % len(taken)
        reply = await client.put(body, queue_id=1)
        if reply.code == 0:
            taken.append(body)
        return reply.code == NOT_AVAILABLE

    await eventually(refuses)
    assert await stage.state() == {}
    assert not member(stage.first).membership.lease.is_valid()
    # The slave is not elected in its place: it refuses, too, and passes nothing on.
    assert (await other.put(b"refused", queue_id=1)).code == NOT_AVAILABLE
    assert not member(stage.second).is_master
    assert (await client.put(b"refused", queue_id=1)).code == NOT_AVAILABLE
    # Consumers read on.
    assert [message.body for message in await client.read(queue_id=0)] == [b"0"]

    three.start(*three.members[1:])
    await three.ready()
    await stage.controllers.leader()
    await is_master(stage.first)
    await stage.takes(stage.first)
    after = await stage.state()
    assert (after["master"], after["epoch"]) == (before["master"], before["epoch"])
    assert not member(stage.second).is_master
    await stage.ends_well(stage.first)
    assert (await bodies_of(client, 1))[: len(taken)] == taken
