"""The boards and rules in deploy/monitoring: made from the tables of metrics, and understood by Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from scripts import boards

from pyromq.metrics.broker_metrics import BROKER
from pyromq.metrics.exporter_metrics import EXPORTER
from pyromq.metrics.server_metrics import CONTROLLER, NAMESRV, PROCESS

KNOWN = {metric.exposed() for metric in (*BROKER, *NAMESRV, *CONTROLLER, *PROCESS, *EXPORTER)}


def queries():
    for path, text in boards.files().items():
        if path.suffix == ".json":
            for panel in json.loads(text)["panels"]:
                yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (alert.query for alert in boards.ALERTS)


def test_they_are_up_to_date():
    assert boards.main(["--check"]) == 0


def test_every_query_asks_for_metrics_that_exist():
    asked = list(queries())
    assert len(asked) > 50
    for query in asked:
        names = re.findall(r"\b(?:rocketmq|pyromq|process|python)_[a-z0-9_]+", query)
        assert names, query
        assert {name.removesuffix("_bucket") for name in names} <= KNOWN, query


def test_labels_of_lines_and_alerts_exist():
    for rows in (boards.BROKER_ROWS, boards.CLUSTER_ROWS):
        for panel in (panel for panels in rows.values() for panel in panels):
            given = {"node_id", "node_type", "cluster", "instance"}
            assert all({*panel.by} <= {*metric.labels} | given for metric in panel.metrics), panel.title
    for alert in boards.ALERTS:
        named = {*re.findall(r"\$labels\.(\w+)", alert.summary)}
        assert named <= {*alert.metrics[0].labels, "node_id", "instance"}, alert.name


@pytest.mark.slow
def test_promtool_takes_the_rules(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Debian's prometheus")
    done = subprocess.run(
        [promtool, "check", "rules", boards.FOLDER / "alerts.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(boards.ALERTS)} rules found" in done.stdout
    # The queries of the boards are rules, too, once Grafana has put in its variables.
    asked = [query.replace("$__rate_interval", "1m").replace("$node_id", ".*") for query in queries()]
    rules = [{"record": f"q:{number}", "expr": query} for number, query in enumerate(asked)]
    file = tmp_path / "boards.json"
    file.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
