"""Pace: no more than so many a second, evenly."""

from __future__ import annotations

import asyncio


class Pace:
    """Says when the next may go. Who comes late does not make up for it by a burst of more than a tenth of a second."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 1.0 / rate if rate else 0.0
        self._next = 0.0

    def due(self, now: float) -> float:
        """When the next may go, which was asked for at `now`."""
        self._next = max(self._next, now - 0.1)
        due, self._next = self._next, self._next + self._gap
        return due

    async def turn(self) -> None:
        if self._gap:
            now = asyncio.get_running_loop().time()
            if not self._next:
                self._next = now
            if (wait := self.due(now) - now) > 0:
                await asyncio.sleep(wait)
