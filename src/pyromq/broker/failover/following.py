"""The slave's side of replication with epochs (docs/spec/controller.md 6.4 and 6.5).

After a fail-over this log may end with messages that the new master never had; nobody was told that they are safe. So
before it follows, a slave compares its epochs with the master's and cuts its log off where the two part.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, TypeVar

from pyromq.errors import PyroMQError, RemoteProtocolError, StoreError
from pyromq.protocol.auto_switch import REPORT, TRANSFER, Greeting, Hello, MasterReader, Piece, show
from pyromq.remoting import split_address

from ..replication.copying import READ, Copying
from ..replication.protection import OPEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import Protocol

    from pyromq.protocol.auto_switch import Epoch
    from pyromq.store import MessageStore
    from pyromq.store.metadata.epochs import EpochTable
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..replication.config import ReplicationConfig
    from ..replication.protection import LineProtection
    from .config import FailoverConfig

    T = TypeVar("T")

    class Paused(Protocol):
        """Does something that may take long, while nobody else uses the store; gives its result.

        If it is cancelled, it ends once that is done.
        """

        def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


logger = logging.getLogger(__name__)

# Seconds
_FIRST_RETRY = 0.1
_LAST_RETRY = 5.0
_UNKNOWN = 0.1  # between two looks whether the master is known by now
_LOOK = 1.0
_CONNECT = 3.0
_GREETING = 5.0
_NO_DATA = 30.0  # of heartbeats alone, from a master that has more


class NothingInCommon(StoreError):
    """This log and the master's have no epoch in common, or none that is still there: the two cannot be joined."""


class HungUp(RemoteProtocolError):
    """The master closed the connection, as one does that stops or is no longer master."""


