"""Brokers by the files that RocketMQ ships for pairs, and how a pair changes roles (docs/how-to/replicate.md)."""

from __future__ import annotations

import contextlib

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_name_server

from pyromq.admin.cluster.brokers import drain_broker
from pyromq.broker import Broker, load_settings
from pyromq.client.admin import AdminClient

pytestmark = pytest.mark.slow

# What the files of 2m-2s-async, 2m-2s-sync and 2m-noslave say.
SHARED = {"brokerClusterName": "DefaultCluster", "deleteWhen": "04", "fileReservedTime": "48"}
MASTER, SYNC_MASTER, SLAVE = (
    {"brokerId": "0", "brokerRole": "ASYNC_MASTER"},
    {"brokerId": "0", "brokerRole": "SYNC_MASTER"},
    {"brokerId": "1", "brokerRole": "SLAVE"},
)
STOCK = {
    "2m-2s-async": [("broker-a", MASTER), ("broker-a", SLAVE), ("broker-b", MASTER), ("broker-b", SLAVE)],
    "2m-2s-sync": [("broker-a", SYNC_MASTER), ("broker-a", SLAVE), ("broker-b", SYNC_MASTER), ("broker-b", SLAVE)],
    "2m-noslave": [("broker-a", MASTER), ("broker-b", MASTER)],
}


class Machine:
    """A file, and the place where a broker with that file runs."""

    def __init__(self, folder, namesrv):
        self.folder = folder
        self.namesrv = namesrv
        folder.mkdir()
        self._file = folder / "broker.properties"

    def write(self, broker, role):
        lines = {**SHARED, "brokerName": broker, **role, "flushDiskType": "ASYNC_FLUSH"}
        self._file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def broker(self):
        # What would be a machine of its own: here all share one.
        place = [f"storePathRootDir={self.folder}/store", "listenPort=0", "bindAddress=127.0.0.1", "drainSeconds=0"]
        place += ["brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1", "mappedFileSizeCommitLog=1m"]
        return Broker(load_settings(self._file, sets=place, namesrv_addr=self.namesrv))

    def log(self):
        return {path.name: path.read_bytes() for path in sorted((self.folder / "store" / "commitlog").iterdir())}


@pytest.fixture
async def machine(tmp_path):
    async with new_name_server(tmp_path) as name_server:
        yield lambda name: Machine(tmp_path / name, f"127.0.0.1:{name_server.port}")


@pytest.mark.parametrize("kind", STOCK)
async def test_the_files_that_rocketmq_ships_start_unchanged(machine, kind):
    async with contextlib.AsyncExitStack() as life:
        brokers = {}
        for number, (name, role) in enumerate(STOCK[kind]):
            place = machine(f"machine-{number}")
            place.write(name, role)
            brokers[name, int(role["brokerId"])] = await life.enter_async_context(place.broker())
        peer = await life.enter_async_context(Peer())
        found = await peer.brokers(place.namesrv)
        assert found == {name: broker.address for name, broker in brokers.items()}
        for (name, number), broker in brokers.items():
            if number:
                await eventually(lambda broker=broker: _follows(broker))
                master = brokers[name, 0]
                await peer.send(master.address)
                await eventually(lambda one=master, other=broker: _equal(one, other))


async def _follows(broker):
    return broker._parts.replication.follower.following is not None


async def _equal(one, other):
    return one._parts.context.store.log.end == other._parts.context.store.log.end > 0


@pytest.mark.parametrize("role", [MASTER, SYNC_MASTER])
async def test_a_pair_changes_roles_without_loss(machine, role):
    one, other = machine("one"), machine("other")
    one.write("broker-a", role)
    other.write("broker-a", SLAVE)
    async with Peer() as peer, AdminClient(one.namesrv) as admin:
        async with contextlib.AsyncExitStack() as slave_life, one.broker() as master:
            slave = await slave_life.enter_async_context(other.broker())
            await eventually(lambda: _follows(slave))
            for number in range(20):
                await eventually(lambda number=number: _sent(peer, master.address, number))
            # 1. Producers are led elsewhere, and the slave has everything.
            await drain_broker(admin, "broker-a", master.address)
            assert (await peer.routed(one.namesrv, "orders"))["broker-a"].perm == 4

            async def has_everything():
                info = await admin.brokers.ha_status(master.address)
                return [each.diff for each in info.ha_connection_info] == [0]

            await eventually(has_everything)
            # 2. The master is stopped, and then the slave.
        assert other.log() == one.log()
        # 3. Other roles in the files.
        one.write("broker-a", SLAVE)
        other.write("broker-a", role)
        # 4. The new master first.
        async with other.broker() as master, one.broker() as slave:
            await eventually(lambda: _follows(slave))
            offset = await eventually(lambda: _sent(peer, master.address, 20))
            assert offset
            await eventually(lambda: _equal(master, slave))
            assert not master._parts.replication.master.refusals
            assert (await peer.routed(one.namesrv, "orders"))["broker-a"].perm == 6
            reply = await peer.pull(master.address)
            assert reply.code == 0
            assert all(b"message %d." % number in bytes(reply.body_bytes) for number in range(21))
    assert other.log() == one.log()


async def _sent(peer, address, number):
    return await peer.send(address, b"message %d." % number) is not None
