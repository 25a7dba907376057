"""`pyromq` as processes: servers that are started with files and arguments, one that hangs, what a command imports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.command_kit import environment, line_with, run, started, stop, until
from tests.integration.cli.cli_kit import Commands, send
from tests.ports import free_port

STOCK = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""
# What a broker on a developer's machine needs beside that.
HERE = ["bindAddress=127.0.0.1", "brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=1m", "drainSeconds=0"]

# Of what a command has loaded in the end; typer, pydantic and asyncio are 320 of them.
MODULES_AT_MOST = 460
HEAVY = {"pyspark", "pyarrow", "pandas", "numpy", "rich", "deltalake", "starlette", "uvicorn", "cryptography", "uvloop"}


@pytest.fixture
def broker(tmp_path, cluster):
    """Run a broker as a process, registered with the cluster's name server; gives the process and its port."""

    def start(*arguments):
        return started(tmp_path, "broker", "-n", cluster.namesrv, *arguments)

    return start


@pytest.fixture
def properties(tmp_path):
    """A file of settings, with a store of its own."""

    def write(text):
        file = tmp_path / "broker.properties"
        file.write_text(f"{text}storePathRootDir={tmp_path / 'store'}\n")
        return str(file)

    return write


@pytest.mark.slow
@pytest.mark.scenario("admin 5")
def test_a_stock_file_starts_a_broker_and_its_values_are_shown(capsys, tmp_path, properties, cluster):
    port = free_port()
    # Not registered: the cluster has a broker of that name.
    with started(tmp_path, "broker", "-c", properties(STOCK), f"listenPort={port}", *HERE) as process:
        line_with(process, "boot success")
        pyromq = Commands(capsys, cluster.namesrv)
        shown = pyromq.rows("broker", "config", "get", f"127.0.0.1:{port}")
        for line in STOCK.splitlines():
            key, _, value = line.partition("=")
            assert shown[key] == value
        stop(process)


@pytest.mark.slow
@pytest.mark.scenario("admin 6")
def test_a_mistyped_key_is_told_with_the_right_one_and_survives(capsys, broker, properties, cluster):
    port = free_port()
    file = properties(STOCK.replace("fileReservedTime", "fileReservedTme").replace("broker-a", "broker-typo"))
    with broker("-c", file, f"listenPort={port}", *HERE) as process:
        line_with(process, "boot success")
        pyromq = Commands(capsys, cluster.namesrv)
        address = f"127.0.0.1:{port}"
        [changed] = pyromq.rows("broker", "config", "set", "deleteWhen=05", "-b", address)
        assert (changed["before"], changed["after"]) == ("04", "05")
        _, _, err = stop(process)
    assert "fileReservedTme" in err
    assert "fileReservedTime" in err
    kept = Path(file).read_text()
    assert "fileReservedTme=48" in kept
    assert "deleteWhen=05" in kept


@pytest.mark.slow
@pytest.mark.scenario("admin 7")
def test_a_bare_argument_is_a_setting(capsys, broker, tmp_path, cluster):
    port = free_port()
    words = ["autoCreateTopicEnable=true", f"listenPort={port}", f"storePathRootDir={tmp_path / 'store'}"]
    with broker(*words, "brokerName=broker-bare", *HERE) as process:
        line_with(process, "boot success")
        pyromq = Commands(capsys, cluster.namesrv)
        shown = pyromq.rows("broker", "config", "get", f"127.0.0.1:{port}", "autoCreateTopicEnable")
        assert shown == {"autoCreateTopicEnable": "true"}
        stop(process)


