"""Who is alive: brokers beat (904), and the connection they beat over is open (docs/spec/controller.md 3.2).

Kept in memory only. All times are seconds of one `SteadyClock`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .election import LOWEST_PRIORITY, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 10.0
# Somebody looks at the clock more often than this, unless the whole process stands still.
LONGEST_GAP = 1.0


class SteadyClock:
    """Seconds in which this process was able to listen.

    After a pause (SIGSTOP, a suspended machine) everybody would seem silent, while what they sent is still unread. So a
    pause counts as one second at most: masters are replaced later then, never too early.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self._left_out = 0.0

    def __call__(self) -> float:
        now = self._clock()
        pause = now - self._last - LONGEST_GAP
        self._last = now
        if pause > 0:
            self._left_out += pause
            logger.warning("this process stood still for %.1f s; brokers get that time in addition", pause)
        return now - self._left_out


class BrokerKey(NamedTuple):
    cluster: str
    name: str
    id: int


@dataclass(slots=True)
class _Entry:
    last: float
    timeout: float
    connection: Hashable
    standing: Standing

    @property
    def until(self) -> float:
        return self.last + self.timeout


class Liveness:
    """The brokers that beat. A broker is gone when its time-out ends or the connection of its last beat closes.

    RocketMQ keeps to the connection of the first beat. We take the last one's: a broker that came back over a new
    connection is not gone when the old one, which nobody uses any more, is finally closed.
    """

    def __init__(self) -> None:
        # By cluster and broker name, then by id.
        self._groups: dict[tuple[str, str], dict[int, _Entry]] = {}
        # The time-outs that brokers named last, also those of brokers that are gone.
        self._timeouts: dict[BrokerKey, float] = {}

    def beat(self, key: BrokerKey, connection: Hashable, standing: Standing, timeout: float, now: float) -> bool:
        """Take a heartbeat; True if the broker was not alive before.

        Epoch and offset only grow while it is alive: a beat may have been overtaken by a later one. But a broker that
        is doubtful has begun a new life, in which it has less; what comes over another connection then and knows of no
        doubt is a late word of the former life.
        """
        self._timeouts[key] = timeout
        entries = self._groups.setdefault(key[:2], {})
        entry = entries.get(key.id)
        if entry is None:
            entries[key.id] = _Entry(now, timeout, connection, standing)
            return True
        was_silent = entry.until < now
        before = entry.standing
        if before.doubtful and not standing.doubtful and connection is not entry.connection and not was_silent:
            return False
        if not standing.doubtful and not before.doubtful:
            newest = max(before[:2], standing[:2])
            standing = Standing(*newest, standing.priority)
        entry.last, entry.timeout, entry.connection, entry.standing = now, timeout, connection, standing
        return was_silent

    def is_alive(self, key: BrokerKey, now: float) -> bool:
        entry = self._groups.get(key[:2], {}).get(key.id)
        return entry is not None and entry.until >= now

    def standings(self, cluster: str, name: str, now: float) -> dict[int, Standing]:
        """What the live brokers of a group last said, by id."""
        entries = self._groups.get((cluster, name), {})
        return {broker_id: entry.standing for broker_id, entry in entries.items() if entry.until >= now}

    def is_doubtful(self, key: BrokerKey) -> bool:
        """Whether a broker said so last."""
        entry = self._groups.get(key[:2], {}).get(key.id)
        return entry is not None and entry.standing.doubtful

    def timeout(self, key: BrokerKey) -> float:
        """The seconds of silence after which a broker is gone, as it said last; RocketMQ's if it said nothing yet."""
        return self._timeouts.get(key, DEFAULT_TIMEOUT)

    def connection_closed(self, connection: Hashable) -> list[BrokerKey]:
        """Forget the brokers that beat over it last, and name them."""
        return self._forget([key for key, entry in self._entries() if entry.connection is connection])

    def expire(self, now: float) -> tuple[list[BrokerKey], list[Hashable]]:
        """Forget the brokers whose time-out ended, and name them and their connections."""
        silent = {key: entry.connection for key, entry in self._entries() if entry.until < now}
        return self._forget([*silent]), [*silent.values()]

    def next_end(self) -> float | None:
        """When the next time-out ends; None if nobody is alive."""
        return min((entry.until for _, entry in self._entries()), default=None)

    def _entries(self) -> Iterator[tuple[BrokerKey, _Entry]]:
        for (cluster, name), entries in self._groups.items():
            for broker_id, entry in entries.items():
                yield BrokerKey(cluster, name, broker_id), entry

    def _forget(self, keys: list[BrokerKey]) -> list[BrokerKey]:
        for key in keys:
            entries = self._groups[key[:2]]
            del entries[key.id]
            if not entries:
                del self._groups[key[:2]]
        return keys


def standing_of(
    epoch: int | None, max_offset: int | None, priority: int | None, doubtful: bool | None = None
) -> Standing:
    """A standing from the fields of a heartbeat, which may be absent."""
    return Standing(
        -1 if epoch is None else epoch,
        -1 if max_offset is None else max_offset,
        LOWEST_PRIORITY if priority is None else priority,
        bool(doubtful),
    )
