"""A clock that stands still until a test turns it."""

from __future__ import annotations


class Clock:
    """Called, it gives seconds since 1970, as `time.time` does; by default those of 2023-11-14 22:13:20 UTC."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.millis = round(now * 1000)

    def __call__(self) -> float:
        # A tenth of a millisecond more, so that whoever cuts this to milliseconds gets the very one.
        return (self.millis + 0.1) / 1000

    def __repr__(self) -> str:
        return f"<Clock {self.millis / 1000:.3f}>"

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number sets the clock back."""
        self.millis += round(seconds * 1000)

    def set_millis(self, millis: int) -> None:
        self.millis = millis
