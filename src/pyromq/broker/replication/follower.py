"""The slave's side of replication: it follows a master and keeps the bytes of its log (docs/spec/ha.md 2.2)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import OffsetOutOfRange, PyroMQError, RemoteProtocolError, StoreError
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ViewMessage
from pyromq.protocol.replication import REPORT, FrameReader
from pyromq.remoting import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyromq.remoting import RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .config import ReplicationConfig

logger = logging.getLogger(__name__)

_RETRY = 5.0
_UNKNOWN = 0.5  # seconds between two looks whether the master is known by now
_LOOK = 1.0
_ASK = 3.0


class Diverged(StoreError):
    """This log and the master's have different records at the same place."""


class Follower:
    """Follows a master while it `run`s. `masters` gives its addresses: for replication, and for requests.

    `arrived` is told each queue that got messages.
    """

    def __init__(
        self,
        store: MessageStore,
        client: RemotingClient,
        masters: Callable[[], tuple[str | None, str | None]],
        config: Callable[[], ReplicationConfig],
        arrived: Callable[[ConsumeQueue], None],
    ) -> None:
        self._store = store
        self._client = client
        self._masters = masters
        self._config = config
        self._arrived = arrived
        # What operators see: the master that is followed, since when, and what is wrong.
        self.following: str | None = None
        self.since = 0.0
        self.problem: str | None = "no master is known yet"
        self.master_end = 0
        self.read_at = self.wrote_at = 0.0  # epoch seconds

    async def run(self) -> None:
        """Follow whichever master there is, until cancelled."""
        while True:
            ha_address, address = self._masters()
            if ha_address is None:
                await asyncio.sleep(_UNKNOWN)
                continue
            try:
                await self._compare(address)
                await self._follow(ha_address)
            except Diverged as exc:
                self._note(f"{exc}; this slave stays as it is until somebody decides which of the two is right")
            except (OSError, PyroMQError) as exc:
                self._note(f"master {ha_address}: {exc}")
            self.following = None
            await asyncio.sleep(_RETRY)

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            logger.error("not replicating: %s; trying again every %g s", problem, _RETRY)
        self.problem = problem

    async def _compare(self, address: str | None) -> None:
        """See that the last record here is the master's as well (2.3). Diverged if it is not."""
        last = self._last_record()
        if last is None or address is None:
            return
        offset, record = last
        request = Command.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset))
        reply = await self._client.invoke(address, request, _ASK)
        if reply.code != ResponseCode.SUCCESS:
            raise Diverged(f"master {address} has no message at {offset}, where this slave has one: {reply.remark}")
        if reply.body_bytes != record:
            raise Diverged(f"master {address} has another message at {offset} than this slave")

    def _last_record(self) -> tuple[int, bytes] | None:
        """The newest record that has an entry in a queue."""
        newest = max(self._store.queues, key=lambda queue: queue.max_physical, default=None)
        entry = (
            None if newest is None or newest.max_offset <= newest.min_offset else newest.entry(newest.max_offset - 1)
        )
        if entry is None:
            return None
        try:
            return entry[0], bytes(self._store.stored_at(entry[0]))
        except OffsetOutOfRange:
            return None

    async def _follow(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        host, port = split_address(address)
        async with asyncio.timeout(_ASK):
            transport, feed = await loop.create_connection(lambda: _Feed(self), host, port)
        try:
            self.following, self.since, self.problem = address, time.time(), None
            logger.info("following master %s from %d", address, self._store.log.end)
            while not feed.ended.done():
                config = self._config()
                await asyncio.wait([feed.ended], timeout=_LOOK)
                feed.look(config.heartbeat_interval / 1000, config.silence / 1000)
            raise feed.ended.result()
        finally:
            transport.close()

    def append(self, offset: int, data: memoryview) -> None:
        """Keep a piece of the master's log. StoreError if it does not continue this one."""
        end = int(self._store.log.end)
        if end and offset != end:
            raise RemoteProtocolError(f"the master sent what belongs to {offset}; this log ends at {end}")
        self.master_end = max(self.master_end, offset + len(data))
        if data:
            self._tell(self._store.append_copy(offset, data))

    def _tell(self, queues: Iterable[ConsumeQueue]) -> None:
        for queue in queues:
            self._arrived(queue)

    @property
    def end(self) -> int:
        return int(self._store.log.end)


class _Feed(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._frames = FrameReader()
        self._transport: asyncio.Transport
        self._read_at = self._wrote_at = time.monotonic()
        # Ends with the reason; a future that fails wants somebody to ask for it, and there may be nobody any more.
        self.ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport
        self._report()

    def data_received(self, data: bytes) -> None:
        self._read_at = time.monotonic()
        self._follower.read_at = time.time()
        before = self._follower.end
        try:
            for offset, piece in self._frames.feed(data):
                self._follower.append(offset, piece)
        except (OSError, PyroMQError) as exc:
            self._end(exc)
            return
        if self._follower.end != before:
            self._report()

    def _report(self) -> None:
        self._wrote_at = time.monotonic()
        self._follower.wrote_at = time.time()
        self._transport.write(REPORT.pack(self._follower.end))

    def look(self, heartbeat: float, silence: float) -> None:
        now = time.monotonic()
        if now - self._read_at > silence:
            self._end(RemoteProtocolError(f"silent for {silence:g} s"))
        elif now - self._wrote_at > heartbeat:
            self._report()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or RemoteProtocolError("the master closed the connection"))

    def _end(self, exc: Exception) -> None:
        if not self.ended.done():
            self.ended.set_result(exc)
            self._transport.abort()
