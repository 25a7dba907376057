"""Brokers of a group that fails over, without the broker: each is a store that leads or follows over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from tests.unit.store.kit import message, small

from pyromq.broker.failover.config import FailoverConfig
from pyromq.broker.failover.following import Following
from pyromq.broker.failover.in_sync import InSync, InSyncKeeper
from pyromq.broker.failover.leading import Leading, begin_epoch
from pyromq.broker.failover.role import InSyncSet
from pyromq.broker.replication.config import ReplicationConfig
from pyromq.broker.replication.protection import OPEN
from pyromq.errors import broker_error
from pyromq.protocol.codes import ResponseCode
from pyromq.remoting import format_address, split_address
from pyromq.store import MessageStore, PutStatus
from pyromq.store.config import FlushDiskType
from pyromq.store.metadata.epochs import EPOCH_FILE, EpochTable
from pyromq.testing import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0
ASYNC = FlushDiskType.ASYNC_FLUSH


async def eventually(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - stores have no events
            await asyncio.sleep(0.002)


class Controllers:
    """Keeps one group's master and in-sync set, and elects only members of that set."""

    def __init__(self) -> None:
        self.epoch = 0
        self.master: int | None = None
        self.in_sync = InSyncSet(frozenset(), 0)
        self.requests: list[frozenset[int]] = []
        self.is_deaf = False  # no answer, but it is done all the same

    def elect(self, broker_id: int) -> None:
        assert self.epoch == 0 or broker_id in self.in_sync.members
        self.elect_any(broker_id)

    def elect_any(self, broker_id: int) -> None:
        self.epoch += 1
        self.master = broker_id
        self.in_sync = InSyncSet(frozenset({broker_id}), self.in_sync.epoch + 1)

    def alter_for(self, master: int, epoch: int, current: Callable[[], InSyncSet]) -> Any:
        async def alter(members: frozenset[int]) -> InSyncSet:
            self.requests.append(members)
            await asyncio.sleep(0)
            if (self.master, self.epoch) != (master, epoch):
                raise broker_error(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "another master")
            if current().epoch != self.in_sync.epoch:
                raise broker_error(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "another set")
            if members == self.in_sync.members:
                raise broker_error(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "equal")
            self.in_sync = InSyncSet(members, self.in_sync.epoch + 1)
            if self.is_deaf:
                raise OSError("the answer was lost")
            return self.in_sync

        return alter


