"""Our client in one process on one core, against our broker and Apache's, beside other Python clients.

A client is pinned to the first core and the broker to the others, so that a rate is what one core can do. CPU is that
of the client's process, all its threads. Messages have 1 KB. What is consumed was stored before; every round begins
with a group of its own at the first message.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import wire

from . import broker_frames as frames
from . import client_peers
from .broker_peers import APACHE, OURS, brokers
from .broker_rounds import ROUNDS, title, warm_seconds
from .broker_table import progress, show
from .client_loads import BATCH, LARGE, LARGE_BODY, LINGER, STORED, TASKS, TOPIC, WINDOW
from .client_meter import CORE, WARM
from .client_peers import ROOT, Missing, Program
from .load import drive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .broker_peers import Peer

LOADS = {
    "send": f"send in {TASKS} tasks",
    "submit": f"submit, window {WINDOW:,}",
    "submit_linger": f"submit, linger {LINGER * 1000:g} ms",
    "send_batch": f"send_batch of {BATCH}",
    "consume": "push consume",
    "poll": "PullConsumer iteration",
    "sync_send": "sync send, 1 thread",
    "sync_send_8": "sync send, 8 threads",
}
QUEUES = 4
CONSUMED_PER_SECOND = 240_000  # more than any of them does, so that there is enough to consume
PATIENCE = 180.0
MIB = 1 << 20


class Round(NamedTuple):
    rate: float
    cpu: float  # µs per message


def main(seconds: float) -> None:
    programs, notes = [client_peers.ours()], []
    for peer_of in (client_peers.cpp, client_peers.pure):
        try:
            programs.append(peer_of())
        except Missing as exc:
            notes.append(f"{peer_of.__name__}: not measured: {exc}")
    with brokers(OURS, APACHE) as peers:
        for peer in peers:
            with wire.Connection(peer.address) as connection:
                for topic in (TOPIC, STORED, LARGE):
                    wire.create_topic(connection, topic, QUEUES)
        drive(peers[1].port, frames.send(1024), 4, 64, warm_seconds(seconds))
        stored = int(seconds * (1 + WARM) * CONSUMED_PER_SECOND)
        for peer in peers:
            _keep_off_the_first_core(peer)
            progress(f"storing {stored:,} messages at {peer.make}")
            _run(programs[0], "fill", peer, stored)
        rows: dict[str, list[Round]] = {}
        for load, text in LOADS.items():
            for program in programs:
                if program.loads and load not in program.loads:
                    continue
                try:
                    rows[f"{text}: {program.name}"] = _measured(program, load, peers, seconds)
                except RuntimeError as exc:
                    notes.append(f"{text}: {program.name}: {exc}")
        show(
            title("Clients, 1 KB, one core", seconds),
            ("load", "our broker/s", "CPU µs", "Apache/s", "CPU µs"),
            [(name, f"{a.rate:,.0f}", a.cpu, f"{b.rate:,.0f}", b.cpu) for name, (a, b) in rows.items()],
            notes,
        )
        _show_ratios(rows, programs)
        _memory(programs[0], peers[0], min(seconds, 5.0))


def _measured(program: Program, load: str, peers: Sequence[Peer], seconds: float) -> list[Round]:
    """The medians at each broker."""
    results: list[list[Round]] = [[] for _ in peers]
    for _ in range(ROUNDS):
        for peer, rounds in zip(peers, results, strict=True):
            reported = _run(program, load, peer, seconds)
            rounds.append(Round(reported["rate"], reported["cpu"]))
            progress(
                f"{LOADS[load]}: {program.name} at {peer.make}: {reported['rate']:,.0f}/s, {reported['cpu']:.1f} µs"
            )
    return [Round(*map(statistics.median, zip(*rounds, strict=True))) for rounds in results]


def _run(program: Program, load: str, peer: Peer, number: float) -> dict[str, float]:
    """What a program reports of one load. RuntimeError with its last words if it reports nothing."""
    command = program.command(load, peer.namesrv, number)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=program.environment(), capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"at {peer.make}: no end within {PATIENCE:g} s") from None
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            report: dict[str, float] = json.loads(line)
            return report
    said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    raise RuntimeError(f"at {peer.make}: ended with {done.returncode}: {said[:300]}")


def _keep_off_the_first_core(peer: Peer) -> None:
    """All threads that the broker has; those that they start inherit it."""
    others = os.sched_getaffinity(0) - {CORE}
    if others:
        for task in Path(f"/proc/{peer.process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), others)


def _show_ratios(rows: dict[str, list[Round]], programs: Sequence[Program]) -> None:
    """Ours beside each peer at each broker, as rates and as what a message costs."""
    ratios = []
    for load, text in LOADS.items():
        mine = rows.get(f"{text}: {programs[0].name}")
        for program in programs[1:]:
            theirs = rows.get(f"{text}: {program.name}")
            if mine and theirs and (not program.loads or load in program.loads):
                pairs = zip(mine, theirs, strict=True)
                cells = [cell for a, b in pairs for cell in (a.rate / b.rate, b.cpu / a.cpu)]
                ratios.append((f"{text}: ours to {program.name}", *cells))
    if ratios:
        columns = ("load", "our broker, rate", "per CPU second", "Apache, rate", "per CPU second")
        show("How many times as much ours does, in the same time and with the same CPU", columns, ratios)


# Memory


def _memory(program: Program, peer: Peer, seconds: float) -> None:
    """How much a process grows while nothing goes on, and how much its settings allow to be held."""
    rows = []
    for load, text, allowed in (
        ("stalled_broker", f"broker stopped: window {WINDOW * 10:,}, bodies of 1 KB", WINDOW * 10 * 1024),
        ("stalled_broker_large", "broker stopped: window_bytes 20 MiB, bodies of 100 KB", 20 * MIB),
    ):
        with _stopped_once_ready(program, load, peer, seconds) as report:
            held = "the next one waits" if report["waited"] else "the window is not full: too short"
            detail = f"{report['under way']:,} under way, {held}"
            rows.append((text, allowed / MIB, report["grown"] / MIB, detail))
    for load, text, allowed in (
        ("stalled_handler", f"handlers stuck: max_cached 1,000, {QUEUES} queues of 1 KB", QUEUES * 1000 * 1024),
        ("stalled_handler_large", f"handlers stuck: max_cached_mib 5, {QUEUES} queues of {LARGE_BODY >> 10} KB",
         QUEUES * 5 * MIB),
    ):  # fmt: skip
        report = _run(program, load, peer, seconds)
        rows.append((text, allowed / MIB, report["grown"] / MIB, f"{report['handlers']:,} handlers"))
    show(
        f"Memory while others do nothing, {seconds:g} s: bodies that the settings let it hold, and how RssAnon grew",
        ("what", "allowed MiB", "grown MiB", "then"),
        rows,
    )


@contextlib.contextmanager
def _stopped_once_ready(program: Program, load: str, peer: Peer, seconds: float) -> Iterator[dict[str, float]]:
    """Stop the broker while a load runs; it goes on, and the load ends, when this does."""
    process = subprocess.Popen(
        program.command(load, peer.namesrv, seconds),
        cwd=ROOT,
        env=program.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{load}: not ready")
        os.kill(peer.process.pid, signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()
        yield json.loads(process.stdout.readline())
        os.kill(peer.process.pid, signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait(PATIENCE)
    finally:
        os.kill(peer.process.pid, signal.SIGCONT)
        process.kill()
        process.communicate()
