"""Health: whether a process lives, has started, and may be sent requests.

`/livez` (also `/healthz`) asks whether the event loop runs, `/startupz` how far a start is, `/readyz` whether requests
should go here now. A server only says what it knows; `Monitor` makes the answers.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .model import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .model import Sample

# A loop that has not ticked for so many seconds hangs.
ALIVE = 5.0
_TICK = 0.1
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Check:
    """One reason for which requests may have to go elsewhere. `detail` says what is wrong, or how it stands."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Startup:
    """How far a start is, in percent of what takes long. It is over once `done`."""

    done: bool
    percent: int = 0
    detail: str = ""


class Monitored(Protocol):
    """A server that can be watched. It may be asked before it runs, and after."""

    @property
    def kind(self) -> str:
        """What it is: `broker`, `name server`, `controller`."""
        ...

    def metric_labels(self) -> Mapping[str, str]:
        """The labels of all its metrics."""
        ...

    def checks(self) -> list[Check]:
        """Everything that decides whether it should get requests."""
        ...

    def startup(self) -> Startup: ...

    async def refresh(self) -> None:
        """Called before each reading of `samples`, for what cannot be looked at in one go."""
        ...

    def samples(self) -> Iterable[Sample | None]:
        """Its metrics now. It is read in turns, and whatever it looks at may change in between.

        None is no sample, but a place for a turn of others.
        """
        ...


class LoopWatch:
    """Ticks on the event loop, and measures how late it is. `lag` has all of it, in seconds, since the start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticked = clock()
        self.lag = Distribution(LAG_BOUNDS)

    @property
    def age(self) -> float:
        """Seconds since the loop had a turn for us."""
        return self._clock() - self._ticked

    @property
    def alive(self) -> bool:
        return self.age < ALIVE

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            before = self._ticked = self._clock()
            await asyncio.sleep(_TICK)
            self.lag.add(max(self._clock() - before - _TICK, 0.0))
