"""Settings of metrics, as RocketMQ's users write them."""

from __future__ import annotations

import pytest

from pyromq.broker import check_settings, load_settings
from pyromq.errors import ConfigError
from pyromq.metrics import ExporterType, MetricsConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [("PROM", ExporterType.PROM), ("prom", ExporterType.PROM), ("2", ExporterType.PROM), ("0", ExporterType.DISABLE)],
)
def test_an_exporter_has_a_name_and_a_number(text, expected):
    assert load_settings(sets=[f"metricsExporterType={text}"])[MetricsConfig].exporter is expected


def test_an_unknown_exporter_is_refused_with_the_names():
    with pytest.raises(ConfigError, match="DISABLE, OTLP_GRPC, PROM, LOG"):
        load_settings(sets=["metricsExporterType=4"])


def test_labels_are_pairs():
    assert MetricsConfig(label="dc:east, zone : 1,").labels == {"dc": "east", "zone": "1"}


@pytest.mark.parametrize("label", ["dc", "d-c:x", "__name__:x", ":x", 'a":b'])
def test_a_label_that_prometheus_would_refuse_stops_the_start(label):
    settings = load_settings(sets=[f"metricsLabel={label}"])
    with pytest.raises(ConfigError, match="metricsLabel must be name:value"):
        check_settings(settings)


def test_otlp_needs_a_target():
    with pytest.raises(ConfigError, match="needs metricsGrpcExporterTarget"):
        check_settings(load_settings(sets=["metricsExporterType=OTLP_GRPC"]))
