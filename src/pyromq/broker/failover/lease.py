"""The lease of a master: until when it may be sure that nobody else has become master (docs/spec/controller.md 4.7).

A controller chooses another master once this one was silent for its heartbeat time-out, or once its connection ends.
So a master may count on its role for a part of that time from the moment it *sent* a heartbeat that the controller
took, and only as long as the connection is open. It asks the lease before it acknowledges anything.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# The share of the heartbeat time-out that a master uses. The rest covers clocks that run at different speeds, and
# what a message takes from the check to the client.
SHARE = 0.8

# On Linux `time.monotonic` stands still while the machine sleeps, so a laptop that was closed for a minute would wake
# up with a lease that still looks good. CLOCK_BOOTTIME counts that time too. Elsewhere monotonic is what there is.
since_boot: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Line(Protocol):
    """A connection, as far as a lease cares."""

    @property
    def closed(self) -> bool: ...


class _NoLine:
    closed = False


class Lease:
    """Valid until a time and while a connection is open. `is_valid` costs two comparisons and a look at the clock.

    With `enabled` off it is always valid, which is RocketMQ's behaviour. `renewed` is called when it becomes valid.
    Belongs to the event loop.
    """

    __slots__ = ("_clock", "_enabled", "_line", "_until", "_why", "renewed")

    def __init__(self, *, enabled: bool = True, clock: Callable[[], float] = since_boot) -> None:
        self._enabled = enabled
        self._clock = clock
        self._line: Line = _NoLine()
        self._until = float("-inf") if enabled else float("inf")
        self._why = "no controller has confirmed this master yet"
        self.renewed: Callable[[], None] | None = None

    def is_valid(self) -> bool:
        return self._clock() < self._until and not self._line.closed

    @property
    def left(self) -> float:
        """The seconds that it is still valid; 0 if it is not, infinite if leases are off."""
        return max(0.0, self._until - self._clock()) if not self._line.closed else 0.0

    @property
    def why(self) -> str | None:
        """Why it is not valid; None if it is."""
        if self.is_valid():
            return None
        if self._line.closed:
            return "the connection to the leading controller ended"
        return self._why

    def renew(self, line: Line, sent: float, timeout: float) -> None:
        """The controller at the other end of `line` took a heartbeat and then confirmed this master.

        The heartbeat was sent at `sent`, by the lease's clock, and promised the next one within `timeout` seconds.
        """
        if not self._enabled:
            return
        was_valid = self.is_valid()
        self._line = line
        self._until = sent + SHARE * timeout
        self._why = f"no controller has confirmed this master for {SHARE * timeout:g} s"
        if not was_valid and self.renewed is not None and self.is_valid():
            self.renewed()

    def void(self, why: str) -> None:
        """The role is gone, or no longer certain."""
        if self._enabled:
            self._until = float("-inf")
            self._line = _NoLine()
            self._why = why
