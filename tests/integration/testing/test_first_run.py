"""The first minutes with PyroMQ: what the README says, `pyromq up` in an empty folder, and what usually goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port

from pyromq.testing import running_cluster

ROOT = Path(__file__).parents[3]
PYROMQ = str(Path(sys.executable).with_name("pyromq"))
PATIENCE = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def namesrv():
    with running_cluster(None, "enablePropertyFilter=true") as cluster:
        yield cluster.namesrv


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)


def test_the_program_of_the_readme_sends_and_receives(namesrv):
    [program] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert program.count("localhost:9876") == 2
    program = program.replace("localhost:9876", namesrv)  # the rest is run as it is
    # Twice: what was acknowledged is not delivered again, and the second run gets its own message.
    for order in ("order-1", "order-2"):
        done = run(sys.executable, "-W", "error", "-c", program.replace("order-1", order))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["SEND_OK", f"created ['{order}'] b'hello'"]


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("delayed", r"by level 1: [12] s\nafter two seconds: [2-4] s\n"),
        ("filtered", "paid ones: order-2\nbig ones in the EU: order-2\n"),
    ],
)
def test_an_example_of_the_how_to_pages_runs(namesrv, example, said):
    done = run(sys.executable, str(ROOT / "examples" / f"{example}.py"), namesrv)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(said, done.stdout), done.stdout


def test_the_file_of_the_how_to_pages_can_be_applied(namesrv):
    done = run(PYROMQ, "apply", "-f", str(ROOT / "examples" / "shop.yaml"), "-n", namesrv, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would carry out these 5 steps" in done.stderr


# pyromq up


@contextlib.contextmanager
def up(folder, *arguments):
    """`pyromq up`, which is ended whatever happens."""
    command = [PYROMQ, "up", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            yield server
        finally:
            server.kill()


@pytest.mark.scenario("admin 1")
def test_up_needs_no_configuration_and_little_time_and_memory(tmp_path):
    port = free_port()
    with up(tmp_path, "--namesrv-port", str(port), "--broker-port", str(free_port())) as server:
        ready = server.stdout.readline()
        assert "is ready" in ready
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        took = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        where = ["-n", f"127.0.0.1:{port}"]
        sent = run(PYROMQ, "message", "send", "orders", "hello", *where)
        assert sent.returncode == 0, sent.stderr
        consumed = run(PYROMQ, "message", "consume", "orders", "--group", "readers", "--count", "1", *where)
        assert "hello" in consumed.stdout, consumed.stderr
        [resident] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    assert int(resident) < 200_000
    # Of the processor's time, which is all it takes on a machine that does nothing else; here other tests may run.
    assert took < 2.0


@pytest.mark.scenario("admin 2")
def test_a_port_that_is_taken_is_named_with_its_holder_in_a_line(tmp_path):
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run(PYROMQ, "up", "--namesrv-port", str(port), "--broker-port", "0", cwd=tmp_path)
    assert done.returncode == 1
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert f"port {port} is taken by {name} (pid {os.getpid()}); cannot listen" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.scenario("admin 4")
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can become somebody else")
def test_a_folder_of_somebody_else_is_told_with_the_cure():
    # Not in pytest's folder, which others may not even enter.
    folder = Path("/tmp") / f"pyromq-first-run-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        other = ("setpriv", "--reuid=3000", "--regid=3000", "--clear-groups")
        done = run(*other, PYROMQ, "up", "--data", str(folder), "--namesrv-port", "0", "--broker-port", "0", cwd="/")
        if "Permission denied" in done.stderr and "chown" not in done.stderr:
            pytest.skip("somebody else may not run this Python")
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 1
    assert f"{folder} belongs to uid 0, this process runs as uid 3000" in done.stderr
    assert f"chown 3000:3000 {folder}" in done.stderr
