"""The slaves of a master: how far each has the log, and who waits for them. Decides only; `master` moves the bytes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .config import ReplicationConfig


class Slaves:
    """How far slaves have acknowledged the log.

    A slave counts once, over however many connections it comes: by its broker id, if it has introduced itself. Of those
    that have not, as RocketMQ's never do, all on one host count once, and not at all beside one that has: they may be
    the same, and whoever asks for two copies wants two disks.
    """

    def __init__(self) -> None:
        self._ends: dict[Hashable, int] = {}  # by connection
        self._who: dict[Hashable, tuple[str, int | None]] = {}  # its host, and its broker id if that is known
        # Those who wait, in the order of the log: up to where, how many slaves, and whom to tell.
        self._waiting: deque[tuple[int, int, Callable[[], None]]] = deque()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def furthest(self) -> int:
        """How much of the log some slave has; 0 without any."""
        return max(self._ends.values(), default=0)

    def joined(self, connection: Hashable, host: str) -> None:
        """A slave is connected. How far it is, it has yet to say."""
        self._ends[connection] = 0
        self._who[connection] = host, None

    def introduced(self, connection: Hashable, broker_id: int) -> None:
        host, _ = self._who[connection]
        self._who[connection] = host, broker_id

    def left(self, connection: Hashable) -> None:
        self._ends.pop(connection, None)
        self._who.pop(connection, None)

    def acknowledged(self, connection: Hashable, end: int) -> None:
        """A slave has the log up to `end`: those who waited for that are told, in their order."""
        self._ends[connection] = end
        while self._waiting:
            wanted, count, told = self._waiting[0]
            if self.having(wanted) < count:
                return
            self._waiting.popleft()
            told()

    def having(self, end: int) -> int:
        """How many slaves have the log up to `end`."""
        there = [connection for connection, reached in self._ends.items() if reached >= end]
        if len(there) < 2:
            return len(there)
        known = {self._who[each] for each in there if self._who[each][1] is not None}
        hosts = {host for host, _ in known}
        others = {self._who[each][0] for each in there} - hosts
        return len({broker_id for _, broker_id in known}) + len(others)

    def are_near(self, end: int, furthest_behind: int) -> bool:
        """Whether some slave is there that is not too far behind to be waited for."""
        return bool(self._ends) and end - self.furthest < furthest_behind

    def when_had(self, end: int, count: int, told: Callable[[], None]) -> None:
        """Call `told` once `count` slaves have the log up to `end`."""
        if not self._waiting and self.having(end) >= count:
            told()
        else:
            self._waiting.append((end, count, told))

    def forget(self, told: Callable[[], None]) -> None:
        """Somebody does not wait any more."""
        self._waiting = deque(entry for entry in self._waiting if entry[2] is not told)


class SlaveCopies:
    """What a SYNC_MASTER wants of its slaves. `config` gives the settings as they are now."""

    def __init__(self, slaves: Slaves, config: Callable[[], ReplicationConfig]) -> None:
        self._slaves = slaves
        self._config = config

    @property
    def wanted(self) -> int:
        """How many slaves must have a message; 0 if the master's own copy is enough."""
        return self._config().in_sync_replicas - 1

    @property
    def timeout(self) -> float:
        return self._config().slave_timeout / 1000

    def too_few(self) -> str | None:
        return None

    def out_of_reach(self, end: int) -> str | None:
        if self.wanted and not self._slaves.are_near(end, self._config().max_fall_behind):
            return "no slave is near enough to wait for"
        return None

    def when_had(self, end: int, told: Callable[[], None]) -> None:
        self._slaves.when_had(end, self.wanted, told)

    def forget(self, told: Callable[[], None]) -> None:
        self._slaves.forget(told)
