"""The in-sync set of a master: which slaves have every acknowledged message, and how much of the log that confirms.

Only members of the set may become master. So before a message is acknowledged, or shown to a consumer, every member
must have it (docs/spec/controller.md 4.5 and 7), and a slave joins only once it has all that was confirmed without it.
The controllers keep the set. From asking them for another one until it is known what became of that, both sets count:
the controllers may have taken the new one although their answer was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import BrokerError, PyroMQError
from pyromq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyromq.store import MessageStore
    from pyromq.store.metadata.epochs import EpochTable
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..replication.config import ReplicationConfig
    from .config import FailoverConfig
    from .role import InSyncSet

logger = logging.getLogger(__name__)

NOT_ENOUGH = "in-sync replicas not enough"

# Seconds. A slave that needed no longer to get what was sent is near: the set waits for it while it joins, ...
_NEAR = 0.1
# ... but no longer than this, and does not do so again for a while.
_JOINING = 1.0
_JOIN_AGAIN = 10.0
# A request whose answer was lost is not under way any more after this.
_LOST = 10.0
_RETRY = 1.0
# The controllers look at the members only after they saw that their set is the one that this master knows.
_WRONG_MEMBERS = (ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
_NO_CHANGE = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


@dataclass(slots=True)
class _Slave:
    """A slave, by what is known of it since it connected."""

    is_learner: bool
    caught_up_at: float
    is_connected: bool = True
    # Where its log ends, None until it has said so.
    end: int | None = None
    # Where our log ended at some time, which it has yet to reach. None if it has everything, or has said nothing yet.
    mark: tuple[int, float] | None = None
    # When the others may wait for it to join; they did so in vain shortly before.
    may_join_at: float = 0.0


class Log(NamedTuple):
    """The master's log, as far as it matters here."""

    end: int
    confirmed: int
    epoch_start: int  # of the newest epoch


