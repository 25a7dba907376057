"""What metrics cost: three brokers of ours that differ only in that, in the same run, each a fresh process.

One counts nothing, one counts and nobody reads, one is read every second, as by an eager Prometheus.
"""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.interop.peers import NameServer
from tests.ports import free_port

from . import broker_frames as frames
from .broker_peers import scratch, spawn
from .broker_rounds import Contest, title
from .broker_table import progress, show
from .load import drive, drive_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .broker_peers import Peer

BODY = 1024
TOPIC, QUEUE, STORED, PULLED = "PullTest", 0, 50_000, 32
SENDS = ((4, 64), (1, 1))
PULLS = ((4, 8), (1, 1))
BOUND = 1.02


def main(seconds: float) -> None:
    send, pull = frames.send(BODY), frames.pull(TOPIC, QUEUE, STORED // 2, PULLED)
    with _brokers() as (names, peers, read):
        for peer in peers:
            drive_count(peer.port, frames.send(BODY, topic=TOPIC, queue=QUEUE), 4, 64, STORED)
            drive(peer.port, send, 4, 64, min(seconds, 2.0))
            assert frames.ask(peer.port, pull).code == 0, peer
        contest = Contest(peers, seconds, turn=lambda number: read() if number == 2 else contextlib.nullcontext())
        rows = []
        for what, frame, loads, each in (("sends", send, SENDS, 1), ("pulls", pull, PULLS, PULLED)):
            for connections, window in loads:
                load = f"{what} {connections} × {window}"
                off, *others = contest.run(load, [frame] * len(peers), connections, window, per_reply=each)
                rows += [
                    (load, name, f"{result.rate:,.0f}", result.rate / off.rate, result.p99, result.cpu, ratio)
                    for name, result in zip(names, (off, *others), strict=True)
                    if (ratio := result.cpu / off.cpu)
                ]
        notes = [f"CPU is to be at most {BOUND} times that without metrics.", *contest.notes()]
    columns = ("load", "metrics", "messages/s", "to off", "p99 ms", "CPU µs", "to off")
    show(title(f"Messages of {BODY} B with and without metrics, ours", seconds), columns, rows, notes)


@contextlib.contextmanager
def _brokers() -> Iterator[tuple[list[str], list[Peer], Callable[[], contextlib.AbstractContextManager[None]]]]:
    port = free_port()
    made: list[tuple[str, dict[str, Any]]] = [
        ("off", {"metricsExporterType": "DISABLE"}),
        ("on", {"metricsPromExporterPort": 0}),
        ("on, read every second", {"metricsPromExporterPort": port}),
    ]
    with scratch() as home, contextlib.ExitStack() as stack:
        progress(f"starting brokers with metrics {', '.join(name for name, _ in made)}")
        peers = []
        for number, (_, settings) in enumerate(made):
            namesrv = stack.enter_context(NameServer("ours", home / f"namesrv-{number}"))
            peers.append(peer := spawn("ours", home / f"broker-{number}", namesrv.address, **settings))
            stack.enter_context(peer.process)
        for peer in peers:
            peer.wait_until_booted()
        yield [name for name, _ in made], peers, partial(_read, port)


@contextlib.contextmanager
def _read(port: int) -> Iterator[None]:
    """Read the metrics every second, in a thread."""
    done = threading.Event()

    def read() -> None:
        while not done.wait(1.0):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                page.read()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
