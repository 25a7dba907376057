"""`pyromq cluster`, `broker`, `namesrv`, `producer`, `check` and `context` against a real cluster; and without one."""

from __future__ import annotations

import socket
import stat
import time

import pytest
from tests.bounds import TOO_LONG
from tests.integration.cli.cli_kit import Commands
from tests.ports import free_port

from pyromq.cli import context_file
from pyromq.sync import Producer


def test_the_cluster_is_one_table(pyromq, cluster):
    [row] = pyromq.rows("cluster", "list")
    assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", "broker-a", 0)
    assert row["version"].startswith("V")
    assert 0 <= row["disk"] <= 1
    assert pyromq.rows("broker", "list")[0]["address"] == row["address"]
    assert pyromq.rows("cluster", "list", "-m")[0]["inToday"] is not None
    assert pyromq("cluster", "list").lines[-1] == "1 broker in 1 cluster"
    [times] = pyromq.rows("cluster", "ping", "--count", "3")
    assert times["count"] == 3
    assert pyromq.rows("broker", "ping", "broker-a")[0]["minMs"] > 0


def test_an_unknown_cluster_or_broker_is_answered_with_those_there_are(pyromq):
    ended = pyromq("cluster", "list", "-c", "nope")
    assert (ended.code, "DefaultCluster" in ended.err) == (3, True)
    ended = pyromq("broker", "status", "broker-b")
    assert (ended.code, "broker-a" in ended.err) == (3, True)


def test_settings_of_a_broker_are_shown_and_changed(pyromq):
    assert pyromq.rows("broker", "config", "get", "broker-a", "fileReservedTime") == {"fileReservedTime": "72"}
    assert pyromq.rows("broker", "config", "get", "fileReservedTime") == {"fileReservedTime": "72"}
    assert pyromq("broker", "config", "set", "fileReservedTime=48").code == 2
    assert pyromq("broker", "config", "set", "fileReservedTime=48", "-b", "broker-a", "--dry-run").code == 0
    [changed] = pyromq.rows("broker", "config", "set", "fileReservedTime", "48", "-b", "broker-a")
    assert (changed["before"], changed["after"]) == ("72", "48")
    back = pyromq("broker", "config", "set", "fileReservedTime=72", "-c", "DefaultCluster")
    assert back.code == 0
    unknown = pyromq("broker", "config", "get", "broker-a", "fileReservedTme")
    assert (unknown.code, "fileReservedTime" in unknown.err) == (3, True)
    noted = pyromq("broker", "config", "set", "fileReservedTme=1", "-b", "broker-a", "--dry-run")
    assert "did you mean fileReservedTime" in noted.err


def test_what_a_broker_measures_is_shown(pyromq):
    status = pyromq.rows("broker", "status", "broker-a")
    assert status["brokerVersionDesc"]
    assert pyromq("broker", "status").code == 0


def test_a_drained_broker_takes_no_messages_until_it_is_undrained(pyromq, topic):
    def perm():
        return pyromq.rows("topic", "route", topic)[0]["perm"]

    assert pyromq("broker", "drain", "broker-a", "--dry-run").code == 0
    assert perm() == "rw"
    [drained] = pyromq.rows("broker", "drain", "broker-a")
    assert (drained["change"], drained["nameServer"]) == ("read-only", pyromq.namesrv)
    assert perm() == "r"
    assert pyromq.rows("broker", "config", "get", "broker-a", "brokerPermission") == {"brokerPermission": "4"}
    assert pyromq("broker", "undrain", "broker-a").code == 0
    assert perm() == "rw"


@pytest.mark.parametrize("what", ["queues", "topics", "log"])
def test_cleaning_needs_a_yes(pyromq, what):
    assert pyromq("broker", "clean", what).code == 2
    assert pyromq.rows("broker", "clean", what, "--yes")[0]["change"] == "deleted"


def test_settings_and_keys_of_name_servers_are_shown_and_changed(pyromq):
    assert "listenPort" in pyromq.rows("namesrv", "config", "get")
    changed = pyromq.rows("namesrv", "config", "set", "orderMessageEnable=true")[0]
    assert (changed["server"], changed["after"]) == (pyromq.namesrv, "true")
    assert pyromq("namesrv", "kv", "set", "SPACE", "key", "value").code == 0
    assert pyromq.rows("namesrv", "kv", "list", "SPACE") == {"key": "value"}
    assert pyromq.rows("namesrv", "kv", "get", "SPACE", "key") == {"key": "value"}
    assert pyromq("namesrv", "kv", "delete", "SPACE", "key").code == 2
    assert pyromq("namesrv", "kv", "delete", "SPACE", "key", "--yes").code == 0
    assert pyromq("namesrv", "kv", "get", "SPACE", "key").code == 3


