"""The command `pyromq namesrv` as a process: what it prints, how it ends."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.bounds import TOO_LONG
from tests.integration.namesrv.raw_client import json_request

pytestmark = pytest.mark.slow

BOOT = re.compile(r"The Name Server boot success\. serializeType=JSON, address (.+):(\d+)\n")


@pytest.fixture
def command(tmp_path):
    """Run `pyromq namesrv` with a home of its own; gives the exit code, stdout and stderr."""

    def run(*arguments, environ=None):
        done = subprocess.run(
            [sys.executable, "-m", "pyromq.cli.main", "namesrv", *arguments],
            env=environment(tmp_path) | (environ or {}),
            capture_output=True,
            text=True,
            timeout=TOO_LONG,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def running(tmp_path):
    """A `pyromq namesrv` that serves: `with running("listenPort=0") as (process, port)`."""

    @contextmanager
    def start(*arguments):
        with process(tmp_path, *arguments) as started:
            line = started.stdout.readline()
            while not (boot := BOOT.fullmatch(line)):
                assert line, started.stderr.read()
                line = started.stdout.readline()
            yield started, int(boot[2])

    return start


@contextmanager
def process(home, *arguments):
    with subprocess.Popen(
        [sys.executable, "-m", "pyromq.cli.main", "namesrv", *arguments],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def environment(home):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return kept | {"HOME": str(home)}


def test_help_and_unknown_options_say_how_to_use_it(command):
    code, out, _ = command("-h")
    assert code == 0
    for option in ("-c, --configFile", "-p, --printConfigItem", "-n, --namesrvAddr", "--set", "-h, --help"):
        assert option in out
    code, _, err = command("--bogus")
    assert code == 1
    assert err.startswith("Usage: pyromq namesrv")
    assert "No such option: --bogus" in err


def test_settings_are_printed_as_key_and_value(command, tmp_path):
    code, out, err = command("-p", "-n", "10.0.0.1:9876", "listenPort=7")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert "listenPort=7" in lines
    assert f"kvConfigPath={tmp_path}/namesrv/kvConfig.json" in lines
    assert all("#" not in line for line in lines)


def test_settings_are_printed_with_their_origin(command, tmp_path):
    file = tmp_path / "namesrv.properties"
    file.write_text("# mine\nserverWorkerThreads=16\nscanNotActiveBrokerInterval: 100\nlistenport=3\n")
    code, out, err = command(
        *("--print-config", "-c", str(file), "--set", "orderMessageEnable=true", "listenPort=7"),
        environ={"PYROMQ_CLUSTER_TEST": "true"},
    )
    lines = out.splitlines()
    assert code == 0
    assert f"serverWorkerThreads=16  # {file}:2; no effect" in lines
    assert f"scanNotActiveBrokerInterval=100  # {file}:3" in lines
    assert "clusterTest=true  # environment PYROMQ_CLUSTER_TEST" in lines
    assert "orderMessageEnable=true  # --set" in lines
    assert "listenPort=7  # argument" in lines
    assert "bindAddress=0.0.0.0  # default" in lines
    assert f"configStorePath={file}  # -c" in lines
    assert f"{file}:4: unknown setting listenport; did you mean listenPort?" in err


def test_a_file_that_cannot_be_read_ends_the_start_in_one_line(command, tmp_path):
    code, out, err = command("-c", str(tmp_path / "none.properties"))
    assert (code, out) == (255, "")
    assert err == f"pyromq namesrv: {tmp_path}/none.properties: cannot be read: No such file or directory\n"


def test_a_malformed_file_is_named_with_its_line(command, tmp_path):
    file = tmp_path / "namesrv.properties"
    file.write_text("\n\nlistenPort=high\n")
    code, out, err = command("-c", str(file))
    assert (code, out) == (255, "")
    assert err == f"pyromq namesrv: {file}:3: listenPort must be a whole number, not 'high'\n"


def test_a_malformed_kv_config_is_named(command, tmp_path):
    file = tmp_path / "kv.json"
    file.write_text("{")
    code, _, err = command(f"kvConfigPath={file}", "listenPort=0")
    assert code == 255
    assert err.startswith(f"pyromq namesrv: {file}:1: not JSON: ")
    assert err.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_named(command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = command(f"kvConfigPath={tmp_path}/file/kv.json", "listenPort=0")
    assert code == 253
    assert err == (
        f"pyromq namesrv: argument: kvConfigPath {tmp_path}/file/kv.json cannot be written: "
        f"{tmp_path}/file is not a directory\n"
    )


def test_a_taken_port_is_said_in_one_line(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = command(f"listenPort={port}", "bindAddress=127.0.0.1")
    assert (code, out) == (255, "")
    # Where /proc tells who has it, as on Linux, that is said, too.
    comm = Path("/proc/self/comm")
    holder = f" by {comm.read_text().strip()} (pid {os.getpid()})" if comm.exists() else ""
    assert err == f"pyromq namesrv: port {port} is taken{holder}; cannot listen on 127.0.0.1:{port}\n"


def test_an_argument_that_is_no_setting_is_refused(command):
    code, _, err = command("listenPort")
    assert (code, err) == (255, "pyromq namesrv: argument: expected key=value, not 'listenPort'\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(running, tmp_path, number):
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=0\nbindAddress=127.0.0.1\n")
    with running("-c", str(file)) as (started, port), socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(json_request(105, {"topic": "T"}))
        assert client.recv(4096)
        started.send_signal(number)
        assert started.wait(TOO_LONG) == 0
        assert client.recv(4096) == b""
        log = started.stderr.read()
    assert f"INFO cli: stopping on {number.name}\n" in log
    assert log.endswith("INFO cli: stopped\n")


def test_it_says_what_it_loaded_and_where_it_listens(tmp_path):
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=0\n")
    with process(tmp_path, "-c", str(file)) as started:
        assert started.stdout.readline() == f"load config properties file OK, {file}\n"
        assert BOOT.fullmatch(started.stdout.readline())


def test_a_second_signal_ends_it_on_the_spot(running):
    # Both signals wait for the process while it is halted, so the second finds it stopping.
    with running("listenPort=0") as (started, _):
        started.send_signal(signal.SIGSTOP)
        started.send_signal(signal.SIGTERM)
        started.send_signal(signal.SIGINT)
        started.send_signal(signal.SIGCONT)
        assert started.wait(TOO_LONG) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_a_start_costs_less_than_half_a_second_of_work(running):
    # Time of the processor, not of the clock: the machine may be busy with other things.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with running("listenPort=0"):
        pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
