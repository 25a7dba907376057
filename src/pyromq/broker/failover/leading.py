"""The master's side of replication with epochs (docs/spec/controller.md 6.3).

Bytes move as in plain replication. What differs is on the wire: a slave introduces itself and is told the epochs of
this log before it says where its own ends; each frame carries the epoch of its bytes, and how much is confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol.auto_switch import MAX_FRAME_DATA, Epoch, FrameHead, Greeting, Hello, SlaveReader, show

from ..replication.master import Master
from ..replication.protection import OPEN
from ..replication.wire import CannotFollow

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pyromq.store import MessageStore
    from pyromq.store.metadata.epochs import EpochTable

    from ..replication.config import ReplicationConfig
    from ..replication.protection import LineProtection
    from ..replication.slave_link import SlaveLink
    from .in_sync import InSyncKeeper

logger = logging.getLogger(__name__)

_NEWS = 0.01  # seconds between two heartbeats that only say what is confirmed
_NO_EPOCH = Epoch(-1, -1)


def begin_epoch(store: MessageStore, epochs: EpochTable, epoch: int) -> None:
    """Get the log of a new master ready: it begins an epoch where its last whole record ends.

    Blocks; nobody else may use the store meanwhile. StoreError, and nothing has changed, if this log has a newer epoch:
    then the controllers have forgotten what they knew. OSError if the disk fails.
    """
    if epoch < epochs.last_epoch:
        raise StoreError(f"made master for epoch {epoch}, but this log has epochs up to {epochs.last_epoch}")
    torn = store.cut_torn_record()
    if torn:
        logger.warning("%d bytes of a message that never came whole are cut off the end of the log", torn)
    end = int(store.log.end)
    if epoch > epochs.last_epoch:
        # Without a table this is the first epoch; all that was written before belongs to it, or no slave could be
        # sent it.
        epochs.append(Epoch(epoch, end if epochs.entries else int(store.log.start)))
    epochs.drop_before(int(store.log.start))
    if epochs.unsaved:
        epochs.save()
    logger.info("epoch %d begins at %d; all epochs: %s", epoch, end, show(epochs.entries))


class Leading:
    """Sends the log of a master to the slaves of its group, and tells the in-sync set how far they are."""

    def __init__(
        self,
        store: MessageStore,
        epochs: EpochTable,
        keeper: InSyncKeeper,
        config: Callable[[], ReplicationConfig],
        protection: LineProtection = OPEN,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._wires: dict[SlaveLink, _EpochWire] = {}
        self._links: dict[int, SlaveLink] = {}  # by the slave's id
        self._told_at = 0.0
        self._telling: asyncio.TimerHandle | None = None
        self.master = Master(store.log, self, config, self._wire, protection)
        keeper.moved = self.tell

    async def run(self) -> None:
        """Keep connections alive until cancelled."""
        await self.master.run()

    def close(self, reason: str = "this broker is no longer master") -> None:
        """Slaves go elsewhere."""
        self._keeper.moved = lambda: None
        if self._telling is not None:
            self._telling.cancel()
        self.master.close(reason)

    def slave_id(self, link: SlaveLink) -> int | None:
        """Who is at the other end; None until it has introduced itself."""
        wire = self._wires.get(link)
        return None if wire is None or wire.hello is None else wire.hello.slave_id

    def _wire(self, link: SlaveLink) -> _EpochWire:
        wire = self._wires[link] = _EpochWire(self, link, self._store, self._epochs)
        return wire

    # What is confirmed

    def tell(self) -> None:
        """Let slaves know that more is confirmed, or that an epoch has begun, even if nothing else is to be sent."""
        if self._telling is None:
            pause = self._told_at + _NEWS - self._loop.time()
            if pause <= 0:
                self._tell()
            else:
                self._telling = self._loop.call_later(pause, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._told_at = self._loop.time()
        untold = [wire for wire in tuple(self._wires.values()) if wire.tell()]
        if untold:
            self._telling = self._loop.call_later(_NEWS, self._tell)

    # What slaves do

    def greeted(self, link: SlaveLink, hello: Hello) -> None:
        """A slave says who it is. An older connection of the same slave has had its day."""
        if hello.slave_id == self._keeper.in_sync.own_id:
            raise RemoteProtocolError(f"it has this broker's own id, {hello.slave_id}")
        logger.info("%s is %s %d", link.peer, "learner" if hello.is_learner else "slave", hello.slave_id)
        older = self._links.get(hello.slave_id)
        self._links[hello.slave_id] = link
        self._keeper.connected(hello.slave_id, is_learner=hello.is_learner)
        if older is not None:
            older.close("the slave has connected anew")

    def sent(self, link: SlaveLink, hello: Hello) -> None:
        if self._links.get(hello.slave_id) is link:
            self._keeper.sent(hello.slave_id)

    def joined(self, connection: Hashable, host: str) -> None:
        """It has yet to say who it is."""

    def introduced(self, connection: Hashable, broker_id: int) -> None:
        """Nobody does it that way here."""

    def left(self, connection: Hashable) -> None:
        wire = self._wires.pop(connection, None)  # type: ignore[call-overload]  # slaves are links here
        if wire is not None and wire.hello is not None and self._links.get(wire.hello.slave_id) is connection:
            del self._links[wire.hello.slave_id]
            self._keeper.disconnected(wire.hello.slave_id)

    def acknowledged(self, connection: Hashable, end: int) -> None:
        wire = self._wires[connection]  # type: ignore[index]  # slaves are links here
        assert wire.hello is not None
        if self._links.get(wire.hello.slave_id) is connection:
            self._keeper.acknowledged(wire.hello.slave_id, end)
        if wire.tell():
            self.tell()


class _EpochWire:
    """One connection of a slave."""

    def __init__(self, leading: Leading, link: SlaveLink, store: MessageStore, epochs: EpochTable) -> None:
        self._leading = leading
        self._link = link
        self._store = store
        self._log = store.log
        self._epochs = epochs
        self._reader = SlaveReader()
        self.hello: Hello | None = None
        # What the last frame said: the epoch, and how much is confirmed.
        self._told: tuple[Epoch, int] | None = None

    def read(self, data: bytes) -> tuple[bytes, int | None]:
        answer, report = b"", None
        for said in self._reader.feed(data):
            if isinstance(said, int):
                if self.hello is None:
                    raise RemoteProtocolError("it says where its log ends before it says who it is")
                report = said
            elif self.hello is None:
                self._leading.greeted(self._link, said)
                self.hello = said
                answer = Greeting(int(self._log.end), self._epochs.entries).encode()
            # RocketMQ's slaves may say it twice, and hang up on a second answer.
        return answer, report

    def begin(self, end: int) -> int:
        log_start, log_end = int(self._log.start), int(self._log.end)
        if end == 0:
            assert self.hello is not None
            end = log_end - log_end % self._log.file_size if self.hello.from_last_file else log_start
        if end < log_start:
            raise CannotFollow(f"its log ends at {end}, this one begins at {log_start}")
        if self._epochs.entry_of(end) is None:
            raise CannotFollow(f"its log ends at {end}, of which no epoch is known: {show(self._epochs.entries)}")
        return end

    def reach(self, position: int) -> int:
        log_end = int(self._log.end)
        return min(self._epochs.end_of(position, log_end), log_end, position + MAX_FRAME_DATA)

    def head(self, position: int, size: int) -> bytes:
        epoch, confirmed = self._news(position)
        self._told = epoch, confirmed
        if size and self.hello is not None:
            self._leading.sent(self._link, self.hello)
        return FrameHead(size, position, epoch, confirmed).encode()

    def tell(self) -> bool:
        """Send a heartbeat if it has something new to say. Gives whether it could not be sent."""
        position = self._link.position
        if position is None or position != self._log.end or self._told == self._news(position):
            return False
        self._link.tell()
        return self._told != self._news(position)

    def _news(self, position: int) -> tuple[Epoch, int]:
        return self._epochs.entry_of(position) or _NO_EPOCH, self._store.confirmed
