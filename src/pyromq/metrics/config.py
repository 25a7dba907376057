"""Settings of metrics and health, under RocketMQ's own keys; `metricsUnitSuffix` is ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from pyromq.errors import ConfigError
from pyromq.settings import Settings, option


class ExporterType(IntEnum):
    """Where metrics go. RocketMQ's numbers count as well as its names."""

    DISABLE = 0
    OTLP_GRPC = 1
    PROM = 2
    LOG = 3


BROKER_PORT = 5557
NAMESRV_PORT = 5558
CONTROLLER_PORT = 5559
EXPORTER_PORT = 5557

# What Prometheus and HTTP take for names. Labels that begin with two underscores are Prometheus' own.
_LABEL = re.compile("(?!__)[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile("[A-Za-z0-9_-]+")

_PORT = "Port of /metrics, /livez, /readyz, /startupz and /version; 0 picks a free one."


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where metrics go, and what they are called."""

    exporter: ExporterType = option(
        "metricsExporterType",
        ExporterType.PROM,
        "PROM (2) lets Prometheus read them, OTLP_GRPC (1) sends them to metricsGrpcExporterTarget, LOG (3) writes "
        "them to the log, DISABLE (0) closes the port, also for health checks. Numbers work, too.",
    )
    port: int = option("metricsPromExporterPort", BROKER_PORT, _PORT, min=0, max=65535)
    host: str = option(
        "metricsPromExporterHost", "", "Address of that port, if it is to be another one than bindAddress."
    )
    label: str = option(
        "metricsLabel", "", "Labels for all metrics: name:value,name:value. Use it to tell data centres apart."
    )
    unit_suffix: bool = option(
        "metricsUnitSuffix",
        True,
        "Append units to names, as RocketMQ's exporter does: rocketmq_storage_size_bytes. Set to false for boards "
        "written from its documentation, which leaves them out.",
    )
    cardinality_limit: int = option(
        "metricsOtelCardinalityLimit",
        50_000,
        "Most series of one metric. Further counters are added up in one series, further gauges left out.",
        min=1,
    )
    otlp_target: str = option(
        "metricsGrpcExporterTarget",
        "",
        "OTLP collector, as http://host:4318. PyroMQ sends OTLP over HTTP. Needs the extra otlp.",
    )
    otlp_header: str = option(
        "metricsGrpcExporterHeader", "", "Headers for the collector: name:value,name:value.", secret=True
    )
    otlp_timeout: int = option(
        "metricGrpcExporterTimeOutInMills", 3000, "Milliseconds that the collector may take.", min=1
    )
    otlp_interval: int = option(
        "metricGrpcExporterIntervalInMills", 60_000, "Milliseconds between two exports to the collector.", min=100
    )
    log_interval: int = option(
        "metricLoggingExporterIntervalInMills", 10_000, "Milliseconds between two exports to the log.", min=100
    )
    in_delta: bool = option(
        "metricsInDelta", False, "Send a collector what was added since the last export, instead of totals."
    )

    @property
    def labels(self) -> dict[str, str]:
        """The pairs of `metricsLabel`. ValueError for one that is none."""
        return _pairs("metricsLabel", self.label)

    @property
    def otlp_headers(self) -> dict[str, str]:
        return _pairs("metricsGrpcExporterHeader", self.otlp_header)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvMetricsConfig(MetricsConfig):
    """With the name server's own port, so that it can share a machine with a broker."""

    port: int = option("metricsPromExporterPort", NAMESRV_PORT, _PORT, min=0, max=65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerMetricsConfig(MetricsConfig):
    """With the controller's own port."""

    port: int = option("metricsPromExporterPort", CONTROLLER_PORT, _PORT, min=0, max=65535)


def check_metrics(settings: Settings, kind: type[MetricsConfig]) -> None:
    """ConfigError for settings of metrics that cannot work."""
    config = settings[kind]
    for key, read in (("metricsLabel", "labels"), ("metricsGrpcExporterHeader", "otlp_headers")):
        try:
            getattr(config, read)
        except ValueError as exc:
            raise ConfigError(str(exc), settings.origin(key)) from exc
    if config.exporter is ExporterType.OTLP_GRPC and not config.otlp_target:
        raise ConfigError(
            "metricsExporterType OTLP_GRPC needs metricsGrpcExporterTarget", settings.origin("metricsExporterType")
        )


def _pairs(key: str, text: str) -> dict[str, str]:
    pairs = {}
    shape = _LABEL if key == "metricsLabel" else _HEADER
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, value = item.partition(":")
        if not colon or not shape.fullmatch(name.strip()):
            raise ValueError(f"{key} must be name:value,name:value, not {item!r}")
        pairs[name.strip()] = value.strip()
    return pairs
