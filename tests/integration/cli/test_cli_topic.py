"""`pyromq topic` against a real cluster."""

from __future__ import annotations

import pytest
from tests.integration.cli.cli_kit import send


def test_a_topic_is_made_seen_changed_and_deleted(pyromq):
    assert pyromq.rows("topic", "create", "short-lived", "-r", "3", "-w", "2")[0]["change"] == "created"
    assert {"topic": "short-lived", "kind": "normal"} in pyromq.rows("topic", "list")
    [place] = pyromq.rows("topic", "route", "short-lived")
    assert (place["broker"], place["readQueues"], place["writeQueues"], place["perm"]) == ("broker-a", 3, 2, "rw")
    pyromq("topic", "perm", "short-lived", "r")
    pyromq("topic", "update", "short-lived", "-w", "3")
    [settings] = pyromq.rows("topic", "describe", "short-lived")
    assert (settings["perm"], settings["readQueues"], settings["writeQueues"]) == ("r", 3, 3)
    refused = pyromq("topic", "delete", "short-lived")
    assert (refused.code, refused.out) == (2, "")
    assert "add --yes" in refused.err
    assert pyromq("topic", "delete", "short-lived", "--dry-run", "--yes").code == 0
    assert "short-lived" in pyromq("topic", "list", "-o", "name").lines
    assert pyromq("topic", "delete", "short-lived", "--yes").code == 0
    assert "short-lived" not in pyromq("topic", "list", "-o", "name").lines


def test_topics_of_brokers_are_listed_only_when_asked_for(pyromq, topic):
    assert "TBW102" not in pyromq("topic", "list").out
    kinds = {row["topic"]: row["kind"] for row in pyromq.rows("topic", "list", "--system")}
    assert kinds["TBW102"] == kinds["broker-a"] == "system"
    [long] = [row for row in pyromq.rows("topic", "list", "--long") if row["topic"] == topic]
    assert (long["clusters"], long["brokers"], long["readQueues"]) == (["DefaultCluster"], ["broker-a"], 4)


def test_stats_show_where_queues_begin_and_end(pyromq, cluster, topic):
    send(cluster.namesrv, topic, 8)
    rows = pyromq.rows("topic", "stats", topic)
    assert [row["queue"] for row in rows] == [0, 1, 2, 3]
    assert sum(row["messages"] for row in rows) == 8
    assert pyromq("topic", "stats", topic).lines[-1] == "8 messages in 4 queues"
    [all_of_it] = [row for row in pyromq.rows("topic", "stats", "--all") if row["topic"] == topic]
    assert all_of_it["group"] is None


@pytest.mark.scenario("admin 10")
def test_an_unknown_topic_is_answered_with_the_nearest_names_and_not_made(pyromq, topic):
    wrong = topic.replace("orders", "order")
    ended = pyromq("topic", "stats", wrong)
    assert ended.code == 3
    assert ended.err.startswith(f"pyromq topic stats: there is no topic {wrong} at {pyromq.namesrv}; did you mean ")
    assert topic in ended.err
    assert ended.err.count("\n") == 1
    for verb in ("route", "describe", "groups", "delete"):
        assert pyromq("topic", verb, wrong).code == 3
    assert wrong not in pyromq("topic", "list", "-o", "name", "--system").lines


def test_an_ordered_topic_keeps_its_queues(pyromq, topic):
    assert pyromq("topic", "order", topic).code == 3
    assert pyromq("topic", "order", topic, "--set", "broker-a:4").code == 0
    assert pyromq.rows("topic", "order", topic) == [{"broker": "broker-a", "queues": 4}]
    assert pyromq("topic", "order", topic, "--set", "broker-a=4").code == 2
    assert pyromq("topic", "order", topic, "--remove").code == 0
    assert pyromq("topic", "order", topic).code == 3


def test_fewer_queues_are_dangerous_and_more_are_not(pyromq, topic):
    assert pyromq("topic", "update", topic, "-r", "2").code == 2
    assert pyromq("topic", "update", topic, "-r", "6", "-w", "6").code == 0
    assert pyromq("topic", "update", topic, "-r", "2", "--yes").code == 0
    assert pyromq("topic", "update", topic, "-q", "2").code == 2
    assert pyromq("topic", "update", topic, "-q", "7").code == 0
    [settings] = pyromq.rows("topic", "describe", topic)
    assert (settings["readQueues"], settings["writeQueues"]) == (7, 7)


def test_queues_are_shared_as_clients_would_share_them(pyromq, topic):
    rows = pyromq.rows("topic", "assign", topic, "one", "two", "three")
    assert {row["client"]: row["count"] for row in rows} == {"one": 2, "three": 1, "two": 1}


@pytest.mark.parametrize("words", [("create", "a b"), ("create", "x", "-p", "rwx"), ("update", "x"), ("stats",)])
def test_bad_usage_changes_nothing(pyromq, words):
    assert pyromq("topic", *words).code == 2
