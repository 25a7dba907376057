"""The sampler: looks at a cluster every ten seconds, keeps the numbers, and tells those who watch."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.admin.asking import within
from pyromq.admin.lookout import Lookout, Snapshot
from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.admin.asking import AdminClient

    from .kept.history import History

logger = logging.getLogger(__name__)

DEADLINE = 3.0
# Busy topics whose rate is kept; thousands of quiet ones are not.
_TOPICS_KEPT = 500


class Sampler:
    """`latest` is the last look, empty before the first. `looked` is called after each."""

    def __init__(
        self, name: str, admin: AdminClient, history: History, *, every: float, looked: Callable[[Snapshot], None]
    ) -> None:
        self._name = name
        self._every = every
        self._history = history
        self._looked = looked
        self._lookout = Lookout(admin)
        self._wanted = asyncio.Event()
        self._idle = asyncio.Lock()
        self.latest = Snapshot(0.0, (), (), {}, {})

    async def run(self) -> None:
        while True:
            await self.look()
            try:
                async with asyncio.timeout(self._every):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()

    def look_soon(self) -> None:
        """Something was changed: do not wait for the next turn."""
        self._wanted.set()

    async def look(self) -> Snapshot:
        """Look now."""
        async with self._idle:
            try:
                async with within(DEADLINE):
                    seen = await self._lookout.look()
            except (PyroMQError, TimeoutError) as exc:
                logger.warning("cluster %s could not be looked at: %s", self._name, str(exc) or "no answer in time")
                return self.latest
            self.latest = seen
            await self._history.add(self._name, seen.at, values_of(seen))
            self._looked(seen)
            return seen


def values_of(seen: Snapshot) -> dict[str, float | None]:
    """The numbers of a look, by the names of their series."""
    values: dict[str, float | None] = {
        "in": seen.in_tps,
        "out": seen.out_tps,
        "lag": float(seen.lag),
        "dead": float(seen.dead),
    }
    for broker in seen.brokers:
        alive = broker.silent_since is None
        values[f"broker/{broker.row.address}/in"] = broker.row.in_tps if alive else None
        values[f"broker/{broker.row.address}/out"] = broker.row.out_tps if alive else None
        values[f"broker/{broker.row.address}/disk"] = broker.row.disk if alive else None
    busy = sorted((topic for topic in seen.topics.values() if topic.in_tps), key=lambda topic: -(topic.in_tps or 0))
    for topic in busy[:_TOPICS_KEPT]:
        values[f"topic/{topic.topic}/in"] = topic.in_tps
    for group in seen.groups.values():
        if group.lag is not None:
            values[f"group/{group.group}/lag"] = float(group.lag)
            values[f"group/{group.group}/seconds"] = None if group.seconds is None else round(group.seconds, 1)
            if group.out_tps:
                values[f"group/{group.group}/out"] = group.out_tps
    return values


def age(seen: Snapshot) -> float:
    """Seconds since the look; 0 before the first."""
    return max(0.0, time.time() - seen.at) if seen.at else 0.0
