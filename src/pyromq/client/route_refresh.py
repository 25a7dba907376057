"""Keep routes fresh: refresh all of them regularly, and missing ones sooner."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyromq.remoting import NameServers

    from .routes import Routes
    from .tasks import Tasks

logger = logging.getLogger(__name__)

_FIRST_ROUTES = 0.01
_FIRST_MISSING = 0.25
_AT_ONCE = 16  # routes requested at a time


class RouteRefresh:
    """Asks name servers about `topics()`, each of them at least every `interval` seconds."""

    def __init__(
        self, routes: Routes, name_servers: NameServers, topics: Callable[[], Collection[str]], interval: float
    ) -> None:
        self._routes = routes
        self._name_servers = name_servers
        self._topics = topics
        self._interval = interval
        # For each topic without a route: when to ask next, and how long that wait is.
        self._missing: dict[str, tuple[float, float]] = {}

    def start(self, tasks: Tasks) -> None:
        tasks.every("routes", _FIRST_ROUTES, self._interval, self._refresh_all)
        tasks.every("missing routes", _FIRST_MISSING, _FIRST_MISSING, self._find_missing)

    async def _refresh_all(self) -> None:
        await self._refresh(sorted(self._topics()))

    async def _find_missing(self) -> None:
        """Ask for missing routes sooner, with growing pauses: their topics may be about to appear.

        A topic appears a moment after its first message, and a group's retry topic after its heartbeat.
        """
        missing = {topic for topic in self._topics() if self._routes.cached(topic) is None}
        now = asyncio.get_running_loop().time()
        self._missing = {topic: self._missing.get(topic, (now, _FIRST_MISSING / 2)) for topic in missing}
        due = [topic for topic, (at, _) in self._missing.items() if at <= now]
        for topic in due:
            wait = min(2 * self._missing[topic][1], self._interval)
            self._missing[topic] = (now + wait, wait)
        await self._refresh(due)

    async def _refresh(self, topics: Iterable[str]) -> None:
        if self._name_servers.addresses:
            gate = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(*(self._refresh_one(topic, gate) for topic in topics))

    async def _refresh_one(self, topic: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                await self._routes.refresh(topic)
            except PyroMQError as exc:  # one topic must not stop the others
                logger.warning("route of %s not refreshed: %s", topic, exc)
