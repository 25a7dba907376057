"""The command `pyromq up` as a process: ready at once, small, and gone without a trace of trouble."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.integration.broker.command_kit import children, environment, is_running, line_with, run, started, stop, until
from tests.integration.broker.life_kit import Peer, eventually
from tests.ports import free_port

from pyromq.errors import SlaveNotAvailable

pytestmark = pytest.mark.slow

READY = re.compile(
    r"PyroMQ \S+ is ready: name server (\S+), broker (\S+?)( and \d+ more)?( with \d slaves?( each)?)?, data in (.+)"
)
ANY_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


@contextmanager
def up(home, *arguments, ports=ANY_PORTS, environ=None):
    """Gives the process, the address of its name server and that of its broker."""
    with started(home, "up", *ports, *arguments, environ=environ) as process:
        ready = READY.fullmatch(line_with(process, "is ready"))
        assert ready
        yield process, ready[1], ready[2]


def one_sentence(err):
    assert err.startswith("pyromq up: "), err
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            (),
            r"Listening on 127\.0\.0\.1:\d+, open to this machine only; nothing is authenticated\. --listen 0.*",
        ),
        (
            ("--listen", "0.0.0.0"),
            r"Listening on 0\.0\.0\.0:\d+, open to anyone who can reach this machine; nothing is auth.*",
        ),
    ],
)
def test_it_says_where_it_listens_and_listens_there_only(tmp_path, arguments, line):
    with up(tmp_path, *arguments) as (process, name_server, broker):
        assert re.fullmatch(line, line_with(process, "Listening"))
        ports = {int(address.rpartition(":")[2]) for address in (name_server, broker)}
        assert bound_to(ports) == {arguments[-1] if arguments else "127.0.0.1"}


def bound_to(ports):
    """The addresses that these ports are listened on."""
    rows = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    hosts = {int(local[9:], 16): local[:8] for local, _, state in rows if state == "0A"}
    assert ports <= hosts.keys()
    return {socket.inet_ntoa(bytes.fromhex(hosts[port])[::-1]) for port in ports}


async def test_it_takes_messages_at_once_and_has_them_after_a_restart(tmp_path):
    async with Peer() as peer:
        for round_number in range(2):
            with up(tmp_path) as (process, name_server, broker):
                assert await peer.brokers(name_server) == {("broker-a", 0): broker}
                assert await peer.send(broker) == round_number
                assert (await peer.routed(name_server, "orders"))["broker-a"].write_queue_nums == 4
                assert (await peer.pull(broker)).code == 0
                code, _, err = stop(process)
                assert (code, err) == (0, "")
            assert (tmp_path / ".pyromq" / "broker-a" / "commitlog").is_dir()
            assert not (tmp_path / ".pyromq" / "broker-a" / "abort").exists()


def test_it_is_small_and_costs_less_than_a_second(tmp_path):
    with up(tmp_path) as (process, *_):
        status = Path(f"/proc/{process.pid}/status").read_text()
        [resident] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        seconds = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    assert int(resident) < 100_000
    # What the processor did, since a busy machine makes everybody wait.
    assert seconds < 1


def test_what_it_prints_can_be_copied(tmp_path):
    with up(tmp_path, "--data", "my data") as (process, name_server, _):
        lines = iter(process.stdout.readline, "Ctrl-C stops it.\n")
        commands = [line.strip() for line in lines if line.startswith("  ")]
        assert len(commands) == 3
        assert commands[0] == f"export NAMESRV_ADDR={name_server}"
        again = "for _ in 1 2 3 4 5 6 7 8 9; do"  # name servers hear of the topic a moment after the first message
        said = f"{commands[0]}; {commands[1]}; {again} {commands[2]} && exit 0; sleep 0.3; done; exit 1"
        shell = f'pyromq() {{ "{sys.executable}" -m pyromq.cli.main "$@"; }}; {said}'
        done = subprocess.run(
            ["sh", "-c", shell],
            cwd=tmp_path,
            env=environment(tmp_path),
            timeout=30,
            check=False,
            stdout=subprocess.PIPE,
        )
        stop(process)
    assert done.returncode == 0
    assert done.stdout.split()[-1] == b"hello"


async def test_an_ephemeral_one_leaves_nothing_behind(tmp_path):
    with up(tmp_path, "--ephemeral", environ={"TMPDIR": str(tmp_path)}) as (process, _, broker):
        async with Peer() as peer:
            await peer.send(broker)
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("pyromq-")]
        assert stop(process)[0] == 0
    assert list(tmp_path.iterdir()) == []


async def test_settings_reach_the_one_who_knows_them(tmp_path):
    with up(tmp_path, "brokerName=mine", "brokerClusterName=lab", "orderMessageEnable=true", "nobodyKnows=1") as (
        process,
        name_server,
        broker,
    ):
        async with Peer() as peer:
            assert await peer.brokers(name_server) == {("mine", 0): broker}
            shown = (await peer.ask(broker, 26)).body_bytes.decode()
            of_name_server = (await peer.ask(name_server, 319)).body_bytes.decode()
        _, _, err = stop(process)
    assert {"brokerClusterName=lab", "mappedFileSizeCommitLog=67108864", "nobodyKnows=1"} <= set(shown.splitlines())
    assert "orderMessageEnable" not in shown
    assert "orderMessageEnable=true" in of_name_server
    assert err.count("unknown setting") == 1


async def test_what_was_changed_at_run_time_stays_changed(tmp_path):
    async with Peer() as peer:
        with up(tmp_path) as (process, _, broker):
            await peer.configure(broker, "fileReservedTime=5")
            stop(process)
        with up(tmp_path, "--data", ".pyromq") as (_, name_server, broker):
            assert "fileReservedTime=5" in (await peer.ask(broker, 26)).body_bytes.decode().splitlines()
            # But where it is, this run decides.
            assert await peer.brokers(name_server) == {("broker-a", 0): broker}


async def test_another_address_can_be_advertised(tmp_path):
    with up(tmp_path, "--advertise", "localhost") as (_, name_server, broker):
        assert (name_server.split(":")[0], broker.split(":")[0]) == ("localhost", "localhost")
        async with Peer() as peer:
            assert await peer.brokers(name_server) == {("broker-a", 0): broker}
            assert await peer.send(broker) == 0


# What is in the way


def test_a_port_of_the_name_server_that_is_taken_is_one_sentence(tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run(tmp_path, "up", "--namesrv-port", str(port), "--broker-port", "0")
    assert (code, out) == (1, "")
    assert f"port {port} is taken" in one_sentence(err)


def test_a_port_of_the_broker_that_is_taken_is_one_sentence(tmp_path):
    port = free_port()
    with socket.create_server(("0.0.0.0", port)):
        code, out, err = run(tmp_path, "up", "--namesrv-port", "0", "--broker-port", str(port))
    assert (code, out) == (1, "")
    assert f"port {port} is taken" in one_sentence(err)


def test_a_directory_that_is_in_use_is_one_sentence(tmp_path):
    with up(tmp_path) as (process, *_):
        code, out, err = run(tmp_path, "up", *ANY_PORTS)
        assert (code, out) == (1, "")
        assert f"in use by another process (pid {process.pid})" in one_sentence(err)


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run(tmp_path, "up", *ANY_PORTS, "--data", "file/data")
    assert (code, out) == (1, "")
    assert "not a directory" in one_sentence(err)


def test_a_setting_that_is_malformed_is_one_sentence(tmp_path):
    code, out, err = run(tmp_path, "up", *ANY_PORTS, "brokerPermission=all")
    assert (code, out) == (1, "")
    assert "brokerPermission must be a whole number" in one_sentence(err)


# Several brokers


@pytest.fixture
def three(tmp_path):
    ports = ("--namesrv-port", "0", "--broker-port", str(free_port(3)))
    with up(tmp_path, "--brokers", "3", ports=ports) as running:
        yield running


NAMES = {("broker-a", 0), ("broker-b", 0), ("broker-c", 0)}


async def test_further_brokers_are_processes_that_end_with_the_first(tmp_path, three):
    process, name_server, _ = three
    async with Peer() as peer:
        brokers = await peer.brokers(name_server)
        assert brokers.keys() == NAMES
        for address in brokers.values():
            assert await peer.send(address) == 0
    pids = children(process)
    assert len(pids) == 2
    assert stop(process)[0] == 0
    assert not any(map(is_running, pids))
    assert [path.name for path in (tmp_path / ".pyromq").glob("*/abort")] == []


async def test_a_broker_that_crashed_is_started_again(three):
    process, name_server, _ = three
    victim = children(process)[0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(others := children(process)) == 2 and victim not in others)
    async with Peer() as peer:

        async def all_there():
            return (await peer.brokers(name_server)).keys() == NAMES

        await eventually(all_there)
    code, _, err = stop(process)
    assert code == 0
    assert "ended with exit code -9; starting it again" in err


def test_further_brokers_end_when_the_first_is_killed(three):
    process, *_ = three
    pids = children(process)
    process.kill()
    until(lambda: not any(map(is_running, pids)))


def test_a_further_broker_that_cannot_start_ends_all_of_it(tmp_path):
    port = free_port(2)
    with socket.create_server(("0.0.0.0", port + 10)):
        code, out, err = run(
            tmp_path, "up", "--namesrv-port", "0", "--broker-port", str(port), "--brokers", "2", timeout=30
        )
    assert (code, out) == (1, "")
    assert f"port {port + 10} is taken" in err
    assert "pyromq up: broker-b did not start (exit code 255)" in err


# Slaves


def log_of(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "commitlog").iterdir())}


async def test_a_slave_has_what_was_sent_and_ends_with_its_master(tmp_path):
    ports = ("--namesrv-port", "0", "--broker-port", str(free_port(2)))
    with up(tmp_path, "--replicas", "1", "brokerRole=SYNC_MASTER", ports=ports) as (process, name_server, broker):
        async with Peer() as peer:
            assert (await peer.brokers(name_server)).keys() == {("broker-a", 0), ("broker-a", 1)}

            async def sent():
                with suppress(SlaveNotAvailable):  # until the slave has connected
                    return await peer.send(broker, b"on two disks") is not None

            await eventually(sent)
        [slave] = children(process)
        code, _, err = stop(process)
        assert code == 0, err
        assert "closed by the slave" not in err  # the master ended first
        assert not is_running(slave)
    data = tmp_path / ".pyromq"
    assert {path.name for path in data.iterdir()} - {"dashboard"} == {"broker-a", "broker-a-slave-1"}
    assert b"on two disks" in b"".join(log_of(data / "broker-a-slave-1").values())
    assert log_of(data / "broker-a-slave-1") == log_of(data / "broker-a")
    assert [path.name for path in data.glob("*/abort")] == []


# What it imports


def test_nothing_heavy_is_imported_to_start_a_broker():
    program = (
        "import sys, pyromq.cli.servers.up\n"
        "heavy = 'pyspark pyarrow numpy deltalake starlette uvicorn cryptography urllib.request'\n"
        "print(sorted(set(heavy.split()) & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"