class InSync:
    """The in-sync set. Decides only. `now` is a time of the monotonic clock, everywhere."""

    def __init__(self, own_id: int, taken: InSyncSet) -> None:
        self.own_id = own_id
        self.taken = taken
        # Everybody asked for since that set was taken.
        self.pending: frozenset[int] = frozenset()
        self._asked_at: float | None = None
        # When an answer was lost; None if all were had.
        self._lost_at: float | None = None
        self._slaves: dict[int, _Slave] = {}
        # Slaves for which the others wait, so that they can join, and until when.
        self._joining: dict[int, float] = {}

    # What the controllers say

    def asked(self, members: frozenset[int], now: float) -> None:
        """They are asked for this set. `take`, `refused` or `failed` follows."""
        self._asked_at = now
        self.pending |= members
        self._joining.clear()

    def take(self, new: InSyncSet) -> None:
        """They say which set it is, in an answer or otherwise."""
        if new.epoch > self.taken.epoch:
            self.taken = new
            self.pending = frozenset()
            self._asked_at = self._lost_at = None

    def refused(self, now: float) -> None:
        """They did not take what was asked for, and their set is the one taken last."""
        asked_at, self._asked_at = self._asked_at, None
        if asked_at is not None and (self._lost_at is None or asked_at - self._lost_at > _LOST):
            self.pending = frozenset()
            self._lost_at = None
        self._join_later(now)

    def failed(self, now: float) -> None:
        """Nobody knows whether they did."""
        self._asked_at, self._lost_at = None, now
        self._join_later(now)

    def _join_later(self, now: float) -> None:
        for slave in self._slaves.values():
            slave.may_join_at = max(slave.may_join_at, now + _RETRY)

    # What the slaves do

    def connected(self, slave_id: int, now: float, *, is_learner: bool = False) -> None:
        """A slave is there. How far it is, it has yet to say."""
        self._joining.pop(slave_id, None)
        before = self._slaves.get(slave_id)
        self._slaves[slave_id] = _Slave(is_learner, now, may_join_at=0.0 if before is None else before.may_join_at)

    def disconnected(self, slave_id: int) -> None:
        slave = self._slaves[slave_id]
        slave.is_connected, slave.end, slave.mark = False, None, None
        self._joining.pop(slave_id, None)

    def sent(self, slave_id: int, log_end: int, now: float) -> None:
        """Something was sent to a slave."""
        slave = self._slaves[slave_id]
        if slave.mark is None and slave.end is not None:
            slave.caught_up_at = now  # it had everything until this moment
            slave.mark = log_end, now

    def acknowledged(self, slave_id: int, end: int, log: Log, now: float) -> None:
        """A slave has the log up to `end`."""
        slave = self._slaves[slave_id]
        slave.end = end
        mark = slave.mark
        if mark is None or end >= mark[0]:
            slave.mark = None if end >= log.end else (log.end, now)
        if end >= log.end:
            slave.caught_up_at = now
        elif mark is not None and end >= mark[0]:
            slave.caught_up_at = mark[1]
        else:
            return
        if (
            now - slave.caught_up_at <= _NEAR
            and now >= slave.may_join_at
            and slave_id not in self.counted
            and not slave.is_learner
        ):
            # While messages keep coming, it never has all that is confirmed, if the others do not wait for it.
            self._joining[slave_id] = now + _JOINING

    # What follows

    def wanted(self, log: Log, patience: float, now: float) -> frozenset[int] | None:
        """The set to ask for now, None if the one there is is right. `patience` is how long a slave may lag."""
        if self._asked_at is not None:
            return None
        members = {each for each in self.taken.members if not self._is_lost(each, log, patience, now)}
        for slave_id, slave in self._slaves.items():
            if slave_id in self.taken.members or slave.is_learner or slave.end is None:
                continue
            if slave.end >= max(log.confirmed, log.epoch_start):
                members.add(slave_id)
        if members != self.taken.members:
            return frozenset(members)
        if self._lost_at is not None and now - self._lost_at > _LOST and not self.pending <= self.taken.members:
            # They say no if that is their set, and then it is certain.
            return self.taken.members
        return None

    def expire(self, now: float) -> None:
        """Nobody waits any longer for those that took too long to join."""
        for slave_id, until in tuple(self._joining.items()):
            if now > until:
                del self._joining[slave_id]
                self._slaves[slave_id].may_join_at = now + _JOIN_AGAIN

    @property
    def is_joining(self) -> bool:
        """Whether the others wait for a slave that joins."""
        return bool(self._joining)

    def _is_lost(self, slave_id: int, log: Log, patience: float, now: float) -> bool:
        if slave_id == self.own_id:
            return False
        slave = self._slaves.get(slave_id)
        if slave is None or not slave.is_connected:
            return True
        return (slave.end is None or slave.end < log.end) and now - slave.caught_up_at > patience

    @property
    def counted(self) -> frozenset[int]:
        """All slaves that must have a message before it is confirmed."""
        members = self.taken.members
        if self.pending or self._joining:
            members = members.union(self.pending, self._joining)
        return members - {self.own_id}

    @property
    def size(self) -> int:
        """How many brokers have what is acknowledged."""
        return max(len(self.taken.members), len(self.pending))

    def had_by_all(self, slaves: Iterable[int]) -> int | None:
        """How much of the log all of these have; None if one of them is not there."""
        ends = []
        for slave_id in slaves:
            slave = self._slaves.get(slave_id)
            if slave is None or slave.end is None:
                return None
            ends.append(slave.end)
        return min(ends)

    def having(self, end: int) -> int:
        """How many slaves have the log up to `end`, in the set or not."""
        return sum(slave.end is not None and slave.end >= end for slave in self._slaves.values())

    @property
    def there(self) -> int:
        """How many slaves are connected."""
        return sum(slave.is_connected for slave in self._slaves.values())


