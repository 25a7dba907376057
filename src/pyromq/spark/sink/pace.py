"""Keeps a task to a number of rows a second: evenly, in small steps, since rows that are sent together cost less."""

from __future__ import annotations

_STEP = 0.05  # seconds whose rows are sent at once
_LATE = 0.5  # seconds that a slow sender may catch up with


class Pace:
    """Says how long to wait before the next row. Decides; the caller sleeps."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._in_step = max(1, round(rate * _STEP))
        self._taken = 0
        self._next: float | None = None  # when the next step may begin

    def wait(self, now: float) -> float:
        """Seconds until the next row may go; the row counts as gone then."""
        self._taken += 1
        if self._next is not None and self._taken <= self._in_step:
            return 0.0
        self._taken = 1
        begins = now if self._next is None else max(self._next, now - _LATE)
        self._next = begins + self._in_step / self._rate
        return max(0.0, begins - now)
