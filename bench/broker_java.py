"""The benchmark producer of Apache RocketMQ 5.5.0 itself, with its 64 threads, against our broker and Apache's.

It takes about as much CPU for a message as a broker does and shares the machine with it, so ratios come out smaller
here than with ready-made frames. It forces binary headers. Every ten seconds it prints the rate of the last ten; the
first of these lines, in which the producer itself was cold, does not count.
"""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import apache, wire
from tests.interop.peers import heap
from tests.interop.process import PeerFailed, Process, wait_until

from . import broker_frames as frames
from .broker_peers import APACHE, OURS, brokers, scratch
from .broker_rounds import ROUNDS, too_short, warm_seconds
from .broker_table import progress, show
from .load import drive

if TYPE_CHECKING:
    from pathlib import Path

    from .broker_peers import Peer

MAIN = "org.apache.rocketmq.example.benchmark.Producer"
TOPIC, QUEUES = "ProducerTest", 8  # BenchmarkTest, its default, is a system topic of 1,024 queues
THREADS = 64
BODIES = (128, 1024)
REPORTS = 2  # that count, of each round
REPORT_SECONDS = 10.0
START_SECONDS = 30.0
REPORT = re.compile(
    r"Send TPS: (?P<rate>\d+).*Max RT\(ms\): (?P<longest>\d+).*Average RT\(ms\): +(?P<average>[\d.]+)"
    r".*Send Failed: (?P<failed>\d+).*Response Failed: (?P<refused>\d+)"
)


class Report(NamedTuple):
    rate: float
    average: float  # ms
    failed: float  # since the producer was started
    cpu: float  # µs of the broker's CPU per message


def main(seconds: float) -> None:
    rows, notes = [], []
    reports = 1 if too_short(seconds) else REPORTS
    with brokers(OURS, APACHE) as peers, scratch() as home:
        for peer in peers:
            with wire.Connection(peer.address) as connection:
                wire.create_topic(connection, TOPIC, QUEUES)
        drive(peers[1].port, frames.send(1024), 4, 64, warm_seconds(seconds))
        for body in BODIES:
            results: list[list[Report]] = [[] for _ in peers]
            for _ in range(ROUNDS):
                for peer, rounds in zip(peers, results, strict=True):
                    rounds.append(_produce(peer, home, body, reports))
                    progress(f"{body} B: {peer.make} {rounds[-1].rate:,.0f}/s")
            ours, theirs = (Report(*map(statistics.median, zip(*rounds, strict=True))) for rounds in results)
            rows.append(
                (
                    f"{THREADS} threads, {body} B",
                    *(f"{ours.rate:,.0f}", f"{theirs.rate:,.0f}", ours.rate / theirs.rate),
                    *(ours.average, theirs.average),
                    *(ours.cpu, theirs.cpu, ours.cpu / theirs.cpu),
                )
            )
            for peer, rounds in zip(peers, results, strict=True):
                if failed := sum(each.failed for each in rounds):
                    notes.append(f"{body} B: {failed:,.0f} sends to {peer.make} failed.")
    tried = " (too short to conclude anything)" if too_short(seconds) else ""
    show(
        f"Official Java benchmark producer 5.5.0, ASYNC_FLUSH, median of {ROUNDS} interleaved rounds of "
        f"{reports * REPORT_SECONDS:g} s{tried}",
        ("load", "ours/s", "Apache/s", "ratio", "average ms", "Apache", "CPU µs", "Apache", "ratio"),
        rows,
        notes,
    )


def _produce(peer: Peer, home: Path, body: int, reports: int) -> Report:
    """One round: a producer that is started, warms itself, reports and is killed."""
    options = ["-n", peer.namesrv, "-t", TOPIC, "-w", str(THREADS), "-s", str(body)]
    process = Process(
        f"benchmark producer against {peer.make}",
        [*apache.java("5.5.0", home, (*heap("1g"), apache.silent(home))), MAIN, *options],
        log=home / "producer.out",
        env=apache.environment(home),
    )
    try:
        _wait_for_reports(process, 1)
        cpu, began = peer.cpu_seconds(), time.perf_counter()
        counted = _wait_for_reports(process, 1 + reports)[1:]
        cpu, took = peer.cpu_seconds() - cpu, time.perf_counter() - began
    finally:
        process.kill()
    rate = statistics.median(float(each["rate"]) for each in counted)
    average = statistics.median(float(each["average"]) for each in counted)
    failed = int(counted[-1]["failed"]) + int(counted[-1]["refused"])
    return Report(rate, average, failed, cpu / took / rate * 1e6 if rate else 0.0)


def _wait_for_reports(process: Process, count: int) -> list[re.Match[str]]:
    def found() -> list[re.Match[str]]:
        whole = process.output.rpartition("\n")[0]
        return list(REPORT.finditer(whole))

    try:
        wait_until(lambda: len(found()) >= count, START_SECONDS + REPORT_SECONDS * count, f"{process.name} reports")
    except PeerFailed as exc:
        raise PeerFailed(f"{exc}; it said\n{process.tail()}") from None
    return found()
