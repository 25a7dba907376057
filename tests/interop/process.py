"""Processes that a test starts: their output in a file, ended by their own id, never left behind."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

POLL_SECONDS = 0.05
TERMINATE_SECONDS = 5.0  # a 5.5.0 broker unregisters at once and then takes ten more to end
PORTS_APART = 10  # a broker listens on p - 2 (VIP), p and p + 1 (HA)

# Below the range the kernel takes outgoing ports from (32768 on Linux), at a random place so that two runs hardly meet.
_next_port = random.randrange(20_000, 30_000, PORTS_APART)


class PeerFailed(Exception):
    """A peer did not do what it was started for; the message ends with what it said last."""


def free_port() -> int:
    """A port that is free together with p - 2 and p + 1, ten away from the one handed out before."""
    global _next_port
    while True:
        port, _next_port = _next_port, _next_port + PORTS_APART
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for each in (port - 2, port, port + 1):
                probe = probes.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("0.0.0.0", each))
            return port


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> float:
    """Ask again until it holds and say how many seconds that took. The peers are other processes: no event tells us."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise PeerFailed(f"not within {seconds:g} s: {what}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


class Process:
    """A started process. Its output goes to `log`; with `talk` its input is ours to write to."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        talk: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        # If the test run itself is killed, nobody is left to end the process; the kernel does it then.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def lines(self, first_word: str) -> list[str]:
        """What follows `first_word` on each whole line that starts with it; the rest is the peer's own chatter."""
        whole = self.output.rpartition("\n")[0].splitlines()
        return [line.removeprefix(first_word).strip() for line in whole if line.startswith(first_word + " ")]

    def say(self, line: str) -> None:
        """Write a line to the input of the process."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n".encode())
        self._popen.stdin.flush()

    def wait_for(self, text: str, seconds: float) -> float:
        """Wait until `text` stands in the output; a process that ends before that has failed."""

        def said() -> bool:
            ended = self._popen.poll() is not None  # asked first: what it wrote before its end still counts
            if text in self.output:
                return True
            if ended:
                raise PeerFailed(f"it ended with {self._popen.returncode}")
            return False

        try:
            return wait_until(said, seconds, f"it says {text!r}")
        except PeerFailed as exc:
            self.stop()
            raise self._failed(str(exc)) from None

    def wait(self, seconds: float) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise self._failed(f"not done within {seconds:g} s") from None

    def terminate(self) -> None:
        """Ask it to end and do not wait."""
        self._popen.terminate()

    def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        self._popen.terminate()
        try:
            self._popen.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._ended()

    def kill(self) -> None:
        """kill -9: it gets no chance to say goodbye."""
        self._popen.kill()
        self._ended()

    def _ended(self) -> None:
        self._popen.wait()
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.output.splitlines()[-lines:])

    def _failed(self, reason: str) -> PeerFailed:
        return PeerFailed(f"{self.name}: {reason}; {self.log} ends with\n{self.tail()}")


def stop_all(processes: Iterable[Process]) -> None:
    """Stop several side by side."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    for process in processes:
        process.stop()
