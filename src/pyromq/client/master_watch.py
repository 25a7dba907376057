"""Follow a group to its next master: ask for routes as soon as the connection to the old one ends.

Otherwise routes are asked for every 30 seconds. For so long a consumer would commit to a broker that is gone, and an
ordered one would hold no locks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .routes import Routes
    from .tasks import Tasks

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_PATIENCE = 30.0


class MasterWatch:
    """Watches groups whose master was lost. `is_back` says whether a connection to an address is open again."""

    def __init__(self, routes: Routes, tasks: Tasks, is_back: Callable[[str], bool], timeout: float) -> None:
        self._routes = routes
        self._tasks = tasks
        self._is_back = is_back
        self._timeout = timeout
        self._watched: set[str] = set()

    def lost(self, address: str) -> None:
        """The connection to a broker ended."""
        for broker, topic in self._routes.led_by(address):
            if broker not in self._watched and self._routes.may_change_master(broker):
                self._watched.add(broker)
                self._tasks.once(self._watch(broker, topic, address), f"find the next master of {broker}")

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
