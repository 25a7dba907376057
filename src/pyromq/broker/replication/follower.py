"""The slave's side of replication: it follows a master and keeps the bytes of its log (docs/spec/ha.md 2.2)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import (
    OffsetOutOfRange,
    PyroMQError,
    RemoteProtocolError,
    StoreError,
    StoreNotWritable,
)
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ExchangeHAInfoReply, ViewMessage
from pyromq.protocol.replication import REPORT, FrameReader
from pyromq.remoting import join_address, split_address
from pyromq.remoting.addresses import format_address

from .copying import READ, Copying
from .introductions import objection
from .proof import NotProven
from .protection import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyromq.remoting import RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .config import ReplicationConfig
    from .introductions import Identity
    from .protection import LineProtection

logger = logging.getLogger(__name__)

# RocketMQ's slaves wait 5 s after each failure. Until a slave is back, a SYNC_MASTER answers with 11, and a line that
# was cut usually works again at once; so the first pauses are shorter, and grow.
_FIRST_RETRY = 0.5
_RETRY = 5.0
_SEEK = 30.0  # seconds during which a master that is gone is looked for more often
_LOOK = 1.0
_ASK = 3.0
_GOODBYE = 1.0


class Diverged(StoreError):
    """This log and the master's have different records at the same place."""


class Refused(StoreError):
    """The master does not want this slave, or it is another's."""


class CannotKeep(StoreError):
    """The disk of this slave does not take what the master sends."""


class Pauses:
    """How long to wait after each failure: longer and longer, unless the master had sent something before it."""

    def __init__(self) -> None:
        self._next = _FIRST_RETRY

    def after(self, *, was_fed: bool) -> float:
        """Seconds until the next attempt. A connection that is closed at once does not count as fed."""
        pause = min(_FIRST_RETRY if was_fed else self._next, _RETRY)
        self._next = 2 * pause
        return pause


class Masters(NamedTuple):
    """Where the master is: for slaves, and for clients. `is_given` if the settings say so, not the name servers."""

    ha_address: str | None
    address: str | None
    is_given: bool = False


