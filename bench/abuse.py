"""An honest client beside those who mean no good: thousands of half frames and garbage, and a flood.

The honest one sends steadily, from another address than the others. What counts is how long it waits for its answers,
next to what it waits alone: with the defaults, and with a limit of requests for each address. Half of the crowd stays,
with a frame that never ends; the other half sends garbage, is sent away and comes back a second later. The flood has
forty times the rate of the honest client; in the last row it has no bound and sends as fast as the broker takes it.

Broker, honest client and the others are processes of their own. The others run only when nobody else wants the
processor (SCHED_IDLE): without that, an honest client on two cores waits for its own turn, not for the broker. What
each of them took of a core, and what the others got done, stands beside the figures.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.integration.broker.abuse_kit import Abuse, Done, abused
from tests.interop.peers import NameServer

from . import broker_frames as frames
from .broker_peers import OURS, scratch, spawn
from .broker_rounds import ROUNDS, stored, title
from .broker_table import progress, show
from .load import drive_steadily

if TYPE_CHECKING:
    from .broker_peers import Peer

CROWD = 5_000
FLOOD_RATE = 20_000
BODY = 1024
HONEST_RATE = 500
HONEST_CONNECTIONS = 4
LIMIT = 2_000
BAR = 2.0
# The first sends to a new broker make its files, so they say nothing; and a crowd that has left is still being closed.
WARM_SECONDS = 2.0
CALM_SECONDS = 10.0
CALM_SHARE = 0.2


class Seen(NamedTuple):
    """One round: what the honest client waited, in ms, and what everybody did in a second."""

    p50: float
    p99: float
    broker: float  # of a core, as the next two
    honest: float
    others: float
    connections: float
    flooded: float


def main(seconds: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    for limit in (0, LIMIT):
        name = f"maxRequestsPerSecond={limit}" if limit else "defaults"
        with scratch() as home, NameServer("ours", home / "namesrv") as namesrv:
            peer = spawn(OURS, home / "broker", namesrv.address, maxRequestsPerSecond=limit)
            with peer.process:
                peer.wait_until_booted()
                for who, seen, ratio in _beside_each_crowd(peer, name, seconds):
                    rows.append((name, who, seen.p50, seen.p99, ratio, *seen[2:5], *map(round, seen[5:])))
                    if ratio > BAR:
                        notes.append(
                            f"{name}, beside {who}: p99 is {ratio:.1f} times what it is alone, more than {BAR:g}."
                        )
    show(
        title(
            f"An honest client, {HONEST_RATE} sends of {BODY} bytes a second, beside {CROWD:,} connections with half "
            f"frames or garbage, and one that floods with {FLOOD_RATE:,} sends a second",
            seconds,
        ),
        (
            *("", "beside", "p50 ms", "p99 ms", "p99 to alone"),
            *("broker's CPU", "honest CPU", "others' CPU", "connections/s", "flood/s"),
        ),
        rows,
        notes,
    )


def _beside_each_crowd(peer: Peer, name: str, seconds: float) -> list[tuple[str, Seen, float]]:
    honest, flood = frames.send(BODY), frames.send(BODY, topic="Flooded")
    for frame in (honest, flood):
        assert frames.ask(peer.port, frame).code == 0
    _round(peer, honest, None, WARM_SECONDS)
    half = CROWD // 2
    crowds = {
        "the crowd": Abuse(peer.port, flood, half_frames=half, garbage=half),
        "the flood": Abuse(peer.port, flood, floods=1, flood_rate=FLOOD_RATE),
        "both": Abuse(peer.port, flood, half_frames=half, garbage=half, floods=1, flood_rate=FLOOD_RATE),
        "a flood without bound": Abuse(peer.port, flood, floods=1),
    }
    measured: dict[str, list[Seen]] = {"nobody": [], **{who: [] for who in crowds}}
    for _ in range(ROUNDS):
        for who, abuse in crowds.items():
            for beside, these in (("nobody", None), (who, abuse)):
                seen = _round(peer, honest, these, seconds)
                measured[beside].append(seen)
                progress(f"{name}, beside {beside}: p99 {seen.p99:.2f} ms")
    medians = {who: Seen(*map(statistics.median, zip(*rounds, strict=True))) for who, rounds in measured.items()}
    return [(who, seen, seen.p99 / medians["nobody"].p99) for who, seen in medians.items()]


def _round(peer: Peer, frame: bytes, abuse: Abuse | None, seconds: float) -> Seen:
    """The same honest load each time, once the broker has done with what was before."""
    _wait_until_calm(peer)
    queues = [(frames.TOPIC, frames.QUEUE)]
    with contextlib.nullcontext() if abuse is None else abused(abuse) as crowd:
        had = stored(peer.address, queues)
        done = crowd.done() if crowd else Done(0, 0, 0)
        before, began = peer.cpu_seconds(), time.perf_counter()
        seen, _ = drive_steadily(peer.port, frame, HONEST_CONNECTIONS, HONEST_RATE, seconds, lambda: None)
        took = time.perf_counter() - began
        broker = (peer.cpu_seconds() - before) / took
        now = crowd.done() if crowd else done
        got = stored(peer.address, queues) - had
    # An answer may be a refusal, which is quicker.
    if got < seen.count or seen.count < 0.95 * HONEST_RATE * seconds:
        raise AssertionError(f"{HONEST_RATE * seconds:.0f} to be sent, {seen.count} answered, {got} stored")
    connections, flooded, cpu = ((after - each) / took for after, each in zip(now, done, strict=True))
    return Seen(seen.p50, seen.p99, broker, seen.busy, cpu, connections, flooded)


def _wait_until_calm(peer: Peer) -> None:
    deadline = time.monotonic() + CALM_SECONDS
    while time.monotonic() < deadline:
        before = peer.cpu_seconds()
        time.sleep(0.5)
        if peer.cpu_seconds() - before < 0.5 * CALM_SHARE:
            return
    raise TimeoutError("the broker is still busy, with nobody there")
