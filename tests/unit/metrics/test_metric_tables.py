"""The tables of metrics: names that Prometheus takes, texts that people can read, no name twice."""

from __future__ import annotations

import re

import pytest

from pyromq import _native
from pyromq.metrics.broker_metrics import BROKER, SIZE_BOUNDS
from pyromq.metrics.exporter_metrics import EXPORTER
from pyromq.metrics.model import Kind
from pyromq.metrics.server_metrics import CONTROLLER, NAMESRV, PROCESS, RPC_BOUNDS
from pyromq.remoting.latencies import BOUNDS

ALL = [*PROCESS, *BROKER, *NAMESRV, *CONTROLLER, *EXPORTER]


@pytest.mark.parametrize("table", [PROCESS, BROKER, NAMESRV, CONTROLLER, EXPORTER])
def test_no_name_is_there_twice(table):
    names = [metric.exposed() for metric in table]
    assert len(names) == len({*names})


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_metric_is_well_formed(metric):
    assert re.fullmatch("[a-z_][a-z0-9_]*", metric.exposed())
    assert re.fullmatch(r"[A-Z].* .*\.", metric.help), "a sentence"
    assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", label) for label in metric.labels)
    assert (metric.kind is Kind.COUNTER) == metric.exposed().endswith("_total") or metric in EXPORTER
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(metric.buckets)


def test_what_is_counted_elsewhere_has_the_same_bounds():
    assert [1000 * bound for bound in BOUNDS] == list(RPC_BOUNDS)
    compiled = _native.module("send_run")
    if compiled is not None:
        assert compiled.SIZE_BOUNDS == SIZE_BOUNDS