class Follower:
    """Follows a master while it `run`s. `masters` says where it is, `seek` has the name servers asked again.

    `arrived` is told each queue that got messages.
    """

    def __init__(
        self,
        store: MessageStore,
        client: RemotingClient,
        me: Identity,
        config: Callable[[], ReplicationConfig],
        *,
        masters: Callable[[], Masters],
        seek: Callable[[], None],
        arrived: Callable[[ConsumeQueue], None],
        protection: LineProtection = OPEN,
    ) -> None:
        self._protection = protection
        self._store = store
        self._client = client
        self._me = me
        self._config = config
        self._masters = masters
        self._seek = seek
        self._arrived = arrived
        self._seeking_since = time.monotonic()
        # While it follows: the master's address for clients, and this end of the line.
        self._master: str | None = None
        self._line: str | None = None
        # Whether the master that was followed last said that it stops.
        self.has_master_left = False
        # What operators see: the master that is followed, since when, and what is wrong.
        self.following: str | None = None
        self.since = 0.0
        self.problem: str | None = "no master is known yet"
        self.master_end = 0
        self.read_at = self.wrote_at = 0.0  # by the monotonic clock

    async def run(self) -> None:
        """Follow whichever master there is, until cancelled."""
        pauses = Pauses()
        while True:
            masters = self._masters()
            pause, read_before = _RETRY, self.read_at
            if masters.ha_address is not None:
                try:
                    await self._attempt(masters.ha_address, masters)
                except Refused as exc:
                    self._note(str(exc))
                except (Diverged, CannotKeep) as exc:
                    await self._stay_away(str(exc))
                except OSError as exc:
                    self._note(f"master {masters.ha_address} {self._is_away(exc)}")
                    pause = min(pauses.after(was_fed=self.read_at != read_before), self._patience)
                except PyroMQError as exc:
                    await self._stay_away(f"master {masters.ha_address} cannot be followed: {exc}")
                self._forget()
            await self._pause(masters, pause)

    def _forget(self) -> None:
        if self.following is not None and self.read_at > self.since:
            self._seeking_since = time.monotonic()  # one that was followed, and is gone; others only send this one away
        self.following = self._master = self._line = None

    def _is_away(self, exc: Exception) -> str:
        return "has stopped" if self.has_master_left else f"cannot be followed: {_words(exc)}"

    async def _pause(self, tried: Masters, seconds: float) -> None:
        """Wait before the next attempt, but not once the master turns out to be elsewhere.

        For the first while the name servers are asked each second: a master that was restarted may be elsewhere.
        """
        is_soon = self._is_seeking
        until = time.monotonic() + seconds
        while self._masters() == tried:
            if is_soon:
                self._seek()
            left = until - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(left, _LOOK))

    @property
    def _is_seeking(self) -> bool:
        return time.monotonic() - self._seeking_since < _SEEK

    @property
    def _patience(self) -> float:
        """The longest pause: for the first while a master that is gone is tried each second."""
        return _LOOK if self._is_seeking else _RETRY

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            level = logging.INFO if self.has_master_left else logging.ERROR
            logger.log(level, "not replicating: %s; trying again", problem)
        self.problem = problem

    async def _stay_away(self, problem: str) -> None:
        """Say what is wrong, here and to the master."""
        self._note(problem)
        if self._master is not None:
            with contextlib.suppress(PyroMQError):
                request = self._me.says(ha_address=self._line, problem=problem)
                await self._client.invoke(self._master, request, _ASK)

    # Getting to know each other

    async def _attempt(self, ha_address: str, masters: Masters) -> None:
        self._master = await self._meet(ha_address, masters)
        cut = await asyncio.to_thread(self._store.cut_unfinished)
        if cut:
            logger.info("%d bytes after the last whole record cut off; asking for them again", cut)
        await self._follow(ha_address)

    async def _meet(self, ha_address: str, masters: Masters) -> str | None:
        """The master's address for clients, None if it is not known. Refused if it is not this slave's master."""
        if masters.is_given:
            # It may be another than the one that the name servers know, and listens for clients one port below.
            nearby = _nearby(ha_address)
            found = await self._introduce(nearby, None)
            if found is not None and _port(found.master_ha_address) == split_address(ha_address)[1]:
                return nearby
        if masters.address is not None:
            await self._introduce(masters.address, None)
        return masters.address

    async def _introduce(self, address: str, line: str | None) -> ExchangeHAInfoReply | None:
        """Tell a master who this is. None if it does not answer. Refused if either of the two objects."""
        try:
            request = self._me.says(ha_address=line, log_end=self.end, protection=self._protection.described())
            reply = await self._client.invoke(address, request, _ASK)
        except PyroMQError:
            return None
        found = reply.header(ExchangeHAInfoReply) if reply.code == ResponseCode.SUCCESS else ExchangeHAInfoReply()
        if found.refusal is not None:
            raise Refused(f"master {address} refuses this slave: {found.refusal}")
        if found.cluster_name is None and line is None:
            await self._examine(address)
        return found

    async def _examine(self, address: str) -> None:
        """See that a master of RocketMQ's, which does not say who it is, has settings that fit."""
        try:
            reply = await self._client.invoke(address, Command.request(RequestCode.GET_BROKER_CONFIG), _ASK)
        except PyroMQError:
            return
        if reply.code != ResponseCode.SUCCESS:
            return
        text = bytes(reply.body_bytes).decode("utf-8", "replace")
        settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        size = settings.get("mappedFileSizeCommitLog", "")
        wrong = objection(
            self._me,
            settings.get("brokerClusterName", self._me.cluster),
            settings.get("brokerName", self._me.broker),
            int(size) if size.isdecimal() else self._me.file_size,
        )
        if wrong is not None:
            raise Refused(f"master {address}: {wrong}")

    async def goodbye(self) -> None:
        """Tell the master that this slave stops."""
        if self._master is not None and self._line is not None:
            with contextlib.suppress(PyroMQError):
                await self._client.invoke(self._master, self._me.says(ha_address=self._line, leaving=True), _GOODBYE)

    def master_leaves(self) -> None:
        """The master said that it will stop."""
        self.has_master_left = True

    async def _compare(self, address: str) -> None:
        """See that the last record here is the master's as well (2.3). Diverged if it is not."""
        last = self._last_record()
        if last is None:
            return
        offset, record = last
        request = Command.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset))
        try:
            reply = await self._client.invoke(address, request, _ASK)
        except PyroMQError as exc:
            raise StoreError(f"the logs cannot be compared: {exc}") from exc
        if reply.code == ResponseCode.SUCCESS and reply.body_bytes == record:
            return
        found = "another message" if reply.code == ResponseCode.SUCCESS else f"no message ({reply.remark})"
        raise Diverged(
            f"the logs differ: the slave has a message at {offset}, where master {address} has {found}; "
            "the slave stays as it is until somebody decides which of the two is right"
        )

    def _last_record(self) -> tuple[int, bytes] | None:
        """The newest whole record, with its offset."""
        newest = self._store.newest_of_copy
        if newest is None:
            return None
        try:
            return newest[0], bytes(self._store.stored_at(newest[0]))
        except OffsetOutOfRange:
            return None

    # Following

    async def _follow(self, ha_address: str) -> None:
        host, port = split_address(ha_address)
        try:
            async with asyncio.timeout(_ASK):
                transport, feed = await self._protection.connect(lambda: Feed(self), host, port)
        except NotProven as exc:
            raise Refused(f"master {ha_address}: {exc}") from exc
        try:
            self._line = format_address(transport.get_extra_info("sockname"))
            # While connected: a master that is restarted after this has lost the connection, too. And always: until
            # it is known where the master listens for clients, at the port that goes with the other by default.
            await self._compare(self._master or _nearby(ha_address))
            if self._master is not None:
                await self._introduce(self._master, self._line)
            await self._settled(feed.copying)
            feed.begin()
            self.following, self.since = ha_address, time.monotonic()
            self.has_master_left = False
            logger.info("following master %s from %d", ha_address, self._store.log.end)
            while not feed.ended.done():
                config = self._config()
                await asyncio.wait([feed.ended], timeout=_LOOK)
                if not feed.ended.done():
                    self.problem = None
                feed.look(config.heartbeat_interval / 1000, config.silence / 1000)
            raise feed.ended.result()
        finally:
            feed.close()

    async def _settled(self, copying: Copying) -> None:
        try:
            await copying.settled()
        except StoreNotWritable as exc:
            raise self._refusal(exc) from exc

    def heard(self, now: float) -> None:
        self.read_at = now
        self.problem = None

    def copying(self, report: Callable[[], None], failed: Callable[[Exception], None]) -> Copying:
        """What keeps the log that comes over one connection."""

        def refused(exc: Exception) -> None:
            failed(self._refusal(exc))

        return Copying(self._store, report=report, dispatched=self._dispatched, failed=refused)

    def keep(self, copying: Copying, pieces: Iterable[tuple[int, memoryview]]) -> None:
        """Keep pieces of the master's log, each with its offset. CannotKeep if the disk refuses one."""
        try:
            copying.keep(pieces)
        except (OSError, StoreNotWritable) as exc:
            raise self._refusal(exc) from exc
        finally:
            self.master_end = max(self.master_end, self.end)

    def _refusal(self, exc: Exception) -> Exception:
        if isinstance(exc, OSError | StoreNotWritable):
            return CannotKeep(f"the slave cannot write to {self._store.root}: {_words(exc)}")
        return exc

    def _dispatched(self, queues: list[ConsumeQueue]) -> None:
        for queue in queues:
            self._arrived(queue)

    @property
    def end(self) -> int:
        return int(self._store.log.end)


