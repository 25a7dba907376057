"""What changed since an earlier commit: both brokers on this machine in one run, and a line of history for each load.

    make bench ARGS="compare --since v0.1"      (default: the commit before this one)

The earlier sources are checked out into a scratch folder and run with the packages that are installed now. Ratios go to
bench/history.csv, so that a slow change of many small ones shows.
"""

from __future__ import annotations

import contextlib
import csv
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.interop.peers import NameServer

from pyromq.protocol.command import SerializeType

from . import broker_frames as frames
from .broker_machine import ROOT, commit
from .broker_peers import scratch, spawn
from .broker_rounds import Contest, title
from .broker_table import progress, show

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .broker_peers import Peer

HISTORY = ROOT / "bench" / "history.csv"
FIELDS = ("date", "commit", "since", "load", "rate ratio", "p99 ratio", "CPU ratio")
JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
LOADS = {
    "4 × 64, 1024 B, JSON": (1024, JSON, 4, 64),
    "4 × 64, 1024 B, binary": (1024, BINARY, 4, 64),
    "4 × 64, 128 B, JSON": (128, JSON, 4, 64),
    "64 × 1, 1024 B, JSON": (1024, JSON, 64, 1),
    "1 × 1, 128 B, JSON": (128, JSON, 1, 1),
}


def main(seconds: float, since: str = "HEAD^") -> None:
    with scratch() as home, _sources(since, home / "sources") as earlier, _brokers(home, earlier) as peers:
        before = commit(since)
        contest = Contest(peers, seconds, [[(frames.TOPIC, frames.QUEUE)]] * 2)
        rows = []
        for load, (body, serialize, connections, window) in LOADS.items():
            frame = frames.send(body, serialize)
            now, then = contest.run(load, [frame, frame], connections, window)
            rows.append((load, now.rate, then.rate, now.rate / then.rate, now.p99 / then.p99, now.cpu / then.cpu))
        columns = ("load", "now/s", f"{before}/s", "rate ratio", "p99 ratio", "CPU ratio")
        show(title(f"Sends, now beside {before}", seconds), columns, rows, contest.notes())
    _remember(before, rows)


def _remember(before: str, rows: list[tuple[str, float, float, float, float, float]]) -> None:
    is_new = not HISTORY.exists()
    with HISTORY.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(FIELDS)
        for load, _, _, *ratios in rows:
            writer.writerow((time.strftime("%Y-%m-%d"), commit(), before, load, *(f"{each:.2f}" for each in ratios)))


@contextlib.contextmanager
def _sources(since: str, folder: Path) -> Iterator[Path]:
    """The files of a commit, what it compiles included."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", since], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    if (folder / "hatch_build.py").exists():
        progress(f"compiling {since}")
        subprocess.run([sys.executable, "hatch_build.py"], cwd=folder, stdout=subprocess.DEVNULL, check=False)
    yield folder


@contextlib.contextmanager
def _brokers(home: Path, earlier: Path) -> Iterator[list[Peer]]:
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(NameServer("ours", home / "namesrv"))
        peers = [
            spawn("ours", home / name, namesrv.address, sources=tree / "src", brokerName=name)
            for name, tree in (("now", ROOT), ("then", earlier))
        ]
        for peer in peers:
            stack.enter_context(peer.process)
            peer.wait_until_booted()
            frames.ask(peer.port, frames.send(128))  # the topic exists from here on
        yield peers
