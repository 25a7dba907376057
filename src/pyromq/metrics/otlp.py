"""Metrics for an OpenTelemetry collector, through the official SDK (the extra `otlp`).

Everything is counted once, for Prometheus and OTLP alike. So the SDK's instruments are not used here, but its data
model and its exporter, with its retries. OTLP goes over HTTP: the packages for gRPC are
large, and every collector takes both.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq import __version__
from pyromq.errors import ConfigError

from .model import Distribution, Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricsData

    from .config import MetricsConfig
    from .model import Metric, Sample

    Take = Callable[[Sample, Mapping[str, str]], None]
    Collect = Callable[[Take], Awaitable[None]]

logger = logging.getLogger(__name__)

_PATH = "/v1/metrics"


async def export(config: MetricsConfig, collect: Collect) -> None:
    """Send metrics to the collector, again and again, until cancelled.

    A collector that does not answer costs a line in the log, and nothing else.
    """
    exporter = exporter_of(config)
    window = Window(is_delta=config.in_delta)
    failing = False
    try:
        while True:
            await asyncio.sleep(config.otlp_interval / 1000)
            ok = await _export(exporter, window, collect)
            if not ok and not failing:
                logger.warning("%s takes no metrics; trying again every %g s", config.otlp_target, _seconds(config))
            elif ok and failing:
                logger.warning("%s takes metrics again", config.otlp_target)
            failing = not ok
    finally:
        # It may be waiting for an answer in a thread, which `shutdown` ends.
        exporter.shutdown(timeout_millis=config.otlp_timeout)


def exporter_of(config: MetricsConfig) -> OTLPMetricExporter:
    """The SDK's exporter. ConfigError if it is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as exc:
        raise ConfigError(
            f"metricsExporterType OTLP_GRPC needs {exc.name}; pip install 'pyromq[otlp]' installs it"
        ) from exc
    target = config.otlp_target if config.otlp_target.startswith("http") else f"http://{config.otlp_target}"
    endpoint = target if target.endswith(_PATH) else target.rstrip("/") + _PATH
    return OTLPMetricExporter(endpoint=endpoint, headers=config.otlp_headers, timeout=config.otlp_timeout / 1000)


async def _export(exporter: OTLPMetricExporter, window: Window, collect: Collect) -> bool:
    from opentelemetry.sdk.metrics.export import MetricExportResult

    points = Points(window)
    await collect(points.add)
    data = points.data()
    try:
        result = await asyncio.to_thread(exporter.export, data)
    except Exception as exc:  # whatever goes wrong in there, the broker goes on
        logger.debug("export failed: %s", exc)
        return False
    return result is MetricExportResult.SUCCESS


def _seconds(config: MetricsConfig) -> float:
    return config.otlp_interval / 1000


class Window:
    """The time that an export is about. With `is_delta` each begins where the one before has ended."""

    def __init__(self, *, is_delta: bool) -> None:
        self.is_delta = is_delta
        self.start = self.end = time.time_ns()
        # What was exported before, by metric and labels.
        self._before: dict[object, float | Distribution] = {}

    def begin(self) -> None:
        if self.is_delta:
            self.start = self.end
        self.end = time.time_ns()

    def since(self, key: object, value: float | Distribution) -> float | Distribution:
        """`value`, or what was added to it since the last export."""
        if not self.is_delta:
            return value
        before = self._before.get(key)
        if not isinstance(value, Distribution):
            self._before[key] = value
            return value - (before if isinstance(before, (int, float)) and before <= value else 0)
        copy = Distribution(value.bounds)
        copy.counts, copy.sum = list(value.counts), value.sum
        self._before[key] = copy
        if not isinstance(before, Distribution) or before.count > value.count:
            return value
        grown = Distribution(value.bounds)
        grown.counts = [now - then for now, then in zip(value.counts, before.counts, strict=True)]
        grown.sum = value.sum - before.sum
        return grown


class Points:
    """Samples become the SDK's data points."""

    def __init__(self, window: Window | None = None) -> None:
        self._window = window or Window(is_delta=False)
        self._window.begin()
        self._points: dict[Metric, list[object]] = {}

    def add(self, sample: Sample, labels: Mapping[str, str]) -> None:
        from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

        metric, values, value = sample
        attributes = {**labels, **dict(zip(metric.labels, values, strict=True))}
        if metric.kind is not Kind.GAUGE:
            value = self._window.since((metric, *sorted(attributes.items())), value)
        start = 0 if metric.kind is Kind.GAUGE else self._window.start
        point: object
        if isinstance(value, Distribution):
            point = HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=start,
                time_unix_nano=self._window.end,
                count=value.count,
                sum=value.sum,
                bucket_counts=list(value.counts),
                explicit_bounds=list(value.bounds),
                min=0,
                max=0,
            )
        else:
            point = NumberDataPoint(
                attributes=attributes,
                start_time_unix_nano=start,
                time_unix_nano=self._window.end,
                value=value,
            )
        self._points.setdefault(metric, []).append(point)

    def data(self) -> MetricsData:
        """Everything, as the SDK's exporter takes it."""
        from opentelemetry.sdk.metrics import export as sdk
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        temporality = (
            sdk.AggregationTemporality.DELTA if self._window.is_delta else sdk.AggregationTemporality.CUMULATIVE
        )
        metrics = []
        for metric, points in self._points.items():
            data: sdk.DataT
            if metric.kind is Kind.GAUGE:
                data = sdk.Gauge(data_points=points)  # type: ignore[arg-type]  # their kind follows from the metric's
            elif metric.kind is Kind.COUNTER:
                data = sdk.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=True)  # type: ignore[arg-type]
            else:
                data = sdk.Histogram(data_points=points, aggregation_temporality=temporality)  # type: ignore[arg-type]
            # Whoever shows them appends the unit.
            metrics.append(sdk.Metric(name=metric.name, description=metric.help, unit=metric.unit, data=data))
        scope = sdk.ScopeMetrics(InstrumentationScope("pyromq", __version__), metrics, "")
        resource = Resource({"service.name": "pyromq", "service.version": __version__})
        return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])
