"""Messages delayed by a second: stored, parked, delivered. By level, and by a time of their own."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from . import features_frames
from .broker_rounds import ROUNDS, too_short, warm_seconds
from .broker_table import progress, show
from .load import drive_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .broker_peers import Peer

BODY = 1024
PER_SECOND = 8000  # messages of a round, for each of its seconds
CONNECTIONS, WINDOW = 4, 64
DELAY = 1.0
PATIENCE = 60.0
KINDS = {"level 1": ("DelayTest", "DELAY\x011"), "timer of 1 s": ("TimerTest", "TIMER_DELAY_MS\x011000")}


class Delivered(NamedTuple):
    rate: float  # messages a second, from the first send to the last delivery, without the delay itself
    late: float  # seconds from when the last one was due until all were there
    cpu: float  # µs of the broker's CPU per message, for all of its way


def run(peers: Sequence[Peer], seconds: float) -> None:
    rows, notes = [], []
    count = round(PER_SECOND * seconds)
    for kind, (topic, properties) in KINDS.items():
        send = features_frames.send(topic, BODY, properties)
        for peer in peers:
            features_frames.create_topic(peer, topic)
        _deliver(peers[1], topic, send, max(1000, round(PER_SECOND * warm_seconds(seconds) / 6)))
        results: list[list[Delivered]] = [[] for _ in peers]
        for _ in range(ROUNDS):
            for peer, rounds in zip(peers, results, strict=True):
                delivered = _deliver(peer, topic, send, count)
                if delivered is None:
                    notes.append(f"{kind}: {peer.make} had not delivered {count:,} messages after {PATIENCE:g} s.")
                    continue
                rounds.append(delivered)
                progress(f"{kind}: {peer.make} {delivered.rate:,.0f}/s, {delivered.cpu:.1f} µs")
        if not all(results):
            continue
        ours, theirs = (Delivered(*map(statistics.median, zip(*rounds, strict=True))) for rounds in results)
        rows.append(
            (
                kind,
                *(f"{ours.rate:,.0f}", f"{theirs.rate:,.0f}", ours.rate / theirs.rate, ours.late, theirs.late),
                *(ours.cpu, theirs.cpu, ours.cpu / theirs.cpu),
            )
        )
    tried = " (too short to conclude anything)" if too_short(seconds) else ""
    show(
        f"Delays of a second, {BODY} B, until delivered, median of {ROUNDS} interleaved rounds of {count:,}{tried}",
        ("kind", "ours/s", "Apache/s", "ratio", "last one late s", "Apache", "CPU µs", "Apache", "ratio"),
        rows,
        notes,
    )


def _deliver(peer: Peer, topic: str, send: bytes, count: int) -> Delivered | None:
    """Send so many and wait until all of them have come; None if that takes too long."""
    before, cpu, began = features_frames.stored(peer, topic), peer.cpu_seconds(), time.perf_counter()
    measured = drive_count(peer.port, send, CONNECTIONS, WINDOW, count)
    # The driver starts as a process, which is nobody's work here.
    started = time.perf_counter() - began - count / measured.rate
    if not features_frames.wait_until_stored(peer, topic, before + count, PATIENCE):
        return None
    took = time.perf_counter() - began - started - DELAY
    return Delivered(count / took, took - count / measured.rate, (peer.cpu_seconds() - cpu) / count * 1e6)
