"""`pyromq export`: what a cluster is as a document, and that `apply` makes the same of it elsewhere."""

from __future__ import annotations

import json

import pytest
from tests.integration.cli.cli_kit import Commands, send

from pyromq.testing import running_cluster


@pytest.fixture
def shop(pyromq, topic):
    """A topic and a group with settings of their own."""
    assert pyromq("topic", "create", f"{topic}-ordered", "-r", "6", "-w", "3", "-p", "r", "--order").code == 0
    assert pyromq("group", "create", f"{topic}-readers", "--retry-max", "3", "--no-notify").code == 0
    return topic


def test_metadata_is_a_file_that_apply_finds_nothing_to_do_for(pyromq, shop, tmp_path):
    file = tmp_path / "shop.json"
    ended = pyromq("export", "metadata", "-f", str(file))
    assert (ended.code, ended.out) == (0, "")
    assert f"to {file}" in ended.err
    applied = pyromq("apply", "-f", str(file))
    assert applied.code == 0, applied.err
    assert "0 to create, 0 to update" in applied.out
    names = [topic["name"] for topic in json.loads(file.read_text())["topics"]]
    assert shop in names
    assert not {"TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} & {*names}


def test_metadata_makes_the_same_topics_and_groups_elsewhere(capsys, pyromq, shop, tmp_path):
    document = pyromq("export", "metadata").json
    file = tmp_path / "shop.yaml"
    assert pyromq("export", "metadata", "-f", str(file), "-o", "yaml").code == 0
    with running_cluster() as other:
        elsewhere = Commands(capsys, other.namesrv)
        assert elsewhere("apply", "-f", str(file), "--yes").code == 0
        there = elsewhere("export", "metadata").json
        assert there["topics"] == document["topics"]
        assert {group["name"]: group for group in there["groups"]} == {
            group["name"]: group for group in document["groups"]
        }
    ordered = next(each for each in document["topics"] if each["name"] == f"{shop}-ordered")
    assert ordered == {
        "name": f"{shop}-ordered",
        "readQueues": 6,
        "writeQueues": 3,
        "perm": "r",
        "order": True,
    }
    group = next(each for each in document["groups"] if each["name"] == f"{shop}-readers")
    assert (group["retryMax"], group["notify"]) == (3, False)


def test_the_topics_of_groups_come_only_when_they_are_asked_for(pyromq, topic):
    send(pyromq.namesrv, topic, 1)
    pyromq("message", "consume", topic, "-g", f"{topic}-readers", "--count", "1", "--idle", "20")
    retry = f"%RETRY%{topic}-readers"
    assert retry not in pyromq("export", "metadata").out
    assert retry in pyromq("export", "metadata", "--retry").out


def test_configs_are_those_of_every_server(pyromq, cluster):
    found = pyromq("export", "configs").json
    assert list(found["nameServers"]) == [pyromq.namesrv]
    assert found["brokers"]["broker-a"]["0"]["brokerName"] == "broker-a"


def test_a_report_says_what_brokers_carry(pyromq, topic):
    send(pyromq.namesrv, topic, 3)
    found = pyromq("export", "report").json
    [broker] = found["brokers"]
    assert broker["broker"] == "broker-a"
    assert broker["topics"] >= 1
    assert broker["load"].keys() == found["total"].keys()
    assert broker["load"]["inTps"] == found["total"]["inTps"]


def test_what_cannot_be_written_or_is_not_there_is_a_line(pyromq, tmp_path):
    ended = pyromq("export", "metadata", "-f", str(tmp_path / "no" / "file"))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert pyromq("export", "configs", "-c", "NoSuchCluster").code == 3
