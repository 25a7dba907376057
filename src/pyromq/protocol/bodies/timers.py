"""How many timers wait (61)."""

from __future__ import annotations

from .base import I64, Body, written
from .register import DataVersion


class TimerMetric(Body, frozen=True, kw_only=True):
    """How many timers wait for a topic, and when that changed last (epoch ms)."""

    count: I64 = written(0)
    time_stamp: I64 = written(0)


class TimerMetricsTable(Body, frozen=True, kw_only=True):
    """61: waiting timers by topic."""

    data_version: DataVersion = written(DataVersion())
    timing_count: dict[str, TimerMetric] = written({})
