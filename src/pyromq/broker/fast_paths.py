"""Pulls and sends that are served without making commands of them, from one read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyromq.remoting.endpoint import FastRequests

if TYPE_CHECKING:
    from pyromq.remoting import Connection


class FastPath(FastRequests, Protocol):
    """One kind of requests."""

    def forget(self) -> None:
        """The queues of a topic are gone."""


class FastPaths:
    """Lets each take what it knows. As `FastRequests`."""

    def __init__(self, paths: tuple[FastPath, ...]) -> None:
        self._paths = paths
        self.taken = 0

    @classmethod
    def of(cls, *paths: FastPath | None) -> FastPaths | None:
        """Those that there are; None if there are none."""
        found = tuple(path for path in paths if path is not None)
        return cls(found) if found else None

    def take(self, connection: Connection, data: bytes, at: int, most: int, max_header: int) -> int:
        """See `FastRequests`."""
        self.taken = 0
        for path in self._paths:
            at = path.take(connection, data, at, most - self.taken, max_header)
            self.taken += path.taken
            if at == len(data):
                break
        return at

    def forget(self) -> None:
        """The queues of a topic are gone."""
        for path in self._paths:
            path.forget()
