"""What a metric is: its name, kind, unit, labels and a sentence about it; and the samples that it has at one moment.

Metrics are declared once, in the tables of this package. Whoever measures yields `Sample`s of them; the pages that
Prometheus reads, OTLP, the Grafana boards and the reference are all made from the same declarations.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How Prometheus treats the values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is the bare one, which RocketMQ documents; `unit` is what exporters append to it.

    A histogram has the upper bounds of its `buckets`, without the last one, which is infinite.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()

    def exposed(self, *, with_unit: bool = True) -> str:
        """The name that Prometheus sees."""
        return f"{self.name}_{self.unit}" if with_unit and self.unit else self.name


class Distribution:
    """How often values fell into each bucket: what a histogram shows. `counts` has one more than the bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, or so many of the same."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)


class Sample(NamedTuple):
    """A value of a metric. `labels` are the values of its labels, in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution


def counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels)


def gauge(name: str, text: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name, Kind.GAUGE, text, labels, unit)


def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...], unit: str = "") -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, labels, unit, buckets)


def truth(value: bool) -> str:
    """A label that says yes or no."""
    return "true" if value else "false"