class Feed(asyncio.BufferedProtocol):
    """One connection to a master. It reads much at once: records are dispatched the faster, the more there are."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._buffer = memoryview(bytearray(READ))
        self._frames = FrameReader()
        self._transport: asyncio.Transport
        self._has_begun = False
        self._read_at = self._wrote_at = time.monotonic()
        self.copying = follower.copying(self._report, self._end)
        # Ends with the reason; a future that fails wants somebody to ask for it, and there may be nobody any more.
        self.ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None

    def begin(self) -> None:
        """Ask for the log, from where this one ends."""
        self._has_begun = True
        self._report()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._has_begun:
            self._end(RemoteProtocolError("the master sent something before it was asked"))
            return
        self._read_at = time.monotonic()
        self._follower.heard(self._read_at)
        try:
            self._follower.keep(self.copying, self._frames.feed(self._buffer[:nbytes]))
        except (OSError, PyroMQError) as exc:
            self._end(exc)

    def _report(self) -> None:
        """Say how far the log goes, now: a transport would write later, and senders of the master wait for this."""
        if self._transport.is_closing():
            return  # `ended` says why, now or in a moment
        self._wrote_at = time.monotonic()
        self._follower.wrote_at = self._wrote_at
        report = REPORT.pack(self.copying.safe_end)
        if not (self._is_encrypted or self._transport.get_write_buffer_size()):
            with contextlib.suppress(OSError):
                report = report[os.write(self._descriptor, report) :]
        if report:
            self._transport.write(report)

    def look(self, heartbeat: float, silence: float) -> None:
        now = time.monotonic()
        if now - self._read_at > silence:
            self._end(TimeoutError(f"silent for {silence:g} s"))
        elif now - self._wrote_at > heartbeat:
            self._report()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("it closed the connection"))

    def close(self) -> None:
        """Read no more."""
        self._transport.close()
        self.copying.close()

    def _end(self, exc: Exception) -> None:
        if not self.ended.done():
            self.ended.set_result(exc)
            self._transport.abort()


def _words(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.errno:
        return os.strerror(exc.errno)
    return str(exc) or ("timed out" if isinstance(exc, TimeoutError) else type(exc).__name__)


def _nearby(ha_address: str) -> str:
    """Where a broker listens for clients, by default."""
    host, port = split_address(ha_address)
    return join_address(host, port - 1)


def _port(address: str | None) -> int:
    try:
        return split_address(address or "")[1]
    except ValueError:
        return 0
