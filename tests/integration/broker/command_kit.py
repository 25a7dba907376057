"""Commands of `pyromq` as processes, with a home of their own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyromq.errors import ConfigError
from pyromq.remoting import ServerConfig
from pyromq.remoting.listening import bind


def environment(home):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return kept | {"HOME": str(home)}


def run(home, *arguments, environ=None, timeout=20):
    """Run a command to its end; gives the exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "pyromq.cli.main", *arguments],
        env=environment(home) | (environ or {}),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def started(home, *arguments, environ=None, run_by=()):
    """A command that goes on running; killed in the end if it is still there. `run_by` is a command that runs it."""
    with subprocess.Popen(
        [*run_by, sys.executable, "-m", "pyromq.cli.main", *arguments],
        env=environment(home) | (environ or {}),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def line_with(process, words):
    """The first line of stdout that has these words."""
    for line in process.stdout:
        if words in line:
            return line.rstrip("\n")
    raise AssertionError(process.stderr.read())


def stop(process, number=signal.SIGINT):
    """Send a signal; gives the exit code and what is left on stdout and stderr."""
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_running(pid):
    try:
        # A process that nobody waited for is still listed, as a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds=20.0):
    """Wait for something that other processes do; gives what `condition` gave."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return result


def free_port(brokers=1):
    """A port where so many brokers fit, ten apart: each takes the port two below, and the one above, too.

    Not from the range that the system gives to others at any moment.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        near = [port + 10 * number + step for number in range(brokers) for step in (-2, 0, 1)]
        with contextlib.suppress(ConfigError):
            for each in near:
                bind(ServerConfig(listen_port=each)).close()
            return port