class Replica:
    """One of the group. `lead`, `follow` and `rest` are its roles."""

    def __init__(self, folder, broker_id, controllers=None, *, disk=None, log_file=4096, flush=ASYNC, **config):
        self.id = broker_id
        self.root = folder / f"broker{broker_id}"
        self.controllers = controllers or Controllers()
        self.disk = disk or FaultyDisk()
        self.disk.used = 0.1
        self.log_file, self.flush = log_file, flush
        self.config = FailoverConfig(**config)
        self.replication = ReplicationConfig(transfer_batch=1000)
        self.protection = OPEN
        self.master: str | None = None
        self.has_lease = True
        self.seen: list[str] = []
        self.busy: set[asyncio.Future[Any]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: socket.socket | None = None
        self.keeper: InSyncKeeper | None = None
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.open()

    def open(self):
        self.store = MessageStore(
            small(self.root, commit_log_file_size=self.log_file, flush=self.flush), disk=self.disk
        )
        self.store.open()
        self.epochs = EpochTable(self.root / EPOCH_FILE, self.disk)
        self.epochs.load()
        self.store.limit_readers()

    # Roles

    async def lead(self, *, epoch=None):
        """Be master, for the epoch that the controllers have."""
        controllers = self.controllers
        await self.rest()
        epoch = controllers.epoch if epoch is None else epoch
        await self.paused(lambda: begin_epoch(self.store, self.epochs, epoch))
        in_sync = InSync(self.id, controllers.in_sync)
        self.keeper = InSyncKeeper(
            self.store,
            self.epochs,
            in_sync,
            alter=controllers.alter_for(self.id, epoch, lambda: in_sync.taken),
            has_lease=lambda: self.has_lease,
            shown=lambda queue: self.seen.append(queue.topic),
            config=lambda: self.config,
            replication=lambda: self.replication,
        )
        self.leading = Leading(self.store, self.epochs, self.keeper, lambda: self.replication, self.protection)
        self._listen()
        self._start(self.keeper.run(), self.leading.run())

    async def follow(self, address):
        """Be slave of whoever listens there."""
        await self.rest()
        self.master = address
        self.following = Following(
            self.store,
            self.epochs,
            lambda: self.master,
            own_id=self.id,
            config=lambda: self.config,
            replication=lambda: self.replication,
            arrived=lambda queue: self.seen.append(queue.topic),
            paused=self.paused,
            protection=self.protection,
        )
        self._start(self.following.run())

    async def rest(self):
        """Be neither."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results
        self._tasks = []
        if self.leading is not None:
            self.leading.close()
        self.keeper = self.leading = self.following = None

    def _start(self, *coroutines):
        self._tasks += [asyncio.get_running_loop().create_task(each) for each in coroutines]

    def _listen(self):
        listener = self._listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)

        def accept():
            with contextlib.suppress(BlockingIOError):
                sock, _ = listener.accept()
                sock.setblocking(False)
                assert self.leading is not None
                self.leading.master.accepted(sock)

        asyncio.get_running_loop().add_reader(listener, accept)

    @property
    def address(self):
        assert self._listener is not None
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    async def paused(self, work):
        """Nobody may look at the store until this is done."""
        work = asyncio.get_running_loop().run_in_executor(None, work)
        self.busy.add(work)
        work.add_done_callback(self.busy.discard)
        try:
            return await asyncio.shield(work)
        finally:
            await asyncio.wait([work])

    # Ends

    async def close(self):
        await self.rest()
        self.store.close()

    async def crash(self):
        """As `kill -9`, and a new start."""
        await self.rest()
        self.store.abandon()
        self.open()

    # Messages

    def append(self, body, topic="T"):
        """Store a message, as a broker does. Gives where its record ends."""
        assert self.leading is not None
        (result,) = self.store.put([(self.store.queue(topic, 0), [message(body, topic=topic)])])
        assert result.status is PutStatus.PUT_OK
        self.leading.master.appended()
        return result.physical_offset + result.size

    def send(self, body, told, topic="T"):
        """Store a message; `told` is called once it is acknowledged."""
        end = self.append(body, topic)
        assert self.keeper is not None
        self.keeper.when_had(end, told)
        return end

    async def acknowledged(self, body, topic="T"):
        """Store a message, and wait until it is acknowledged."""
        done = asyncio.Event()
        end = self.send(body, done.set, topic)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
        return end

    # What is there

    @property
    def end(self):
        return int(self.store.log.end)

    def files(self):
        """The bytes of the log by file, up to the end of the last."""
        files = {path.name: path.read_bytes() for path in sorted((self.root / "commitlog").iterdir())}
        return {name: data for name, data in files.items() if int(name) < max(self.end, 1)}

    def check(self):
        found = [str(finding) for finding in self.store.check() if finding.severity.name != "NOTE"]
        assert found == [], found


class Line:
    """A line to a master that breaks after so many bytes, wherever that is. None of them gets lost before."""

    def __init__(self, target: str, budget: int) -> None:
        self._target = split_address(target)
        self.budget = budget
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return format_address(self._server.sockets[0].getsockname())

    async def close(self) -> None:
        """To be called when nobody connects any more: asyncio forgets a connection that it accepts at this moment."""
        assert self._server is not None
        self.budget = 0
        for _ in range(10):
            await asyncio.sleep(0)  # one that came just now needs some turns to be known
        self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        self._writers.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
            writers.append(up_writer)
            self._writers.add(up_writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, up_writer))
                tasks.create_task(self._pass(up_reader, writer))
        except* (OSError, _Broken):
            pass
        finally:
            for each in writers:
                self._writers.discard(each)
                each.close()
            for each in writers:
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            data = data[: max(self.budget, 0)]
            self.budget -= len(data)
            writer.write(data)
            await writer.drain()
            if self.budget <= 0:
                break
        raise _Broken


class _Broken(Exception):
    pass


def same(*replicas):
    """Whether all have the same log."""
    return len({each.end for each in replicas}) == 1


def assert_equal(*replicas):
    first = replicas[0]
    for other in replicas[1:]:
        assert other.end == first.end
        assert other.epochs.entries == first.epochs.entries
        assert other.files() == first.files()
    for each in replicas:
        each.check()
