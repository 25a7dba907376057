"""Follow a group to its next master: ask for routes as soon as the connection to the old one ends.

Otherwise routes are asked for every 30 seconds. For so long a consumer would commit to a broker that is gone, and an
ordered one would hold no locks.

A master may also fall silent, frozen or cut off, with its connection open. Then whoever waits for its answers is let go
once another is master.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.remoting import Connection

    from .routes import Routes
    from .tasks import Tasks

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_PATIENCE = 30.0
# How often to look for silent masters, and for how many such looks to ask for the route each time.
LOOK = 1.0
_SILENT_LOOKS = 8


class MasterWatch:
    """Watches groups whose master was lost. `connection` gives the open connection to an address."""

    def __init__(
        self, routes: Routes, tasks: Tasks, connection: Callable[[str], Connection | None], timeout: float
    ) -> None:
        self._routes = routes
        self._tasks = tasks
        self._connection = connection
        self._timeout = timeout
        self._watched: set[str] = set()
        # For each master with calls under way: what it had sent at the last look, and how many looks ago that was.
        self._heard: dict[str, tuple[int, int]] = {}

    def lost(self, address: str) -> None:
        """The connection to a broker ended."""
        for broker, topic in self._routes.led_by(address):
            if broker not in self._watched and self._routes.may_change_master(broker):
                self._watched.add(broker)
                self._tasks.once(self._watch(broker, topic, address), f"find the next master of {broker}")

    async def look(self) -> None:
        """Ask for routes whose master owes us answers and has been silent since the last look."""
        before, self._heard = self._heard, {}
        for address in self._routes.masters():
            connection = self._connection(address)
            if connection is None or not connection.calls_under_way:
                continue
            received, looks = before.get(address, (-1, 0))
            looks = looks + 1 if connection.received == received else 0
            self._heard[address] = connection.received, looks
            if 0 < looks <= _SILENT_LOOKS:
                for broker, topic in self._routes.led_by(address):
                    if self._routes.may_change_master(broker):
                        await self._routes.look_again(topic, self._timeout)

    def _is_back(self, address: str) -> bool:
        """Whether it answers again. That it took a connection says nothing: a frozen one does, too."""
        connection = self._connection(address)
        return connection is not None and connection.received > 0

    async def _watch(self, broker: str, topic: str, lost: str) -> None:
        try:
            pause, waited = _FIRST_PAUSE, 0.0
            while waited < _PATIENCE:
                await asyncio.sleep(pause)
                waited += pause
                pause = min(2 * pause, _LONGEST_PAUSE)
                await self._routes.look_again(topic, self._timeout)
                if self._routes.master(broker) not in (None, lost) or self._is_back(lost):
                    return
        finally:
            self._watched.discard(broker)