def test_producers_are_listed_with_their_brokers(pyromq, cluster, topic):
    with Producer("listed-makers", namesrv=cluster.namesrv) as producer:
        producer.send(topic, b"hello")
        deadline = time.monotonic() + 10
        while not (rows := [r for r in pyromq.rows("producer", "list") if r["group"] == "listed-makers"]):
            assert time.monotonic() < deadline
        assert rows[0]["brokers"] == ["broker-a"]
        assert rows[0]["language"] == "PYTHON"
        [member] = pyromq.rows("producer", "clients", "listed-makers", "-t", topic)
        assert member["client"] == rows[0]["client"]
    assert pyromq("producer", "clients", "listed-makers", "-t", "nope-nope").code == 3


def test_checks_end_with_6_when_a_limit_is_crossed(pyromq):
    assert pyromq("check", "disk", "--warn", "101", "--crit", "102").code == 0
    crossed = pyromq("check", "disk", "--warn", "0", "--crit", "101")
    assert (crossed.code, crossed.lines[1].split()[0]) == (6, "warn")
    assert pyromq.rows("check", "broker", "--warn", "60000", "--crit", "60000")[0]["status"] == "ok"
    assert pyromq("check", "lag").code == 0
    assert pyromq("check", "lag", "no-such-group").code == 3


# Without a server


@pytest.fixture
def silent():
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed():
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


VERBS = [
    ("topic", "list"),
    ("topic", "stats", "orders"),
    ("topic", "stats", "--all"),
    ("topic", "create", "orders"),
    ("group", "list"),
    ("group", "lag", "billing"),
    ("group", "offsets", "reset", "billing", "-t", "orders", "--to-latest", "--yes"),
    ("cluster", "list"),
    ("broker", "status"),
    ("broker", "config", "get"),
    ("namesrv", "config", "get"),
    ("producer", "list"),
    ("check", "broker"),
]


@pytest.mark.scenario("admin 9")
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_name_server_that_is_down_is_one_line_and_exit_code_5(capsys, closed, verb):
    ended = Commands(capsys, closed)(*verb)
    assert (ended.code, ended.out) == (5, "")
    assert ended.err.count("\n") == 1
    assert closed in ended.err
    assert "pyromq up" in ended.err


@pytest.mark.slow
@pytest.mark.scenario("admin 9")
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_name_server_that_hangs_is_given_up_in_time(capsys, silent, verb):
    began = time.monotonic()
    ended = Commands(capsys, silent)(*verb, "--timeout", "0.2")
    assert ended.code == 5
    assert ended.err.count("\n") == 1
    assert time.monotonic() - began < TOO_LONG


# Contexts


def test_contexts_are_saved_used_shown_and_forgotten(capsys, cluster, monkeypatch):
    def pyromq(*arguments):
        from pyromq.cli.main import _run

        code = _run(list(arguments))
        return code, *capsys.readouterr()

    assert pyromq("context", "list")[0] == 0
    assert pyromq("context", "show")[0] == 3
    code, _, err = pyromq("context", "add", "here", "-n", cluster.namesrv)
    assert (code, "now the current one" in err) == (0, True)
    file = context_file.path()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert pyromq("topic", "list", "-o", "name")[0] == 0
    assert pyromq("topic", "list", "--context", "her")[0] == 3

    class Secret:
        def readline(self):
            return "very-secret\n"

    monkeypatch.setattr("sys.stdin", Secret())
    assert pyromq("context", "add", "prod", "-n", "mq:9876", "--access-key", "me", "--secret-key", "-")[0] == 0
    code, out, _ = pyromq("context", "show", "prod", "-o", "json")
    assert code == 0
    assert "very-secret" not in out
    assert "********" in out
    assert "very-secret" in file.read_text()
    assert pyromq("context", "add", "bad", "-n", "mq:9876", "--access-key", "me")[0] == 2
    assert pyromq("context", "add", "bad", "-n", "mq:no-port")[0] == 2
    assert pyromq("context", "use", "prod")[0] == 0
    assert pyromq("context", "list", "-o", "csv")[1].splitlines()[1:] == [
        f"here,false,{cluster.namesrv},,false",
        "prod,true,mq:9876,me,false",
    ]
    assert pyromq("topic", "list", "--context", "here")[0] == 0
    assert pyromq("context", "delete", "prod", "--yes")[0] == 0
    assert pyromq("context", "show")[0] == 3
    assert pyromq("context", "show", "here")[0] == 0
