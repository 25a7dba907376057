"""The master's side of replication: who its slaves are, and who is sent away (docs/spec/ha.md 2.1).

Each slave gets the log from where its own ends, over a `slave_link`; new messages in the turn that stores them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyromq.remoting import FoldedLog, format_address

from .lines import PlainLine
from .proof import NotProven
from .protection import OPEN
from .slave_link import SlaveLink
from .wire import PlainWire, misplaced

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pyromq.store.commit_log import CommitLog

    from .config import ReplicationConfig
    from .introductions import Identity
    from .lines import Line
    from .protection import LineProtection
    from .wire import Audience, Wire

logger = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at silent slaves
_REFUSALS_KEPT = 16
_REFUSAL_COUNTS = 60.0  # seconds; the same again within that time is no news
_NUMBER = re.compile(r"\d+")
_EXPECTED = 64
_EXPECTED_FOR = 10.0  # seconds in which a slave that has introduced itself has to connect


class Refusal(NamedTuple):
    """A slave that was sent away, or that stays away by itself, for operators to see."""

    peer: str
    broker_id: int | None
    reason: str
    is_own_choice: bool
    at: float  # by the monotonic clock

    @property
    def gist(self) -> tuple[object, ...]:
        """What stays the same when the slave comes again: its port and the ends of logs do not."""
        return host_of(self.peer), self.broker_id, self.is_own_choice, _NUMBER.sub("", self.reason)


class Master:
    """Sends the log to all slaves. `config` gives the settings as they are now, `wire` the protocol for a slave.

    `is_awaited` says whether answers to producers or consumers wait for slaves, so that every message is in a hurry.
    """

    def __init__(
        self,
        log: CommitLog,
        slaves: Audience,
        config: Callable[[], ReplicationConfig],
        wire: Callable[[SlaveLink], Wire] | None = None,
        protection: LineProtection = OPEN,
        *,
        is_awaited: bool = True,
    ) -> None:
        self._log = log
        self.is_awaited = is_awaited
        self.wire = wire or (lambda link: PlainWire(log))
        # Slaves of a group that fails over cannot say that they will go. If one is lost, its controllers tell of it.
        self._hears_goodbyes = wire is None
        self._slaves = slaves
        self._config = config
        self.links: dict[SlaveLink, None] = {}  # oldest first
        self.refusals: deque[Refusal] = deque(maxlen=_REFUSALS_KEPT)
        # Who will connect from where, and until when that is believed.
        self._expected: dict[str, tuple[Identity, float]] = {}
        self._changed = asyncio.Event()  # a slave has more, or is gone
        self._is_stopping = False
        self._protection = protection
        # Connections that have yet to prove something, oldest first.
        self._admissions: dict[asyncio.Task[None], None] = {}
        self._faults = FoldedLog()

    def accepted(self, sock: socket.socket) -> None:
        """A connection to the port of replication."""
        if self._is_stopping or not self._has_room():
            sock.close()
        elif self._protection.is_open:
            with contextlib.suppress(OSError):  # it is gone already
                self._welcome(PlainLine(sock))
                return
            sock.close()
        else:

            def ended(task: asyncio.Task[None]) -> None:
                del self._admissions[task]
                if task.cancelled():
                    sock.close()  # it may never have begun

            task = asyncio.create_task(self._admit(sock), name="admit a slave")
            self._admissions[task] = None
            task.add_done_callback(ended)

    def _has_room(self) -> bool:
        """Whether one more may connect. Strangers make room for it, the oldest first: a slave says at once where it is.

        So whoever fills the port with connections keeps no slave away.
        """
        most = self._config().max_connections
        there = len(self.links) + len(self._admissions)
        if there < most:
            return True
        self._say(
            logging.WARNING,
            "full",
            f"{there} connections for replication are open; closing the oldest strangers (haMaxConnections)",
        )
        for task in self._admissions:
            if not task.cancelling():
                task.cancel()
                return True
        for link in self.links:
            if link.acknowledged is None:
                link.close("others want to connect (haMaxConnections)")
                return True
        return False

    def _say(self, level: int, about: object, line: str) -> None:
        """Log what strangers can cause: once in a while."""
        again = self._faults.due((about, level))
        if again is not None:
            logger.log(level, "%s%s", line, again)

    async def _admit(self, sock: socket.socket) -> None:
        """Look who it is, first."""
        try:
            peer = format_address(sock.getpeername()[:2])
        except OSError:
            sock.close()
            return
        try:
            line = await self._protection.admit(sock, self._config().silence / 1000)
        except NotProven as exc:
            self._note(Refusal(peer, None, str(exc), False, time.monotonic()))
        except (OSError, TimeoutError) as exc:
            reason = str(exc) or type(exc).__name__
            self._say(logging.INFO, ("gone", host_of(peer)), f"{peer} is gone before it was admitted: {reason}")
        else:
            try:
                self._welcome(line)
            except OSError:
                line.close()

    def _welcome(self, line: Line) -> None:
        link = SlaveLink(line, self._log, self._config().transfer_batch, self)
        self.links[link] = None
        self._slaves.joined(link, host_of(link.peer))
        self._say(logging.INFO, ("there", host_of(link.peer)), f"{link.peer} connected for replication")
        slave, until = self._expected.pop(link.peer, (None, 0.0))
        if slave is not None and time.monotonic() < until:
            self._recognised(link, slave)

    # What slaves say about themselves

    def introduced(self, slave: Identity, at: str | None, wrong: str | None = None) -> str | None:
        """A slave says who it is, and that `at` is its end of a connection, which may have yet to come.

        Gives why it is refused, None if it is welcome. `wrong` is what is known to be wrong with it.
        """
        link = self._link_at(at)
        reason = wrong or self._taken(slave, link)
        if reason is not None:
            if link is not None:
                link.slave = slave
                link.refuse(reason)
            else:
                self._note(Refusal(slave.address, slave.broker_id, reason, False, time.monotonic()))
        elif link is not None:
            self._recognised(link, slave)
        elif at is not None:
            while len(self._expected) >= _EXPECTED:
                del self._expected[next(iter(self._expected))]
            self._expected[at] = slave, time.monotonic() + _EXPECTED_FOR
        return reason

    def misplaced(self, end: int) -> str | None:
        """Why a slave whose log ends there cannot follow."""
        return misplaced(end, self._log)

    def leaves(self, at: str | None) -> None:
        """A slave says that it will end a connection."""
        link = self._link_at(at)
        if link is not None:
            link.is_leaving = True

    def stays_away(self, slave: Identity, at: str | None, problem: str) -> None:
        """A slave says why it does not follow."""
        self.leaves(at)
        self._note(Refusal(slave.address, slave.broker_id, problem, True, time.monotonic()))

    def _link_at(self, peer: str | None) -> SlaveLink | None:
        return next((link for link in self.links if link.peer == peer), None)

    def _taken(self, slave: Identity, link: SlaveLink | None) -> str | None:
        """Whether another slave has the same id. One that was not heard for a while may be the same, restarted."""
        for other in self.links:
            if other is link or other.slave is None or other.slave.broker_id != slave.broker_id:
                continue
            lively = 1.5 * self._config().heartbeat_interval / 1000
            if other.slave.instance != slave.instance and time.monotonic() - other.read_at < lively:
                return (
                    f"another slave with brokerId {slave.broker_id} is connected, {other.slave.address}; "
                    "give each slave an id of its own"
                )
        return None

    def _recognised(self, link: SlaveLink, slave: Identity) -> None:
        link.slave = slave
        self._slaves.introduced(link, slave.broker_id)
        logger.info("%s is slave %d, %s", link.peer, slave.broker_id, slave.address)
        for other in tuple(self.links):
            if other is not link and other.slave is not None and other.slave.broker_id == slave.broker_id:
                other.is_leaving = True
                other.close("the slave has connected anew")

    def _note(self, refusal: Refusal) -> None:
        like = [each for each in self.refusals if each.gist == refusal.gist]
        is_news = not any(refusal.at - each.at < _REFUSAL_COUNTS for each in like)
        for each in like:
            self.refusals.remove(each)
        self.refusals.append(refusal)
        if is_news and refusal.is_own_choice:
            logger.error("slave %s stays away: %s", refusal.peer, refusal.reason)
        elif is_news:
            logger.error("slave %s is refused: %s", refusal.peer, refusal.reason)

    # What they do

    def appended(self) -> None:
        """The log has grown."""
        for link in tuple(self.links):  # one that finds its slave gone leaves
            link.grown()

    def follows(self, link: SlaveLink) -> None:
        """A slave has begun to follow: what was wrong with it is over."""
        if link.slave is not None:
            kept = [each for each in self.refusals if each.broker_id != link.slave.broker_id]
            self.refusals = deque(kept, maxlen=_REFUSALS_KEPT)

    def reported(self, link: SlaveLink, end: int) -> None:
        self._slaves.acknowledged(link, end)
        self._changed.set()

    @property
    def bytes_per_second(self) -> int:
        """How much a slave may be sent in a second; 0 is no limit."""
        config = self._config()
        return config.max_transfer if config.flow_control else 0

    def closed(self, link: SlaveLink, reason: str, *, is_refusal: bool) -> None:
        self.links.pop(link, None)
        self._slaves.left(link)
        self._changed.set()
        if is_refusal:
            broker_id = None if link.slave is None else link.slave.broker_id
            self._note(Refusal(link.peer, broker_id, reason, False, time.monotonic()))
        elif link.acknowledged is None:
            line = f"{link.peer} is gone, and never said where its log ends: {reason}"
            self._say(logging.INFO, ("gone", host_of(link.peer)), line)
        else:
            is_expected = link.is_leaving or self._is_stopping or not self._hears_goodbyes
            logger.log(logging.INFO if is_expected else logging.WARNING, "slave %s is gone: %s", link.peer, reason)

    async def run(self) -> None:
        """Keep connections alive, and close those that are not, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            config = self._config()
            now = time.monotonic()
            for link in tuple(self.links):
                link.look(now, config.heartbeat_interval / 1000, config.silence / 1000)

    async def finish(self, timeout: float) -> None:
        """Wait until every slave has the whole log, but no longer than this."""
        end = int(self._log.end)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while any(link.acknowledged is not None and link.acknowledged < end for link in self.links):
                    self._changed.clear()
                    await self._changed.wait()

    def close(self, reason: str = "the broker stops") -> None:
        self._is_stopping = True
        for task in tuple(self._admissions):
            task.cancel()
        for link in tuple(self.links):
            link.close(reason)


def host_of(address: str) -> str:
    return address.rpartition(":")[0]
