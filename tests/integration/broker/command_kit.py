"""Commands of `pyromq` as processes, with a home of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.bounds import TOO_LONG

LONGEST = 3 * TOO_LONG


def environment(home):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return kept | {"HOME": str(home)}


def run(home, *arguments, environ=None, timeout=TOO_LONG):
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
def started(home, *arguments, environ=None, run_by=(), longest=LONGEST):
    """A command that goes on running; killed in the end if it is still there. `run_by` is a command that runs it.

    Killed as well if it runs longer than any test needs it, so that nobody waits for ever for what it says.
    """
    with subprocess.Popen(
        [*run_by, sys.executable, "-m", "pyromq.cli.main", *arguments],
        env=environment(home) | (environ or {}),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        too_long = threading.Timer(longest, process.kill)
        too_long.start()
        try:
            yield process
        finally:
            too_long.cancel()
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
    out, err = process.communicate(timeout=TOO_LONG)
    return process.returncode, out, err


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_running(pid):
    try:
        # A process that nobody waited for is still listed, as a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds=TOO_LONG):
    """Wait for something that other processes do; gives what `condition` gave."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return result
