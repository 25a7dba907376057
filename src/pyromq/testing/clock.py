"""A clock that stands still until a test turns it."""

from __future__ import annotations


class Clock:
    """Calling it returns seconds since 1970, like `time.time`; it starts at 2023-11-14 22:13:20 UTC by default."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.millis = round(now * 1000)

    def __call__(self) -> float:
        # A tenth of a millisecond more, so that truncating to milliseconds gives this very one.
        return (self.millis + 0.1) / 1000

    def __repr__(self) -> str:
        return f"<Clock {self.millis / 1000:.3f}>"

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number sets the clock back."""
        self.millis += round(seconds * 1000)

    def set_millis(self, millis: int) -> None:
        self.millis = millis
