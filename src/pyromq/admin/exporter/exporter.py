"""The exporter: asks a cluster in rounds, and shows what it knows, also of RocketMQ's own brokers."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError
from pyromq.metrics.health import Check, Startup

from .facts import FRESH, Facts
from .rounds import Rounds
from .samples import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyromq.client.admin import AdminClient
    from pyromq.metrics.model import Sample

logger = logging.getLogger(__name__)


class Exporter:
    """Asks `admin`'s cluster every `interval` seconds while it runs. A `Monitor` can show it."""

    kind = "exporter"

    def __init__(
        self, admin: AdminClient, interval: float = 15.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.facts = Facts()
        self._rounds = Rounds(admin, self.facts, clock)
        self._interval = interval
        self._clock = clock
        self._asked_at: float | None = None
        self._problem: str | None = None

    async def run(self) -> None:
        """Ask until cancelled. A cluster that does not answer is asked again."""
        while True:
            await self.ask()
            await asyncio.sleep(self._interval)

    async def ask(self) -> None:
        """One round of questions."""
        try:
            await self._rounds.ask()
        except (PyroMQError, TimeoutError) as exc:
            problem = str(exc) or "no answer in time"
            if self._problem is None:
                logger.warning("%s; asking again every %g s", problem, self._interval)
            self._problem = problem
            for broker in self.facts.brokers.values():
                broker.up = False
            self.facts.forget(self._clock())
        else:
            if self._problem is not None:
                logger.warning("name servers answer again")
            self._problem, self._asked_at = None, self._clock()

    # What monitoring asks (`pyromq.metrics.Monitored`)

    def metric_labels(self) -> dict[str, str]:
        return {}

    def startup(self) -> Startup:
        return Startup(done=self._asked_at is not None, percent=100 if self._asked_at is not None else 0)

    def checks(self) -> list[Check]:
        down = sorted(broker.address for broker in self.facts.brokers.values() if not broker.up)
        recent = self._asked_at is not None and self._clock() - self._asked_at < max(FRESH, 2 * self._interval)
        return [
            Check("name servers", recent, self._problem or ("" if recent else "not asked yet")),
            # It can tell that they are down, so it is as ready as before.
            Check("brokers", True, f"{', '.join(down)} down" if down else f"{len(self.facts.brokers)} answer"),
        ]

    async def refresh(self) -> None:
        """Rounds go on by themselves."""

    def samples(self) -> Iterator[Sample | None]:
        return samples(self.facts, self._clock(), int(time.time() * 1000))
