"""An honest client beside those who mean no good: thousands of half frames and garbage, and a flood.

The honest one sends steadily, from another address than the others. What counts is how long it waits for its answers,
next to what it waits alone: with the defaults, and with a limit of requests for each address.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
from typing import TYPE_CHECKING

from tests.integration.broker.abuse_kit import Abuse, abused
from tests.interop.peers import NameServer

from . import broker_frames as frames
from .broker_peers import OURS, scratch, spawn
from .broker_table import progress, show
from .load import drive_steadily

if TYPE_CHECKING:
    from .broker_peers import Peer
    from .load import Measured

CROWD = 5_000
FLOODS = 1
BODY = 1024
HONEST_RATE = 500
HONEST_CONNECTIONS = 4
ROUNDS = 3
LIMIT = 2_000


def main(seconds: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = []
    for limit in (0, LIMIT):
        name = f"maxRequestsPerSecond={limit}" if limit else "defaults"
        with scratch() as home, NameServer("ours", home / "namesrv") as namesrv:
            peer = spawn(OURS, home / "broker", namesrv.address, maxRequestsPerSecond=limit)
            with peer.process:
                peer.wait_until_booted()
                rows += _beside_each_crowd(peer, name, seconds)
    show(
        f"An honest client, {HONEST_RATE} sends of {BODY} bytes a second, beside {CROWD:,} connections with half "
        f"frames or garbage and {FLOODS} that floods; median of {ROUNDS} rounds",
        ("", "beside", "p50 ms", "p99 ms", "p99 to alone", "broker's CPU"),
        rows,
    )


def _beside_each_crowd(peer: Peer, name: str, seconds: float) -> list[tuple[object, ...]]:
    frame = frames.send(BODY)
    frames.ask(peer.port, frame)
    crowds: dict[str, Abuse | None] = {
        "nobody": None,
        "the crowd": Abuse(peer.port, frame, half_frames=CROWD // 2, garbage=CROWD // 2),
        "the flood": Abuse(peer.port, frame, floods=FLOODS),
        "both": Abuse(peer.port, frame, half_frames=CROWD // 2, garbage=CROWD // 2, floods=FLOODS),
    }
    measured: dict[str, list[tuple[Measured, float]]] = {who: [] for who in crowds}
    for _ in range(ROUNDS):
        for who, abuse in crowds.items():
            with contextlib.nullcontext() if abuse is None else abused(abuse):
                before = peer.cpu_seconds()
                seen, _ = drive_steadily(peer.port, frame, HONEST_CONNECTIONS, HONEST_RATE, seconds, peer.cpu_seconds)
                measured[who].append((seen, (peer.cpu_seconds() - before) / seconds))
            progress(f"{name}, beside {who}: p99 {seen.p99:.2f} ms")
    alone = statistics.median(each.p99 for each, _ in measured["nobody"])
    return [
        (
            name,
            who,
            statistics.median(each.p50 for each, _ in rounds),
            p99 := statistics.median(each.p99 for each, _ in rounds),
            p99 / alone,
            statistics.median(cpu for _, cpu in rounds),
        )
        for who, rounds in measured.items()
    ]
