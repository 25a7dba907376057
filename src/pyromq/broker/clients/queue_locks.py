"""Queue locks: which consumer of a group may consume a queue in order (docs/spec/broker.md 10).

Locks only work between members that use them: a pull does not look at locks. They live in memory,
and closing a connection does not release them; a member that stops renewing loses them after a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.message_queue import MessageQueue

# Clients ask again every 20 seconds and stop consuming after 30 without an answer, so none uses an expired lock.
LOCK_EXPIRES_MS = 60_000

_SWEEP_AT = 1024


class _Lock(NamedTuple):
    client_id: str
    taken: int


class QueueLocks:
    """The locks of all groups. Times are monotonic milliseconds.

    Queue names are not checked: a queue need not exist.
    """

    def __init__(self, expires_ms: int = LOCK_EXPIRES_MS) -> None:
        self._expires = expires_ms
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}
        self._sweep_at = _SWEEP_AT

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: int) -> list[MessageQueue]:
        """Take or renew locks; returns those of `queues` that `client_id` holds now."""
        mine = _Lock(client_id, now)
        held = []
        for queue in dict.fromkeys(queues):
            lock = self._locks.get((group, queue))
            if lock is None or lock.client_id == client_id or self._is_expired(lock, now):
                self._locks[group, queue] = mine
                held.append(queue)
        if len(self._locks) >= self._sweep_at:
            self._sweep(now)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release locks; those of other clients stay."""
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.client_id == client_id:
                del self._locks[group, queue]

    def _is_expired(self, lock: _Lock, now: int) -> bool:
        return now - lock.taken > self._expires

    def _sweep(self, now: int) -> None:
        """Forget expired locks of old groups; rare enough to cost each `lock` next to nothing."""
        self._locks = {key: lock for key, lock in self._locks.items() if not self._is_expired(lock, now)}
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._locks))
