"""Grafana boards and alert rules, made from the tables of metrics, so that none of them names a metric that is gone.

    deploy/monitoring/broker.json     a broker, from its own /metrics
    deploy/monitoring/cluster.json    a cluster, from `pyromq exporter`
    deploy/monitoring/alerts.yml      rules for Prometheus

`--check` compares instead, for `make check`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.metrics import broker_metrics as b
from pyromq.metrics import exporter_metrics as e
from pyromq.metrics import server_metrics as s
from pyromq.metrics.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyromq.metrics.model import Metric

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "monitoring"
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
GRAFANA_UNITS = {"bytes": "bytes", "milliseconds": "ms", "seconds": "s"}


@dataclass(frozen=True)
class Panel:
    """A graph. `by` are the labels that tell its lines apart; a histogram shows its 99th percentile."""

    title: str
    metrics: tuple[Metric, ...]
    by: tuple[str, ...] = ()
    unit: str = ""
    largest: bool = False  # the ten largest lines only


BROKER_ROWS: dict[str, list[Panel]] = {
    "Messages": [
        Panel("Messages in, per second", (b.MESSAGES_IN,), ("topic",), largest=True),
        Panel("Messages out, per second", (b.MESSAGES_OUT,), ("consumer_group",), largest=True),
        Panel("Bytes in and out, per second", (b.THROUGHPUT_IN, b.THROUGHPUT_OUT), ("node_id",), "Bps"),
        Panel("Size of messages, 99 %", (b.MESSAGE_SIZE,), ("message_type",), "bytes"),
        Panel("Time to answer, 99 %", (s.RPC_LATENCY,), ("request_code",), largest=True),
        Panel("Dead letters, per second", (b.DEAD_LETTERS,), ("consumer_group",), largest=True),
    ],
    "Groups": [
        Panel("Lag in messages", (b.LAG,), ("consumer_group", "topic"), largest=True),
        Panel("Lag in time", (b.LAG_LATENCY,), ("consumer_group", "topic"), largest=True),
        Panel("Fetched, not acknowledged", (b.INFLIGHT,), ("consumer_group", "topic"), largest=True),
        Panel("Waiting to be fetched", (b.READY,), ("consumer_group", "topic"), largest=True),
        Panel("Consumers", (b.CONSUMERS,), ("consumer_group",), largest=True),
        Panel("Producers", (b.PRODUCERS,), ("language",)),
    ],
    "Store": [
        Panel("Disk used", (b.STORE_DISK_RATIO,), ("node_id",), "percentunit"),
        Panel("Kept on disk", (b.STORAGE_SIZE,), ("node_id",)),
        Panel("Not yet on disk", (b.FLUSH_BEHIND,), ("node_id",)),
        Panel("Age of the oldest message", (b.RESERVE_TIME,), ("node_id",)),
        Panel("Refused messages, per second", (b.STORE_PUT_FAILURES,), ("node_id",)),
        Panel("Slaves behind", (b.REPLICATION_BEHIND,), ("replica",), "bytes"),
    ],
    "Delays and transactions": [
        Panel("Waiting for their time", (b.TIMING_MESSAGES,), ("topic",), largest=True),
        Panel("Lateness of timers", (b.TIMER_DEQUEUE_LATENCY,), ("node_id",)),
        Panel("Half messages", (b.HALF_MESSAGES,), ("topic",), largest=True),
        Panel("Commits and rollbacks, per second", (b.COMMITS, b.ROLLBACKS), ("topic",), largest=True),
        Panel("Held pulls", (b.HELD_PULLS,), ("node_id",)),
        Panel("Connections", (s.CONNECTIONS,), ("node_type", "node_id")),
    ],
    "Process": [
        Panel("Lateness of the event loop, 99 %", (s.LOOP_LAG,), ("instance",)),
        Panel("Processor", (s.PROCESS_CPU,), ("instance",), "percentunit"),
        Panel("Memory", (s.PROCESS_RSS,), ("instance",), "bytes"),
        Panel("Open files and sockets", (s.PROCESS_FDS, s.PROCESS_MAX_FDS), ("instance",)),
        Panel("Recovery", (b.RECOVERY,), ("node_id",), "percentunit"),
        Panel("Name servers that know it", (b.REGISTERED,), ("node_id",)),
    ],
}
CLUSTER_ROWS: dict[str, list[Panel]] = {
    "Brokers": [
        Panel("Messages in, per second", (e.BROKER_TPS,), ("broker",)),
        Panel("Messages out, per second", (e.BROKER_QPS,), ("broker",)),
        Panel("Answering", (e.UP,), ("broker", "brokerIP")),
        Panel("Disk used", (e.RUNTIME["commitLogDiskRatio"],), ("brokerIP",), "percentunit"),
        Panel("Slaves behind", (e.COMMITLOG_DIFF,), ("brokerIP",), "bytes"),
        Panel("Time to store, 99 %", (e.RUNTIME["putLatency99"],), ("brokerIP",), "ms"),
    ],
    "Topics": [
        Panel("Messages per second", (e.PRODUCER_TPS,), ("topic",), largest=True),
        Panel("Bytes per second", (e.PRODUCER_SIZE,), ("topic",), "Bps", largest=True),
        Panel("Producers", (e.PRODUCER_COUNT,), ("group",), largest=True),
    ],
    "Groups": [
        Panel("Lag in messages", (e.GROUP_DIFF,), ("group", "topic"), largest=True),
        Panel("Lag in time", (e.GROUP_LATENCY,), ("group", "topic"), "ms", largest=True),
        Panel("Messages per second", (e.CONSUMER_TPS,), ("group", "topic"), largest=True),
        Panel("Retries that wait", (e.RETRY_DIFF,), ("group",), largest=True),
        Panel("Dead letters", (e.DLQ_DIFF,), ("group",), largest=True),
        Panel("Time to handle a message", (e.CLIENT_RT,), ("group", "clientId"), "ms", largest=True),
    ],
}


@dataclass(frozen=True)
class Alert:
    """A rule. `expr` names metrics in braces, by their place in `metrics`."""

    name: str
    expr: str
    metrics: tuple[Metric, ...]
    wait: str
    severity: str
    summary: str

    @property
    def query(self) -> str:
        return self.expr.format(*(metric.exposed() for metric in self.metrics))


ALERTS = [
    Alert(
        "PyromqLagGrows",
        "deriv({0}[15m]) > 0 and {0} > 10000",
        (b.LAG,),
        "15m",
        "warning",
        "{{ $labels.consumer_group }} falls behind in {{ $labels.topic }}: {{ $value }} messages",
    ),
    Alert(
        "PyromqConsumerLate",
        "{0} > 600000 and on (consumer_group, topic, node_id) {1} > 0",
        (b.LAG_LATENCY, b.LAG),
        "10m",
        "warning",
        "{{ $labels.consumer_group }} is more than ten minutes behind in {{ $labels.topic }}",
    ),
    Alert(
        "PyromqNoConsumer",
        "sum by (consumer_group, topic) ({0}) > 0 unless on (consumer_group) {1} > 0",
        (b.LAG, b.CONSUMERS),
        "15m",
        "warning",
        "messages of {{ $labels.topic }} wait for {{ $labels.consumer_group }}, and nobody consumes them",
    ),
    Alert(
        "PyromqDeadLetters",
        "increase({0}[10m]) > 0",
        (b.DEAD_LETTERS,),
        "0m",
        "warning",
        "{{ $labels.consumer_group }} gave up {{ $value }} messages of {{ $labels.topic }}",
    ),
    Alert(
        "PyromqNotWritable",
        "{0} == 0",
        (b.STORE_WRITABLE,),
        "1m",
        "critical",
        "{{ $labels.node_id }} takes no messages; /readyz says why",
    ),
    Alert(
        "PyromqDiskFull",
        "{0} > 0.85",
        (b.STORE_DISK_RATIO,),
        "5m",
        "critical",
        "the disk of {{ $labels.node_id }} is {{ $value | humanizePercentage }} full",
    ),
    Alert(
        "PyromqNotRegistered",
        "{0} == 0",
        (b.REGISTERED,),
        "2m",
        "warning",
        "no name server knows {{ $labels.node_id }}: clients cannot find it",
    ),
    Alert(
        "PyromqReplicaBehind",
        "{0} > 268435456",
        (b.REPLICATION_BEHIND,),
        "5m",
        "warning",
        "{{ $labels.replica }} is {{ $value | humanize1024 }}B behind {{ $labels.node_id }}",
    ),
    Alert(
        "PyromqNoMaster",
        "{0} > 0",
        (s.CONTROLLER_MASTERLESS,),
        "30s",
        "critical",
        "{{ $value }} broker groups have no master",
    ),
    Alert(
        "PyromqEventLoopLate",
        "histogram_quantile(0.99, sum by (instance, le) (rate({0}_bucket[5m]))) > 0.25",
        (s.LOOP_LAG,),
        "10m",
        "warning",
        "{{ $labels.instance }} is busy: its event loop is late",
    ),
    Alert(
        "PyromqTransactionsWait",
        "sum by (node_id, topic) ({0}) > 1000",
        (b.HALF_MESSAGES,),
        "15m",
        "warning",
        "{{ $value }} transactions of {{ $labels.topic }} wait for a decision",
    ),
    Alert(
        "RocketmqBrokerDown",
        "{0} == 0",
        (e.UP,),
        "1m",
        "critical",
        "broker {{ $labels.broker }} at {{ $labels.brokerIP }} does not answer",
    ),
    Alert(
        "RocketmqGroupLate",
        "{0} > 600000",
        (e.GROUP_LATENCY,),
        "10m",
        "warning",
        "{{ $labels.group }} is more than ten minutes behind in {{ $labels.topic }}",
    ),
]


def query(metric: Metric, panel: Panel, selector: str) -> str:
    """What a panel asks for one of its metrics."""
    name, by = metric.exposed(), ", ".join(panel.by)
    if metric.kind is Kind.HISTOGRAM:
        asked = f"histogram_quantile(0.99, sum by ({by}, le) (rate({name}_bucket{selector}[$__rate_interval])))"
    elif metric.kind is Kind.COUNTER:
        asked = f"sum by ({by}) (rate({name}{selector}[$__rate_interval]))"
    else:
        asked = f"max by ({by}) ({name}{selector})" if _is_maximum(metric) else f"sum by ({by}) ({name}{selector})"
    return f"topk(10, {asked})" if panel.largest else asked


def _is_maximum(metric: Metric) -> bool:
    """Whether adding values up makes no sense: ages, ratios and states."""
    return metric.unit in ("milliseconds", "seconds") or metric.name.endswith(("_ratio", "_rt", "storetime", "_up"))


def board(title: str, uid: str, rows: dict[str, list[Panel]], label: str, selector: str) -> dict[str, Any]:
    """A board of Grafana, whose first metric gives the values of the variable `label`."""
    panels: list[dict[str, Any]] = []
    y = 0
    for name, graphs in rows.items():
        panels.append(_row(len(panels) + 1, name, y))
        y += 1
        for place, graph in enumerate(graphs):
            where = {
                "x": place % COLUMNS * WIDTH,
                "y": y + place // COLUMNS * HEIGHT,
                "w": WIDTH,
                "h": HEIGHT,
            }
            panels.append(_graph(len(panels) + 1, graph, where, selector))
        y += -(-len(graphs) // COLUMNS) * HEIGHT
    first = next(iter(rows.values()))[0].metrics[0]
    return {
        "__inputs": [],
        "uid": uid,
        "title": title,
        "tags": ["pyromq"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "templating": {
            "list": [
                {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                {
                    "name": label,
                    "label": label,
                    "type": "query",
                    "datasource": SOURCE,
                    "query": f"label_values({first.exposed()}, {label})",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    where = {"x": 0, "y": y, "w": WIDTH * COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": where, "panels": []}


def _graph(number: int, panel: Panel, where: dict[str, int], selector: str) -> dict[str, Any]:
    legend = " ".join(f"{{{{{label}}}}}" for label in panel.by)
    unit = panel.unit or next(filter(None, (GRAFANA_UNITS.get(each.unit) for each in panel.metrics)), "short")
    process = {*s.PROCESS}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": " ".join(each.help for each in panel.metrics),
        "datasource": SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                # Metrics of the process have no labels of a broker.
                "expr": query(each, panel, "" if each in process else selector),
                "legendFormat": legend if len(panel.metrics) == 1 else f"{legend} {each.name.split('_', 1)[1]}",
            }
            for place, each in enumerate(panel.metrics)
        ],
    }


def rules(alerts: Iterable[Alert]) -> str:
    """The rules, as YAML that needs no library: JSON strings are YAML."""
    lines = ["# Made by scripts/boards.py; not edited by hand.", "groups:", "  - name: pyromq", "    rules:"]
    for alert in alerts:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.query)}",
            f"        for: {alert.wait}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
        ]
    return "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """All that is made, by path."""

    def text(content: object) -> str:
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    broker = board("PyroMQ broker", "pyromq-broker", BROKER_ROWS, "node_id", '{node_id=~"$node_id"}')
    cluster = board("PyroMQ cluster", "pyromq-cluster", CLUSTER_ROWS, "broker", "")
    return {
        FOLDER / "broker.json": text(broker),
        FOLDER / "cluster.json": text(cluster),
        FOLDER / "alerts.yml": rules(ALERTS),
    }


def main(arguments: Sequence[str]) -> int:
    made = files()
    if "--check" not in arguments:
        FOLDER.mkdir(exist_ok=True)
        for path, content in made.items():
            path.write_text(content, encoding="utf-8")
        return 0
    stale = [path for path, content in made.items() if not path.exists() or path.read_text(encoding="utf-8") != content]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not up to date; run scripts/boards.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
