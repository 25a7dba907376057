"""A name server, a master and its slaves for tests of replication."""

from __future__ import annotations

from tests.integration.broker.life_kit import eventually
from tests.integration.broker.scene_kit import running

MASTER, SYNC = "brokerRole=ASYNC_MASTER", "brokerRole=SYNC_MASTER"
SLAVE = ("brokerRole=SLAVE", "brokerId=1", "slaveSyncInterval=50")


class Group:
    """A name server, and brokers of one name."""

    def __init__(self, folder, name_server, life):
        self.folder = folder
        self.namesrv = f"127.0.0.1:{name_server.port}"
        self._life = life

    def broker(self, name, *sets):
        return running(self.folder / name, *sets, namesrv_addr=self.namesrv)

    async def start(self, name, *sets):
        return await self._life.enter_async_context(self.broker(name, *sets))

    def log(self, name):
        """All bytes of a commit log, by file."""
        return {path.name: path.read_bytes() for path in sorted((self.folder / name / "commitlog").iterdir())}


async def knows_topic(client, topic="T"):
    return topic in await client.topics()


def end(scene):
    return int(scene.broker._parts.context.store.log.end)


async def caught_up(master, slave):
    async def same():
        return end(master) == end(slave) and end(master) > 0

    await eventually(same)
