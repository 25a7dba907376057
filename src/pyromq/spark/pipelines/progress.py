"""How far a pipeline is: rows, rows a second, what is left and how long that takes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..source.lag_listener import BatchProgress

PERIOD = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a run. `lag` is what is left, None if that is unknown."""

    name: str
    rows: int
    rows_per_second: float
    lag: int | None = None

    @property
    def time_left(self) -> float | None:
        """Seconds, at this rate."""
        if self.lag is None or (self.lag and self.rows_per_second <= 0):
            return None
        return self.lag / self.rows_per_second if self.lag else 0.0

    def __str__(self) -> str:
        left = "" if self.lag is None else f", lag {self.lag:,}"
        if self.lag and self.time_left is not None:
            left += f", {span(self.time_left)} left"
        return f"{self.name}: {count(self.rows, 'row')}, {self.rows_per_second:,.1f} rows/s{left}"


def streamed(batch: BatchProgress) -> Progress:
    """What a streaming query says after a micro-batch."""
    return Progress(batch.query, batch.rows, batch.rows_per_second, batch.total_lag if batch.lag else None)


def count(number: int, what: str) -> str:
    """1 row, 2,000 rows."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def span(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3599.5:
        return f"{seconds / 60:.0f} min"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h {rest} min" if hours < 48 else f"{hours // 24} days"


class Watch:
    """Reports a run from a thread of its own, while another one waits for Spark.

    `rows` says how many are done of `total`. What it raises is left out: a report must not end a run.
    """

    def __init__(
        self,
        name: str,
        total: int | None,
        rows: Callable[[], int],
        report: Callable[[Progress], None],
        period: float = PERIOD,
    ) -> None:
        self._name = name
        self._total = total
        self._rows = rows
        self._report = report
        self._period = period
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"progress of {name}", daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(self._period):
            try:
                rows = self._rows()
            except Exception:
                continue
            if self._total is not None:
                rows = min(rows, self._total)
            rate = rows / max(time.monotonic() - self._began, 0.001)
            left = None if self._total is None else self._total - rows
            self._report(Progress(self._name, rows, rate, left))