@pytest.mark.slow
@pytest.mark.scenario("admin 15")
def test_a_broker_that_hangs_leaves_a_partial_table_in_time(capsys, broker, tmp_path, cluster):
    pyromq = Commands(capsys, cluster.namesrv)
    words = [f"listenPort={free_port()}", f"storePathRootDir={tmp_path / 'store'}", "brokerName=broker-b"]
    with broker(*words, *HERE) as process:
        line_with(process, "boot success")
        until(lambda: "broker-b" in pyromq("cluster", "list").out)
        assert pyromq("topic", "create", "shared", "-q", "2").code == 0
        send(cluster.namesrv, "shared", 8)
        ended = pyromq("group", "offsets", "reset", "slow-readers", "-t", "shared", "--to-earliest", "--yes")
        assert ended.code == 0
        process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            ended = pyromq("group", "lag", "slow-readers")
            assert time.monotonic() - began < TOO_LONG
            assert ended.code == 1
            rows = [line.split() for line in ended.lines if line.startswith("shared")]
            assert [row[1:3] for row in rows] == [[name, q] for name in ("broker-a", "broker-b") for q in ("0", "1")]
            assert [row[3:6] for row in rows[2:]] == [["-", "-", "-"]] * 2
            assert all("-" not in row[3:6] for row in rows[:2])
            assert "2 more are unknown" in ended.lines[-1]
            assert "incomplete: broker-b" in ended.err
            # The same for the others that ask all brokers.
            for verb in (("cluster", "list"), ("group", "list"), ("topic", "stats", "shared"), ("broker", "status")):
                ended = pyromq(*verb, "--timeout", "0.5")
                assert (ended.code, "incomplete: " in ended.err, "broker-a" in ended.out or "GROUP" in ended.out) == (
                    1,
                    True,
                    True,
                ), verb
            plan = pyromq("group", "offsets", "skip", "slow-readers", "-t", "shared", "--yes", "--timeout", "0.5")
            assert plan.code == 1
            assert "nothing was changed" in plan.err
            # Whoever answers is measured, however long the other one is silent.
            for verb, code in ((("check", "broker"), 6), (("cluster", "ping"), 1)):
                ended = pyromq(*verb, "--timeout", "0.5", "-o", "json")
                assert ended.code == code
                figures = {
                    row.get("what", row.get("broker")): row.get("value", row.get("meanMs"))
                    for row in json.loads(ended.out)
                }
                assert {name.split()[0]: figure is None for name, figure in figures.items()} == {
                    "broker-a": False,
                    "broker-b": True,
                }
        finally:
            process.send_signal(signal.SIGCONT)
        stop(process)
    assert pyromq("topic", "delete", "shared", "--yes").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "table"])
def test_a_command_imports_little(cluster, tmp_path, form):
    program = (
        "import sys\nfrom pyromq.cli.main import _run\n"
        f"code = _run(['topic', 'list', '-o', '{form}', '-n', '{cluster.namesrv}'])\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    code, *modules = done.stderr.split()
    assert code == "0"
    assert not HEAVY & {name.partition(".")[0] for name in modules}
    assert not {
        "pyromq.broker",
        "pyromq.store",
        "pyromq.client.consumer.push_consumer",
        "pyromq.client.producer.producer",
    } & {*modules}
    assert len(modules) < MODULES_AT_MOST, len(modules)


@pytest.mark.slow
def test_a_watched_command_repeats_until_it_is_interrupted(cluster, tmp_path):
    with started(tmp_path, "cluster", "list", "--watch", "0.1", "-o", "name", "-n", cluster.namesrv) as process:
        for _ in range(3):
            line_with(process, "DefaultCluster")
        code, _, err = stop(process)
    assert (code, err) == (130, "")


@pytest.mark.slow
def test_whoever_reads_only_the_beginning_sees_no_error(cluster, tmp_path):
    command = f"{sys.executable} -m pyromq.cli.main topic list --system -o ndjson -n {cluster.namesrv} | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_topics_and_groups_are_completed(capsys, cluster, tmp_path):
    pyromq = Commands(capsys, cluster.namesrv)
    assert pyromq("topic", "create", "completed-topic").code == 0
    assert pyromq("group", "create", "completed-group").code == 0
    environ = {"NAMESRV_ADDR": cluster.namesrv}
    assert run(tmp_path, "complete", "--", "topic", "stats", "comp", environ=environ)[:2] == (0, "completed-topic\n")
    assert run(tmp_path, "complete", "--", "group", "lag", "comp", environ=environ)[:2] == (0, "completed-group\n")
    assert run(tmp_path, "complete", "--", "group", "lag", "x", "-t", "comp", environ=environ)[1] == "completed-topic\n"
    nobody = {"NAMESRV_ADDR": "127.0.0.1:1"}
    assert run(tmp_path, "complete", "--", "topic", "stats", "comp", environ=nobody) == (0, "", "")
    words = "COMP_WORDS=(pyromq topic stats comp); COMP_CWORD=3; _pyromq; echo ${COMPREPLY[*]}"
    bash = f"source <(pyromq completion bash); {words}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", bash],
        env=environment(tmp_path) | environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "completed-topic\n"


@pytest.mark.slow
@pytest.mark.scenario("admin 9")
def test_a_silent_server_is_one_line_of_a_process_too(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        code, out, err = run(tmp_path, "topic", "list", "-n", address, "--timeout", "0.3")
    assert (code, out, err.count("\n")) == (5, "", 1)
    assert address in err
    assert time.monotonic() - began < TOO_LONG