class Following:
    """Follows the master of its group while it `run`s.

    `master` gives where it listens for slaves, None while that is unknown. `arrived` is told each queue of which
    consumers see more, `dispatched` each one that got messages. `caught_up` is called once this log has what the
    master's had at the handshake. `paused` runs what may take long.
    """

    def __init__(
        self,
        store: MessageStore,
        epochs: EpochTable,
        master: Callable[[], str | None],
        *,
        own_id: int,
        config: Callable[[], FailoverConfig],
        replication: Callable[[], ReplicationConfig],
        arrived: Callable[[ConsumeQueue], None],
        dispatched: Callable[[ConsumeQueue], None] = lambda queue: None,
        caught_up: Callable[[], None] = lambda: None,
        paused: Paused,
        protection: LineProtection = OPEN,
    ) -> None:
        self._protection = protection
        self._store = store
        self._epochs = epochs
        self._master = master
        self._own_id = own_id
        self._config = config
        self._replication = replication
        self._arrived = arrived
        self._tell = dispatched
        self.caught_up = caught_up
        self._paused = paused
        self._retry = _FIRST_RETRY
        # What operators see: the master that is followed, since when, and what is wrong.
        self.following: str | None = None
        self.since = 0.0
        self.problem: str | None = "no master is known yet"
        self.master_end = 0
        self._confirmed = 0
        self.read_at = self.wrote_at = 0.0  # by the monotonic clock

    async def run(self) -> None:
        """Follow whichever master there is, until cancelled. Readers see only what masters have confirmed."""
        self._store.limit_readers(self._store.confirmed)
        while True:
            address = self._master()
            if address is None:
                await asyncio.sleep(_UNKNOWN)
                continue
            try:
                await self._follow(address)
            except NothingInCommon as exc:
                self._retry = _LAST_RETRY
                self._note(f"{exc}; this slave stays as it is until its store was removed")
            except (OSError, PyroMQError) as exc:
                # Whether anything is wrong shows next: the controllers may have chosen another master.
                is_expected = self.following is not None and isinstance(exc, HungUp)
                self._note(f"master {address}: {exc}", logging.INFO if is_expected else logging.ERROR)
            finally:
                self.following = None
            if self._master() == address:
                await asyncio.sleep(self._retry)
                self._retry = min(2 * self._retry, _LAST_RETRY)
            else:
                self._retry = _FIRST_RETRY

    def _note(self, problem: str, level: int = logging.ERROR) -> None:
        if problem != self.problem:
            logger.log(level, "not replicating: %s; trying again in %g s", problem, self._retry)
        self.problem = problem

    async def _follow(self, address: str) -> None:
        if self._store.torn:
            torn = await self._paused(self._store.cut_torn_record)
            logger.info("%d bytes of a message that did not come whole are cut off; it will come again", torn)
        self._confirmed = 0  # until this master says so
        host, port = split_address(address)
        try:
            async with asyncio.timeout(_CONNECT):
                transport, feed = await self._protection.connect(lambda: _Feed(self), host, port)
        except TimeoutError:
            raise RemoteProtocolError(f"does not answer within {_CONNECT:g} s") from None
        try:
            greeting = await feed.greeted(_GREETING, is_protected=bool(self._protection.described()))
            await self._join(address, greeting)
            await feed.copying.settled()
            self.following, self.since, self.problem = address, time.monotonic(), None
            self.master_end = greeting.end
            logger.info("following master %s from %d, where its log ends at %d", address, self.end, greeting.end)
            feed.begin(greeting.end)
            await feed.end(self._replication)
        finally:
            transport.abort()
            await feed.over()

    @property
    def hello(self) -> Hello:
        config = self._config()
        return Hello(self._own_id, config.learner, config.from_last_file)

    @property
    def end(self) -> int:
        return int(self._store.log.end)

    # Where the logs part

    async def _join(self, address: str, greeting: Greeting) -> None:
        """Cut off what the master does not have."""
        store, epochs = self._store, self._epochs
        end = self.end
        # Without epochs nothing can be compared; a log from before the group failed over is taken to be the master's.
        common = epochs.common_end(end, greeting.epochs, greeting.end) if epochs.entries else end
        if common is None and store.confirmed == 0:
            # A master was replaced before its first message, and wrote on. Nobody was ever told of these bytes.
            common = 0
        if common is None or common < store.log.start:
            parts = (
                f"this log, {store.log.start} to {end} with the epochs {show(epochs.entries)}, has nothing in "
                f"common with that of master {address}, which ends at {greeting.end} and has the epochs "
                f"{show(greeting.epochs)}"
            )
            if not self._config().wipe:
                raise NothingInCommon(parts)
            logger.error("%s; controllerWipeOnDivergence is set: all of it goes", parts)
            common = 0
        if common < store.confirmed:
            logger.error(
                "%d bytes that were confirmed are cut off: the log of master %s ends at %d, or is another from %d on",
                store.confirmed - common,
                address,
                greeting.end,
                common,
            )
        if common < end:
            logger.warning(
                "the last %d bytes are not in the log of master %s; cut off at %d", end - common, address, common
            )
        if common < end or epochs.unsaved or any(entry.start >= common for entry in epochs.entries):
            await self._paused(lambda: self._cut(common))

    def _cut(self, end: int) -> None:
        # The log first: epochs of bytes that are gone do no harm, bytes without their epoch would.
        if end < self.end:
            if end:
                self._store.truncate(end)
            else:
                self._store.wipe()  # the master may begin anywhere
        self._epochs.cut(end)
        if self._epochs.unsaved:
            self._epochs.save()

    # What the master sends

    def epoch_came(self, epoch: Epoch, *, has_data: bool) -> bool:
        """Take a new epoch into the table. Gives whether that has yet to be saved, before any of its bytes are kept."""
        epochs = self._epochs
        last = epochs.last
        if last is not None and epoch.epoch <= last.epoch:
            if has_data and epoch != last:
                raise RemoteProtocolError(f"the master sent epoch {show((epoch,))} after {show((last,))}")
        elif epoch.epoch >= 0:
            epochs.append(epoch)
            epochs.drop_before(int(self._store.log.start))
        return epochs.unsaved

    def save_epochs(self) -> Awaitable[None]:
        return asyncio.to_thread(self._epochs.save)

    def copying(self, report: Callable[[], None], failed: Callable[[Exception], None]) -> Copying:
        """What keeps the log that comes over one connection."""
        return Copying(self._store, report=report, dispatched=self._dispatched, failed=failed)

    def keep(self, copying: Copying, pieces: Sequence[Piece]) -> None:
        """Keep pieces of the master's log. RemoteProtocolError if one does not continue this one, OSError by the disk.

        What they say is confirmed is shown once it is dispatched.
        """
        copying.keep((piece.offset, piece.data) for piece in pieces)
        self._retry = _FIRST_RETRY
        self.master_end = max(self.master_end, self.end)
        self._confirmed = pieces[-1].head.confirmed
        if not copying.is_dispatching:
            self._show()

    def _dispatched(self, queues: list[ConsumeQueue]) -> None:
        for queue in queues:
            self._tell(queue)
        self._show()

    def _show(self) -> None:
        """Let readers see what is confirmed. Of what has no entries yet they would never see anything."""
        for queue in self._store.confirm(min(self._confirmed, self.end - self._store.torn)):
            self._arrived(queue)


