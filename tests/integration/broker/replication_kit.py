"""A name server, a master and its slaves for tests of replication."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from tests.integration.broker.life_kit import PATIENCE, eventually, new_broker
from tests.integration.broker.scene_kit import Scene, running

MASTER, SYNC = "brokerRole=ASYNC_MASTER", "brokerRole=SYNC_MASTER"
SLAVE = ("brokerRole=SLAVE", "brokerId=1", "slaveSyncInterval=50")

REPORT, HEAD = struct.Struct(">q"), struct.Struct(">qi")


class Group:
    """A name server, and brokers of one name."""

    def __init__(self, folder, name_server, life):
        self.folder = folder
        self.namesrv = f"127.0.0.1:{name_server.port}"
        self._life = life

    def broker(self, name, *sets, disk=None):
        return running(self.folder / name, *sets, namesrv_addr=self.namesrv, disk=disk)

    async def start(self, name, *sets, disk=None):
        return await self._life.enter_async_context(self.broker(name, *sets, disk=disk))

    @contextlib.asynccontextmanager
    async def leaving(self, name, *sets):
        """A broker that ends while others go on, whose tasks come and go meanwhile."""
        async with (
            new_broker(self.folder / name, *sets, namesrv_addr=self.namesrv) as broker,
            contextlib.AsyncExitStack() as clients,
        ):
            yield Scene(broker, clients)

    async def line(self, scene, **how):
        """A line to the port of replication of a master."""
        return await self._life.enter_async_context(Line(scene.broker._ports.ha_port, **how))

    def log(self, name):
        """All bytes of a commit log, by file; without one that was only made in advance, at a time of its own."""
        files = {path.name: path.read_bytes() for path in sorted((self.folder / name / "commitlog").iterdir())}
        return {name: content for name, content in files.items() if content.count(0) < len(content)}


async def knows_topic(client, topic="T"):
    return topic in await client.topics()


def end(scene):
    return int(scene.broker._parts.context.store.log.end)


async def caught_up(master, slave):
    """The slave has the log, and readers see all of it."""

    async def same():
        return end(master) == end(slave) and end(master) > 0 and not slave.broker._parts.context.store.torn

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


def problem_of(scene):
    """What keeps a slave from following."""
    return scene.broker._parts.replication.follower.problem


async def has_problem(scene, words):
    async def shown():
        return words in (problem_of(scene) or "")

    try:
        await eventually(shown)
    except TimeoutError:
        raise AssertionError(f"{words!r} is not in {problem_of(scene)!r}") from None


def refusals_of(scene):
    return [each.reason for each in scene.broker._parts.replication.master.refusals]


class Line:
    """A line between a slave and its master that can be slow, stand still, or be cut.

    `rate` is in bytes per second towards the slave, `delay` in seconds either way.
    """

    def __init__(self, port, *, rate=None, delay=0.0):
        self._port = port
        self._rate, self._delay = rate, delay
        self._tasks = set()
        self._writers = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.carried = 0
        # Cut once so many bytes have gone to the slave.
        self.cut_after = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=64 * 1024)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info):
        await self.close()

    async def close(self):
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()

    def hold(self):
        self._flows.clear()

    def release(self):
        self._flows.set()

    def cut(self):
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _connected(self, reader, writer):
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._port, limit=64 * 1024)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, forth}
        for one, other, is_down in ((reader, forth, False), (back, writer, True)):
            task = asyncio.create_task(self._carry(one, other, is_down))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader, writer, is_down):
        try:
            while True:
                await self._flows.wait()
                size = 64 * 1024 if self._rate is None or not is_down else max(self._rate // 50, 1)
                data = await reader.read(size)
                if self._delay or (self._rate and is_down):
                    await asyncio.sleep(self._delay + (len(data) / self._rate if self._rate and is_down else 0))
                await self._flows.wait()
                if is_down and self.cut_after is not None:
                    data = data[: max(self.cut_after - self.carried, 0)]
                writer.write(data)
                if is_down:
                    self.carried += len(data)
                if is_down and self.carried == self.cut_after:
                    self.cut()
                if not data:
                    break
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
