"""From nothing to a name server and a broker that serve: `pyromq up` next to Apache's two processes.

Each round starts with an empty folder. The time ends when both have said that they serve; the memory is what is
resident at that moment, of all processes together.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.peers import NameServer, heap
from tests.interop.process import Process, free_port

from .broker_peers import APACHE, FULL_SPEED, OURS, scratch, spawn
from .broker_table import progress, show

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
PATIENCE = 60.0


def main(seconds: float) -> None:
    del seconds  # a start takes as long as it takes
    measured: dict[str, list[tuple[float, float]]] = {OURS: [], APACHE: []}
    start: dict[str, Callable[[Path], tuple[float, float]]] = {OURS: _ours, APACHE: _apache}
    for _ in range(ROUNDS):
        for make, rounds in measured.items():
            with scratch() as home:
                rounds.append(start[make](home))
            progress(f"{make}: ready in {rounds[-1][0]:.2f} s, {rounds[-1][1]:,.0f} MB")
    rows = [
        (make, *(statistics.median(each) for each in zip(*rounds, strict=True))) for make, rounds in measured.items()
    ]
    show(
        f"A name server and a broker with an empty store, median of {ROUNDS} starts",
        ("", "ready s", "resident MB"),
        rows,
    )


def _ours(home: Path) -> tuple[float, float]:
    ports = ["--namesrv-port", str(free_port()), "--broker-port", str(free_port())]
    command = [sys.executable, "-m", "pyromq.cli.main", "up", "--data", str(home / "data"), *ports]
    began = time.monotonic()
    with Process("pyromq up", command, log=home / "up.out") as up:
        up.wait_for("is ready", PATIENCE)
        return time.monotonic() - began, _resident(up.pid)


def _apache(home: Path) -> tuple[float, float]:
    began = time.monotonic()
    with NameServer("apache-5.5.0", home / "namesrv", jvm=(*heap("4g"), *FULL_SPEED)) as namesrv:
        peer = spawn(APACHE, home / "broker", namesrv.address)
        with peer.process:
            peer.wait_until_booted()
            return time.monotonic() - began, _resident(namesrv.pid) + _resident(peer.process.pid)


def _resident(pid: int) -> float:
    """MB, as decimal as those of the other figures."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kib) * 1024 / 1e6