class _Feed(asyncio.BufferedProtocol):
    """One connection to a master. It reads much at once: records are kept and dispatched the faster, the more come."""

    def __init__(self, following: Following) -> None:
        loop = asyncio.get_running_loop()
        self._following = following
        self._buffer = memoryview(bytearray(READ))
        self._reader = MasterReader()
        self.copying = following.copying(self._report, self._end)
        self._transport: asyncio.Transport
        self._read_at = self._wrote_at = self._data_at = time.monotonic()
        self._greeting: asyncio.Future[Greeting] = loop.create_future()
        self._is_following = self._is_gone = False
        self._master_end = 0
        self._has_caught_up = False
        # What came before the table of epochs was saved.
        self._held: list[Greeting | Piece] = []
        self._saving: asyncio.Task[None] | None = None
        # Ends with the reason; a future that fails wants somebody to ask for it, and there may be nobody any more.
        self._ended: asyncio.Future[Exception] = loop.create_future()

    # Handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport
        self._write(self._following.hello.encode())

    async def greeted(self, timeout: float, *, is_protected: bool) -> Greeting:
        """What the master says in the handshake. One that wants more of a slave than this one gives just hangs up."""
        either: list[asyncio.Future[Any]] = [self._greeting, self._ended]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._greeting.done():
            return self._greeting.result()
        if not self._ended.done():
            raise RemoteProtocolError(f"no handshake within {timeout:g} s")
        if self._is_gone and not is_protected:
            raise RemoteProtocolError(
                f"{self._ended.result()}, without a handshake; does it want haSecret, or haTlsEnable?"
            )
        raise self._ended.result()

    def begin(self, master_end: int) -> None:
        """The logs do not differ any more: ask for what follows, at once."""
        self._is_following = True
        self._master_end = master_end
        self._read_at = self._data_at = time.monotonic()
        self._report()
        self._go_on()

    # What comes

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._read_at = time.monotonic()
        self._following.read_at = self._read_at
        try:
            said = self._reader.feed(self._buffer[:nbytes])
        except PyroMQError as exc:
            self._end(exc)
            return
        if self._saving is None:
            self._take(said)
        else:
            self._hold(said)

    def _hold(self, said: Iterable[Greeting | Piece]) -> None:
        """Keep it for later, when the buffer has something else."""
        self._held += [
            each._replace(data=memoryview(bytes(each.data))) if isinstance(each, Piece) else each for each in said
        ]

    def _take(self, said: Sequence[Greeting | Piece]) -> None:
        """Take what came, up to where the table of epochs has to be saved first."""
        if self._ended.done():
            return
        before = self._following.end
        pieces: list[Piece] = []
        try:
            try:
                for index, each in enumerate(said):
                    if isinstance(each, Greeting):
                        self._greeted(each)
                    elif self._is_first_of_epoch(each):
                        self._hold(said[index:])
                        self._transport.pause_reading()
                        self._saving = asyncio.get_running_loop().create_task(self._save(), name="save epochs")
                        break
                    else:
                        pieces.append(each)
            finally:
                if pieces:
                    self._following.keep(self.copying, pieces)
        except (OSError, PyroMQError) as exc:
            self._end(exc)
            return
        if self._following.end != before:
            self._data_at = time.monotonic()

    def _greeted(self, greeting: Greeting) -> None:
        if self._greeting.done():
            raise RemoteProtocolError("the master sent a second handshake")
        self._greeting.set_result(greeting)

    def _is_first_of_epoch(self, piece: Piece) -> bool:
        """Whether it has to wait for the table of epochs."""
        if not self._is_following:
            raise RemoteProtocolError("the master sent its log before it was asked for it")
        return self._following.epoch_came(piece.head.epoch, has_data=bool(piece.data))

    async def _save(self) -> None:
        try:
            await self._following.save_epochs()
        except OSError as exc:
            self._end(exc)
            return
        finally:
            self._saving = None
        if not self._ended.done():
            self._transport.resume_reading()
            self._go_on()

    def _go_on(self) -> None:
        """Take what was held."""
        held, self._held = self._held, []
        self._take(held)

    # What the master is told

    def _report(self) -> None:
        end = self.copying.safe_end
        self._write(REPORT.pack(TRANSFER, end))
        if not self._has_caught_up and end >= self._master_end:
            self._has_caught_up = True
            self._following.caught_up()

    def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            return  # uvloop takes that for a mistake of ours; whoever looks after the connection hears of its end
        self._wrote_at = time.monotonic()
        self._following.wrote_at = self._wrote_at
        self._transport.write(data)

    # Its end

    async def end(self, config: Callable[[], ReplicationConfig]) -> None:
        """Look after the connection until it ends; raises why it did."""
        while not self._ended.done():
            await asyncio.wait([self._ended], timeout=_LOOK)
            now = time.monotonic()
            settings = config()
            heartbeat, silence = settings.heartbeat_interval / 1000, settings.silence / 1000
            if now - self._read_at > silence and self._saving is None:
                self._end(RemoteProtocolError(f"silent for {silence:g} s"))
            elif self._master_end > self._following.end and now - self._data_at > _NO_DATA:
                self._end(
                    RemoteProtocolError(
                        f"nothing but heartbeats for {_NO_DATA:g} s, although its log ended at {self._master_end} "
                        f"and this one ends at {self._following.end}"
                    )
                )
            elif now - self._wrote_at > heartbeat:
                self._report()
        raise self._ended.result()

    async def over(self) -> None:
        """Return once nothing of this connection goes on."""
        self._end(RemoteProtocolError("closed"))
        self.copying.close()
        if self._saving is not None:
            await asyncio.wait([self._saving])

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_gone = True
        self._end(exc or HungUp("the master closed the connection"))

    def _end(self, exc: Exception) -> None:
        if not self._ended.done():
            self._ended.set_result(exc)
            self._transport.abort()
