"""Lag of streaming queries, also for those that report to no consumer group."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyromq.errors import ConfigError

from .offsets import StreamOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

    from pyromq.protocol.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch of a query. `lag` has the messages that each queue of our sources still held after it."""

    query: str  # its name, or else its id
    batch: int
    rows: int
    rows_per_second: float
    lag: dict[MessageQueue, int]

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())

    def __str__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        behind = f", lag {self.total_lag:,}" if self.lag else ""
        return f"{self.query}: batch {self.batch}, {rows}, {self.rows_per_second:,.1f} rows/s{behind}"


class LagListener(StreamingQueryListener):
    """Listens to every micro-batch in a session. Spark calls it from its own thread.

    `lag` is the latest of each running query, by its name or else its id; sources of other formats
    do not count. `report` is called with every batch.
    """

    def __init__(self, report: Callable[[BatchProgress], None] | None = None) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._names: dict[Any, str] = {}
        self._lag: dict[str, dict[MessageQueue, int]] = {}

    @property
    def lag(self) -> dict[str, dict[MessageQueue, int]]:
        with self._lock:
            return dict(self._lag)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known of it yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing changed since the last batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = batch_progress(event.progress)
        with self._lock:
            self._names[event.progress.id] = progress.query
            self._lag[progress.query] = progress.lag
        if self._report is not None:
            self._report(progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._lag.pop(self._names.pop(event.id, ""), None)


def batch_progress(progress: StreamingQueryProgress) -> BatchProgress:
    """The progress in Spark's report of a batch."""
    lag: dict[MessageQueue, int] = {}
    for source in progress.sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        # A queue not seen this time (its broker is unreachable) has no latest offset, so its lag is unknown.
        lag |= {queue: max(0, latest[queue] - offset) for queue, offset in end.items() if queue in latest}
    return BatchProgress(
        progress.name or str(progress.id),
        progress.batchId,
        progress.numInputRows,
        progress.processedRowsPerSecond or 0.0,
        lag,
    )


def _offsets(text: str | None) -> Mapping[MessageQueue, int]:
    """The offsets of one of our sources; none for other formats."""
    try:
        found = json.loads(text) if text else None
        return StreamOffset.from_json(found).ends if isinstance(found, dict) else {}
    except (ValueError, ConfigError):
        return {}
