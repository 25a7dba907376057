"""A name server, a master and its slaves for tests of replication."""

from __future__ import annotations

import asyncio
import struct

from tests.integration.broker.life_kit import PATIENCE, eventually
from tests.integration.broker.scene_kit import running

MASTER, SYNC = "brokerRole=ASYNC_MASTER", "brokerRole=SYNC_MASTER"
SLAVE = ("brokerRole=SLAVE", "brokerId=1", "slaveSyncInterval=50")

REPORT, HEAD = struct.Struct(">q"), struct.Struct(">qi")


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


class DeafSlave:
    """A slave that says where it is and then acknowledges nothing."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def report(self, offset):
        self.writer.write(REPORT.pack(offset))

    async def frame(self):
        async with asyncio.timeout(PATIENCE):
            offset, size = HEAD.unpack(await self.reader.readexactly(HEAD.size))
            return offset, await self.reader.readexactly(size)

    async def is_closed(self):
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read() is not None


class FakeMaster:
    """Sends what a test likes to whichever slave connects."""

    def __init__(self, server, connections):
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._connections = connections

    async def slave(self):
        async with asyncio.timeout(PATIENCE):
            return DeafSlave(*await self._connections.get())


async def report_of(slave):
    async with asyncio.timeout(PATIENCE):
        return REPORT.unpack(await slave.reader.readexactly(REPORT.size))[0]
