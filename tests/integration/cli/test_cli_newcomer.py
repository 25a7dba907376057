"""`pyromq doctor`, `top` and `apply` against a real cluster."""

from __future__ import annotations

import json

import pytest
from tests.integration.cli.cli_kit import Commands, send
from tests.ports import free_port

from pyromq.sync import Consumer
from pyromq.testing import running_cluster

FILE = """
topics:
  - {name: applied, queues: 4}
groups:
  - {name: appliers, retryMax: 3}
"""


# doctor


def test_a_cluster_that_is_well_is_told_so(pyromq):
    ended = pyromq("doctor")
    assert ended.code == 0, ended.out
    assert "all is well" in ended.out
    rows = pyromq.rows("doctor")
    assert {row["what"].split()[0] for row in rows} >= {"name", "broker", "clock", "disk"}
    assert pyromq.rows("doctor", "--quiet") == []


def test_a_name_server_that_is_not_there_is_told_with_what_to_do(capsys, cluster):
    nobody = f"127.0.0.1:{free_port()}"
    alone = Commands(capsys, nobody)("doctor", "-o", "json")
    assert alone.code == 5
    [row] = json.loads(alone.out)
    assert (row["status"], row["found"]) == ("fail", "cannot be reached: Connection refused")
    assert "pyromq up" in row["toDo"]
    beside = Commands(capsys, f"{nobody};{cluster.namesrv}")("doctor", "-o", "json")
    assert beside.code == 6
    assert [row["status"] for row in json.loads(beside.out)].count("fail") == 1


def test_a_broker_that_advertises_what_nobody_reaches_is_told_where_it_answers(capsys):
    # 127.0.0.9 is this machine, too, so that nothing outside is asked; but the broker does not listen there.
    with running_cluster(None, "brokerIP1=127.0.0.9") as odd:
        ended = Commands(capsys, odd.namesrv)("doctor", "--quiet", "-o", "json")
    assert ended.code == 6
    [row] = json.loads(ended.out)
    assert row["what"] == "broker broker-a"
    assert "which cannot be reached from here: Connection refused" in row["found"]
    assert row["toDo"].startswith("set brokerIP1=127.0.0.1: it answers at 127.0.0.1:")


def test_members_with_different_subscriptions_are_told(pyromq, cluster, topic):
    with (
        Consumer("torn", {topic: "a"}, namesrv=cluster.namesrv),
        Consumer("torn", {topic: "b"}, namesrv=cluster.namesrv),
    ):
        ended = pyromq("doctor", "--quiet", "-o", "json")
    assert ended.code == 6
    [row] = [row for row in json.loads(ended.out) if row["what"] == "group torn"]
    assert "subscriptions differ" in row["found"]


# top


def test_top_shows_topics_and_groups_once(pyromq, cluster, topic):
    send(cluster.namesrv, topic, 5)
    [row] = [row for row in pyromq.rows("top", "--once", "-i", "0.1") if row["topic"] == topic]
    assert (row["group"], row["inTps"], row["lag"]) == (None, 0.0, None)
    table = pyromq("top", "--once", "-i", "0.1", "--sort", "name", "--limit", "1")
    assert table.code == 0
    assert len(table.lines) == 4  # headings, a row, nothing, a summary
    assert "1 brokers" in table.lines[-1]


# apply


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "wanted.yaml"
    path.write_text(FILE)
    return path


def test_a_file_is_planned_applied_and_then_fulfilled(pyromq, file):
    dry = pyromq("apply", "-f", str(file), "--dry-run")
    assert dry.code == 0
    assert "2 to create, 0 to update" in dry.out
    assert "would carry out these 2 steps" in dry.err
    assert "applied" not in pyromq("topic", "list", "-o", "name").lines
    assert pyromq("apply", "-f", str(file)).code == 0
    [place] = pyromq.rows("topic", "describe", "applied")
    assert (place["readQueues"], place["writeQueues"]) == (4, 4)
    [group] = pyromq.rows("group", "describe", "appliers")
    assert group["retryMax"] == 3
    again = pyromq("apply", "-f", str(file))
    assert (again.code, again.lines[-1]) == (0, "0 to create, 0 to update, 2 unchanged")


def test_settings_that_are_there_are_changed_only_on_a_yes(pyromq, topic, tmp_path):
    path = tmp_path / "fewer.json"
    path.write_text(json.dumps({"topics": [{"name": topic, "queues": 2}]}))
    refused = pyromq("apply", "-f", str(path))
    assert refused.code == 2
    assert "with fewer queues" in refused.err
    assert pyromq.rows("topic", "describe", topic)[0]["readQueues"] == 4
    assert pyromq("apply", "-f", str(path), "--yes").code == 0
    assert pyromq.rows("topic", "describe", topic)[0]["readQueues"] == 2


def test_a_file_that_is_wrong_or_not_there_is_bad_usage(pyromq, tmp_path):
    assert pyromq("apply", "-f", str(tmp_path / "none")).code == 2
    (tmp_path / "bad").write_text("topics: [{nme: a}]")
    wrong = pyromq("apply", "-f", str(tmp_path / "bad"))
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    (tmp_path / "cluster").write_text("topics: [{name: a, cluster: none}]")
    assert "there is no cluster none" in pyromq("apply", "-f", str(tmp_path / "cluster")).err
