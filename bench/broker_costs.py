"""What our broker costs: time to start, memory, many queues, many idle connections. Minutes; ten million messages."""

from __future__ import annotations

import contextlib
import resource
import socket
import statistics
import time
from typing import TYPE_CHECKING

from tests.interop import wire
from tests.interop.peers import NameServer
from tests.interop.process import PeerFailed

from . import broker_frames as frames
from .broker_peers import APACHE, OURS, brokers, scratch, spawn
from .broker_rounds import ROUNDS, Contest, title, too_short
from .broker_table import progress, show
from .load import drive_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .broker_peers import Peer

START_SECONDS = 120.0
MESSAGES, STEPS, BODY = 1_000_000, 10, 128
TRIED = 100  # a trial does a hundredth of that
FEW = (1, 4)  # topics, queues of each
MANY = (1_000, 10)
IDLE = 10_000
IDLE_WINDOWS = (1, 64)
SETTLE_SECONDS = 1.0


def main(seconds: float) -> None:
    _start()
    _memory(MESSAGES // TRIED if too_short(seconds) else MESSAGES)
    _queues(seconds)
    _idle_connections(seconds)


# Starting


def _start() -> None:
    """From the start of the process, with an empty store, until a producer has its first answer."""
    took: dict[str, list[float]] = {OURS: [], APACHE: []}
    with scratch() as home, NameServer("ours", home / "namesrv") as namesrv:
        for number in range(ROUNDS):
            for make, results in took.items():
                began = time.perf_counter()
                peer = spawn(make, home / f"{make}-{number}", namesrv.address)
                try:
                    _first_message(peer)
                    results.append(time.perf_counter() - began)
                finally:
                    peer.process.kill()
                progress(f"{make} took its first message after {results[-1]:.2f} s")
    ours, theirs = (statistics.median(results) for results in took.values())
    columns = ("start to first message", "ours s", "Apache s", "ratio")
    show(f"Starting with an empty store, median of {ROUNDS}", columns, [("broker", ours, theirs, ours / theirs)])


def _first_message(peer: Peer) -> None:
    request = frames.send(BODY)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if frames.ask(peer.port, request).code == 0:
                return
        time.sleep(0.005)
    raise PeerFailed(f"{peer.make} took no message within {START_SECONDS:g} s:\n{peer.process.tail()}")


# Memory


def _memory(step: int) -> None:
    rows: list[tuple[object, ...]] = []
    own: list[float] = []
    send = frames.send(BODY)
    with brokers(OURS) as (peer,):
        for number in range(STEPS + 1):
            if number:
                measured = drive_count(peer.port, send, 4, 64, step)
                progress(f"{number * step:,} messages stored, the last {step:,} at {measured.rate:,.0f}/s")
            time.sleep(SETTLE_SECONDS)
            own.append(peer.memory("RssAnon") / 1e6)
            progress(f"{own[-1]:.1f} MB without mapped files")
            if number in (0, 1, STEPS):
                against = own[-1] / own[1] if number > 1 else ""
                rows.append((f"{number * step:,} messages", own[-1], against, peer.memory("VmRSS") / 1e6))
    columns = (f"after, {BODY} B each", "MB without mapped files", f"against {step:,}", "MB with them")
    show("Resident memory of our broker", columns, rows)


# Queues


def _queues(seconds: float) -> None:
    """Two brokers of ours that differ only in how many queues the same messages go to."""
    with brokers(OURS, OURS) as peers:
        queues = [_create_topics(peer, *count) for peer, count in zip(peers, (FEW, MANY), strict=True)]
        sends = [[frames.send(BODY, topic=topic, queue=queue) for topic, queue in each] for each in queues]
        for peer, each in zip(peers, sends, strict=True):
            drive_count(peer.port, each, 4, 64, 4 * max(len(each), 1000))  # every queue has its files
        contest = Contest(peers, seconds, queues)
        results = contest.run(f"{len(queues[0])} and {len(queues[1]):,} queues", sends, 4, 64)
        notes = contest.notes()
        rows = [
            (f"{len(each):,}", f"{result.rate:,.0f}", result.p50, result.p99, result.cpu, result.cpu / results[0].cpu)
            for each, result in zip(queues, results, strict=True)
        ]
    columns = ("queues", "messages/s", "p50 ms", "p99 ms", "CPU µs", "ratio")
    show(title(f"Messages of {BODY} B over many queues, 4 × 64, ours", seconds), columns, rows, notes)


def _create_topics(peer: Peer, topics: int, queues: int) -> list[tuple[str, int]]:
    """All queues of so many new topics, in an order in which neighbours are of different topics."""
    names = [f"topic-{number:04d}" for number in range(topics)]
    began = time.perf_counter()
    with wire.Connection(peer.address) as connection:
        for name in names:
            wire.create_topic(connection, name, queues)
    progress(f"{topics:,} topics of {queues} queues made in {time.perf_counter() - began:.1f} s")
    return [(name, queue) for queue in range(queues) for name in names]


# Connections


def _idle_connections(seconds: float) -> None:
    """Two brokers of ours under the same load on one connection; one of them holds many more that do nothing."""
    _allow_open_files()
    rows = []
    with brokers(OURS, OURS) as peers:
        crowded = peers[1]
        for peer in peers:
            drive_count(peer.port, frames.send(BODY), 1, 64, 10_000)
        before = crowded.memory("RssAnon")
        with _held_connections(crowded) as sockets:
            each = (crowded.memory("RssAnon") - before) / len(sockets) / 1e3
            contest = Contest(peers, seconds, [[(frames.TOPIC, frames.QUEUE)]] * 2)
            for window in IDLE_WINDOWS:
                results = contest.run(f"1 × {window}", [frames.send(BODY)] * 2, 1, window)
                rows += [
                    (f"1 × {window}", held, f"{result.rate:,.0f}", result.p50, result.p99, result.cpu, ratio)
                    for held, result, ratio in (
                        ("0", results[0], ""),
                        (f"{len(sockets):,}", results[1], results[1].cpu / results[0].cpu),
                    )
                ]
            closed = sum(map(_closed, sockets))
            notes = [f"an idle connection holds {each:.1f} KB without mapped files.", *contest.notes()]
            if closed:
                notes.append(f"the broker closed {closed:,} of the idle connections meanwhile.")
    columns = ("load", "idle connections", "messages/s", "p50 ms", "p99 ms", "CPU µs", "ratio")
    show(title(f"Messages of {BODY} B beside idle connections, ours", seconds), columns, rows, notes)


def _allow_open_files() -> None:
    """For us and for the brokers that we start."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def _held_connections(peer: Peer) -> Iterator[list[socket.socket]]:
    """Connections that sent one message each, as a sign that they are served, and stay open."""
    request = frames.send(BODY)
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(IDLE):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", peer.port), frames.ASK_SECONDS))
            sock.sendall(request)
            assert sock.recv(65536), "the broker closed a connection"
            sock.setblocking(False)  # `_closed` looks and does not wait
            sockets.append(sock)
        progress(f"{IDLE:,} connections opened in {time.perf_counter() - began:.1f} s")
        time.sleep(SETTLE_SECONDS)
        yield sockets


def _closed(sock: socket.socket) -> bool:
    """Whether the other side closed it; there is nothing to read otherwise."""
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