class InSyncKeeper:
    """Keeps the in-sync set of a master, confirms its log, and tells those who wait for that.

    `alter` asks the controllers for a set, and gives the one they have then; BrokerError if they refuse it, another
    PyroMQError or OSError if nobody knows. `has_lease` says whether this broker certainly is the only master. `shown`
    gets each queue of which consumers see more, and `moved` is called when more of the log is confirmed. Nobody else
    confirms anything in the store meanwhile. For the durability gate, this is the copies.
    """

    def __init__(
        self,
        store: MessageStore,
        epochs: EpochTable,
        in_sync: InSync,
        *,
        alter: Callable[[frozenset[int]], Awaitable[InSyncSet]],
        has_lease: Callable[[], bool],
        shown: Callable[[ConsumeQueue], None],
        config: Callable[[], FailoverConfig],
        replication: Callable[[], ReplicationConfig],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self.in_sync = in_sync
        self._alter = alter
        self._has_lease = has_lease
        self._shown = shown
        self._config = config
        self._replication = replication
        self._clock = clock
        self.moved: Callable[[], None] = lambda: None
        self._all_ack = config().all_ack
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._changed = asyncio.Event()
        self._retry_at = 0.0
        self.advance()

    # What the slaves do

    def connected(self, slave_id: int, *, is_learner: bool) -> None:
        self.in_sync.connected(slave_id, self._clock(), is_learner=is_learner)

    def disconnected(self, slave_id: int) -> None:
        self.in_sync.disconnected(slave_id)
        self.advance()
        self._changed.set()

    def sent(self, slave_id: int) -> None:
        self.in_sync.sent(slave_id, int(self._store.log.end), self._clock())

    def acknowledged(self, slave_id: int, end: int) -> None:
        now = self._clock()
        self.in_sync.acknowledged(slave_id, end, self._log(), now)
        self.advance()
        if slave_id not in self.in_sync.taken.members and self._wanted(now) is not None:
            self._changed.set()

    # What the controllers say

    def take(self, new: InSyncSet) -> None:
        """The controllers say which set it is."""
        self.in_sync.take(new)
        self.advance()
        self._changed.set()

    async def run(self) -> None:
        """Ask for the set that is wanted, until cancelled."""
        while True:
            now = self._clock()
            wanted = self._wanted(now)
            if wanted is not None and now >= self._retry_at:
                await self._ask(wanted)
                continue
            pause = _NEAR if wanted is not None or self.in_sync.is_joining else self._config().check_interval / 1000
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            self.advance()

    async def _ask(self, wanted: frozenset[int]) -> None:
        in_sync = self.in_sync
        in_sync.asked(wanted, self._clock())
        self.advance()
        logger.info("in-sync set %s: asking for %s", _ids(in_sync.taken.members), _ids(wanted))
        try:
            in_sync.take(await self._alter(wanted))
            logger.info("in-sync set is %s", _ids(in_sync.taken.members))
        except (PyroMQError, OSError) as exc:
            now = self._clock()
            self._retry_at = now + _RETRY
            code = exc.code if isinstance(exc, BrokerError) else None
            if code in _WRONG_MEMBERS or (code == _NO_CHANGE and wanted == in_sync.taken.members):
                in_sync.refused(now)
                logger.warning("the in-sync set stays %s: %s", _ids(in_sync.taken.members), exc)
            else:
                in_sync.failed(now)
                logger.warning("unknown whether the in-sync set is %s now: %s; both sets count", _ids(wanted), exc)
        except asyncio.CancelledError:
            in_sync.failed(self._clock())
            raise
        self.advance()

    def _wanted(self, now: float) -> frozenset[int] | None:
        return self.in_sync.wanted(self._log(), self._config().not_caught_up / 1000, now)

    def _log(self) -> Log:
        last = self._epochs.last
        return Log(int(self._store.log.end), self._store.confirmed, 0 if last is None else last.start)

    # What is confirmed

    def advance(self) -> None:
        """Confirm what can be confirmed. To be called when the lease was renewed; all else is seen to."""
        self.in_sync.expire(self._clock())
        if not self._has_lease():
            self._limit()
            return
        before = self._store.confirmed
        counted = self.in_sync.counted if self._all_ack else frozenset()
        if not counted:
            queues = self._store.confirm(None)
        else:
            self._limit()
            had = self.in_sync.had_by_all(counted)
            queues = [] if had is None else self._store.confirm(had)
        for queue in queues:
            self._shown(queue)
        self._tell()
        if self._store.confirmed != before:
            self.moved()

    def _limit(self) -> None:
        """Readers see no more than is confirmed now."""
        if self._all_ack and not self._store.is_limited and self.in_sync.counted:
            self._store.limit_readers(int(self._store.log.end))

    # Those who wait

    @property
    def timeout(self) -> float:
        return self._replication().slave_timeout / 1000

    def too_few(self) -> str | None:
        return NOT_ENOUGH if self.in_sync.size < self._config().min_in_sync else None

    def out_of_reach(self, end: int) -> str | None:
        if not self._all_ack and self.in_sync.there < self._slaves_needed:
            return "not enough slaves are connected"
        return None

    def when_had(self, end: int, told: Callable[[], None]) -> None:
        if not self._waiting and self._is_had(end):
            told()
        else:
            self._waiting.append((end, told))

    def forget(self, told: Callable[[], None]) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[1] is not told)

    def _is_had(self, end: int) -> bool:
        if not self._has_lease():
            return False
        if self._all_ack:
            return end <= self._store.confirmed
        return self.in_sync.having(end) >= self._slaves_needed

    @property
    def _slaves_needed(self) -> int:
        """How many slaves must have a message if not all of the set must: never more than the set has."""
        return min(self._replication().in_sync_replicas, self.in_sync.size) - 1

    def _tell(self) -> None:
        while self._waiting and self._is_had(self._waiting[0][0]):
            self._waiting.popleft()[1]()


def _ids(members: Iterable[int]) -> str:
    return f"[{', '.join(map(str, sorted(members)))}]"
