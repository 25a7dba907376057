"""The page that Prometheus reads: its text format 0.0.4, made from samples without keeping the event loop busy.

# HELP rocketmq_topic_number Topics on this broker.
# TYPE rocketmq_topic_number gauge
rocketmq_topic_number{cluster="DefaultCluster",node_type="broker",node_id="broker-a"} 12
"""

from __future__ import annotations

import asyncio
import math
import time
from itertools import accumulate
from typing import TYPE_CHECKING

from .model import Distribution, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .model import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The label of the sample that stands for those above the limit, as OpenTelemetry's SDK names it.
OVERFLOW = "otel_metric_overflow"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
# Seconds that collecting may take before others have their turn, and samples between two looks at the clock.
_TURN = 0.002
_LOOK = 16


class Page:
    """Samples become text, metric by metric. `limit` bounds the series of each metric.

    Beyond it counters and histograms are added up in one series, as OpenTelemetry does; further gauges are left out.
    """

    def __init__(self, *, with_units: bool = True, limit: int = 50_000) -> None:
        self._with_units = with_units
        self._limit = limit
        self._lines: dict[Metric, list[str]] = {}
        self._series: dict[Metric, int] = {}
        self._beyond: dict[Metric, tuple[str, float | Distribution]] = {}
        self._heads: dict[Metric, tuple[str, tuple[str, ...]]] = {}

    def add(self, sample: Sample, common: str = "") -> None:
        """Take a sample; `common` are labels that all samples of its server have, as `render_labels` writes them."""
        metric, values, value = sample
        lines = self._lines.get(metric)
        if lines is None:
            lines = self._lines[metric] = []
            self._series[metric] = 0
            name = metric.exposed(with_unit=self._with_units)
            self._heads[metric] = name, tuple(f'{label}="' for label in metric.labels)
        self._series[metric] += 1
        if self._series[metric] > self._limit:
            self._overflow(metric, common, value)
            return
        name, keys = self._heads[metric]
        own = ",".join([f'{key}{text.translate(_ESCAPES)}"' for key, text in zip(keys, values, strict=True)])
        self._write(lines, name, ",".join(filter(None, (common, own))), value)

    def _overflow(self, metric: Metric, common: str, value: float | Distribution) -> None:
        if metric.kind is Kind.GAUGE:
            return
        _, known = self._beyond.get(metric, (common, None))
        if isinstance(value, Distribution):
            total = Distribution(value.bounds)
            for each in (value, known):
                if isinstance(each, Distribution):
                    total.counts = [a + b for a, b in zip(total.counts, each.counts, strict=True)]
                    total.sum += each.sum
            self._beyond[metric] = common, total
        else:
            self._beyond[metric] = common, value + (known if isinstance(known, (int, float)) else 0)

    def _write(self, lines: list[str], name: str, labels: str, value: float | Distribution) -> None:
        if not isinstance(value, Distribution):
            lines.append(f"{name}{{{labels}}} {number(value)}" if labels else f"{name} {number(value)}")
            return
        before = f"{labels}," if labels else ""
        total = 0
        for bound, total in zip((*value.bounds, math.inf), accumulate(value.counts), strict=True):
            lines.append(f'{name}_bucket{{{before}le="{number(bound)}"}} {total}')
        inside = f"{{{labels}}}" if labels else ""
        lines.append(f"{name}_sum{inside} {number(value.sum)}")
        lines.append(f"{name}_count{inside} {total}")

    def chunks(self) -> Iterator[str]:
        """The text, a metric at a time."""
        for metric, (common, value) in self._beyond.items():
            labels = ",".join(filter(None, (common, f'{OVERFLOW}="true"')))
            self._write(self._lines[metric], self._heads[metric][0], labels, value)
        for metric, lines in self._lines.items():
            name = self._heads[metric][0]
            yield f"# HELP {name} {metric.help.translate(_HELP_ESCAPES)}\n# TYPE {name} {metric.kind}\n"
            yield "\n".join(lines) + "\n"

    def text(self) -> str:
        return "".join(self.chunks())


def render_labels(labels: Mapping[str, str]) -> str:
    """`cluster="a",node_id="b"`"""
    return ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()])


def number(value: float) -> str:
    """A value as Prometheus reads it; whole numbers have no point."""
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


async def in_turns(samples: Iterable[Sample | None], take: Callable[[Sample], None]) -> None:
    """Hand every sample to `take`, with turns for everybody else in between: a large broker has 100,000 series."""
    began, left = time.monotonic(), _LOOK
    for sample in samples:
        if sample is not None:
            take(sample)
        left -= 1
        if not left:
            left = _LOOK
            if time.monotonic() - began > _TURN:
                await asyncio.sleep(0)
                began = time.monotonic()
