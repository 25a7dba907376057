"""A group's offsets: kept by the brokers or, when every member reads everything, in a local file.

Both keep a table in memory that `update` changes and `persist` writes out, because messages finish far more often than
is worth reporting.

The file is that of the Java client, `<folder>/<client id>/<group>/offsets.json`, with the last one as `.bak`:

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:42}}
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyromq.errors import ConnectionLost, PyroMQError, RemoteProtocolError, RouteNotFound, ServiceNotAvailable
from pyromq.protocol.bodies.offsets import ResetOffsetBody
from pyromq.settings.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client

logger = logging.getLogger(__name__)

_TIMEOUT = 5.0
# Seconds between attempts to commit while a group changes its master.
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)


class ReadFrom(Enum):
    MEMORY = "memory"
    STORE = "store"
    MEMORY_FIRST = "memory first"  # then the store


class OffsetStore(Protocol):
    """The next offset to consume in each queue. Methods that only change memory are plain, the others async."""

    async def load(self) -> None:
        """Called once, before anything else."""

    async def read(self, queue: MessageQueue, how: ReadFrom) -> int | None:
        """The offset, or None if the group never committed one. A failed look-up raises; it is not None."""

    def update(self, queue: MessageQueue, offset: int, increase_only: bool = False) -> None:
        """Remember `offset`; with `increase_only`, only if it is larger."""

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Remember `offset`, and let no update change it until the queue is removed."""

    async def persist(self, queue: MessageQueue, *, wait: bool = False) -> None:
        """Write one offset out. With `wait` it is stored when this returns. Raises on failure."""

    async def persist_all(self, owned: Collection[MessageQueue], *, wait: bool = False) -> None:
        """Write out the offsets of the queues `owned` and forget the others. Failures are logged."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue's offset in memory."""

    def memory(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory for one topic."""


class _Memory:
    """The table in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, increase_only: bool = False) -> None:
        if queue in self._frozen or (increase_only and self._offsets.get(queue, -1) >= offset):
            return
        self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def memory(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}


class BrokerOffsetStore(_Memory):
    """Offsets kept by each queue's broker, shared by all members of the group; `group` is the wire name.

    A broker answers 0 for an unknown group if the queue still begins at 0, so that nothing is missed. `strict` asks it
    not to, for groups that want only new messages (5.x brokers, and ours).
    """

    def __init__(self, client: Client, group: str, *, strict: bool = False) -> None:
        super().__init__()
        self._client = client
        self._group = group
        self._zero_if_not_found = False if strict else None

    async def load(self) -> None:
        """Nothing to load: the broker is asked when needed."""

    async def read(self, queue: MessageQueue, how: ReadFrom) -> int | None:
        if how is not ReadFrom.STORE:
            offset = self._offsets.get(queue)
            if offset is not None or how is ReadFrom.MEMORY:
                return offset
        address = await self._address(queue)
        return await self._client.calls.query_offset(
            address, self._group, queue, self._zero_if_not_found, timeout=_TIMEOUT
        )

    async def persist(self, queue: MessageQueue, *, wait: bool = False) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return
        routes = self._client.routes
        for pause in (*_PAUSES, None):
            address = await self._address(queue)
            try:
                await self._client.calls.update_offset(
                    address, self._group, queue, offset, oneway=not wait, timeout=_TIMEOUT
                )
            except (ConnectionLost, ServiceNotAvailable):
                if pause is None or not routes.may_change_master(queue.broker_name):
                    raise
            else:
                return
            await routes.look_again(queue.topic, _TIMEOUT)
            if routes.master(queue.broker_name) in (None, address):
                await asyncio.sleep(pause)

    async def persist_all(self, owned: Collection[MessageQueue], *, wait: bool = False) -> None:
        for queue in self._offsets.keys() - owned:
            self.remove(queue)
        # All at once: a silent broker must not hold up commits to the others.
        await asyncio.gather(*(self._persist_or_log(queue, wait) for queue in list(self._offsets)))

    async def _persist_or_log(self, queue: MessageQueue, wait: bool) -> None:
        try:
            await self.persist(queue, wait=wait)
        except PyroMQError as exc:
            logger.warning("%s: progress at %s not committed: %s", self._group, queue, exc)

    async def _address(self, queue: MessageQueue) -> str:
        routes = self._client.routes
        address = routes.master(queue.broker_name)
        if address is not None:
            return address
        try:
            return await routes.master_or_refresh(queue)
        except RouteNotFound:
            replica = routes.replica(queue.broker_name, 0, False)
            if replica is None:
                raise
            return replica[0]


class LocalOffsetStore(_Memory):
    """Offsets of one member that reads everything, in its own file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._stored: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    @classmethod
    def of(cls, client_id: str, group: str, folder: Path | None = None) -> LocalOffsetStore:
        """The store in the place where the Java client of the same name would keep it."""
        return cls((folder or Path.home() / ".rocketmq_offsets") / client_id / group / "offsets.json")

    async def load(self) -> None:
        """Read the file, or its backup if it is missing or damaged; without either there are no offsets."""
        self._stored = await asyncio.to_thread(_load, self.path)
        self._offsets.update(self._stored)

    async def read(self, queue: MessageQueue, how: ReadFrom) -> int | None:
        if how is not ReadFrom.STORE:
            offset = self._offsets.get(queue)
            if offset is not None or how is ReadFrom.MEMORY:
                return offset
        return self._stored.get(queue)

    async def persist(self, queue: MessageQueue, *, wait: bool = False) -> None:
        await self._write({queue: self._offsets[queue]} if queue in self._offsets else {})

    async def persist_all(self, owned: Collection[MessageQueue], *, wait: bool = False) -> None:
        """Everything stays in the file: a queue that is not read now may be read again."""
        try:
            await self._write(dict(self._offsets))
        except OSError as exc:
            logger.error("%s not written: %s; progress is kept in memory only", self.path, exc.strerror)

    async def _write(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._writing:
            table = {**self._stored, **offsets}
            if table != self._stored:
                await asyncio.to_thread(replace_file, self.path, ResetOffsetBody(table).encode())
                self._stored = table


def _load(path: Path) -> dict[MessageQueue, int]:
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            return ResetOffsetBody.decode(candidate.read_bytes()).offset_table
        except FileNotFoundError:
            pass
        except (OSError, RemoteProtocolError) as exc:
            logger.warning("%s cannot be read: %s", candidate, exc)
    return {}
