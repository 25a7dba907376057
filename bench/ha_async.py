"""ASYNC_MASTER: what a slave costs its master, and how far behind the slave is at half load."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import wire
from tests.interop.process import PeerFailed

from . import broker_frames as frames
from .broker_rounds import GET_MAX_OFFSET, Contest, title, warm_seconds
from .broker_table import progress, show
from .ha_pairs import BODY, MAKES, QUEUES, TOPIC, groups, rounds
from .load import drive, drive_steadily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ha_pairs import Group

LOADS = ((4, 64), (64, 1))
CONNECTIONS = 4
PROBE_QUEUE = QUEUES - 1
PROBE_EVERY = 0.005  # seconds
STUCK = 10.0


class Delay(NamedTuple):
    """Milliseconds between the answer of the master and the slave's queue having the message."""

    p50: float
    p99: float
    rate: float  # of the load beside it


def main(seconds: float) -> None:
    makes = [(make, has_slave) for make in MAKES for has_slave in (False, True)]
    with groups("ASYNC_MASTER", makes) as found:
        for group in found[2:]:
            with group.turn():
                drive(group.master.port, frames.send(BODY), 4, 64, warm_seconds(seconds))
        most = _costs(found, seconds)
        _delays(found[1::2], most, seconds)


def _costs(found: Sequence[Group], seconds: float) -> list[float]:
    """Prints the costs; gives the most messages a second that each make took with a slave."""
    contest = Contest(
        [group.master for group in found],
        seconds,
        [[(TOPIC, frames.QUEUE)]] * len(found),
        rounds=rounds(seconds),
        turn=lambda number: found[number].turn(),
    )
    rows: list[tuple[object, ...]] = []
    rates: list[list[float]] = []
    for connections, window in LOADS:
        load = f"{connections} × {window}, {BODY} B"
        measured = contest.run(load, [frames.send(BODY)] * len(found), connections, window)
        rates.append([each.rate for each in measured[1::2]])
        for make, alone, followed in zip(MAKES, measured[::2], measured[1::2], strict=True):
            costs = alone.cpu, followed.cpu, followed.cpu / alone.cpu
            rows.append((f"{load}, {make}", *costs, f"{alone.rate:,.0f}", f"{followed.rate:,.0f}"))
    columns = ("load", "CPU µs alone", "with a slave", "ratio", "alone/s", "with a slave/s")
    what = "What a slave costs an ASYNC_MASTER: CPU of the master per message"
    show(title(what, seconds, rounds(seconds)), columns, rows, contest.notes())
    return rates[0]


def _delays(pairs: Sequence[Group], most: Sequence[float], seconds: float) -> None:
    found: list[list[Delay]] = [[] for _ in pairs]
    for _ in range(rounds(seconds)):
        for number, pair in enumerate(pairs):
            with pair.turn():
                delay = _delay(pair, most[number] / 2, seconds)
            found[number].append(delay)
            progress(f"delay: {pair.make} p50 {delay.p50:.2f} ms, p99 {delay.p99:.2f} ms at {delay.rate:,.0f}/s")
    rows = []
    for pair, delays in zip(pairs, found, strict=True):
        p50, p99, rate = map(statistics.median, zip(*delays, strict=True))
        memory = [f"{peer.memory(field) / 1e6:,.0f}" for peer in pair.peers for field in ("VmRSS", "RssAnon")]
        rows.append((pair.make, f"{rate:,.0f}", p50, p99, *memory))
    columns = ("", "messages/s", "p50 ms", "p99 ms", "master MB", "no mapped files", "slave MB", "no mapped files")
    what = f"Replication at half of the most that each took: from the answer to the slave's queue, {BODY} B, and memory"
    show(title(what, seconds, rounds(seconds)), columns, rows)


def _delay(pair: Group, rate: float, seconds: float) -> Delay:
    load, delays = drive_steadily(
        pair.master.port, frames.send(BODY), CONNECTIONS, rate, seconds + 1, lambda: _probe(pair, seconds)
    )
    delays.sort()
    return Delay(1000 * statistics.median(delays), 1000 * delays[len(delays) * 99 // 100], load.rate)


def _probe(pair: Group, seconds: float) -> list[float]:
    """Send a message now and then, and ask the slave until it has it: a question takes some tenths of a millisecond."""
    assert pair.slave is not None
    delays = []
    time.sleep(1.0)  # until the load is under way
    deadline = time.monotonic() + seconds
    with wire.Connection(pair.master.address) as master, wire.Connection(pair.slave.address) as slave:
        while time.monotonic() < deadline:
            offset = wire.send(master, TOPIC, PROBE_QUEUE, b"x" * BODY)
            answered = time.perf_counter()
            while int(slave.ask(GET_MAX_OFFSET, topic=TOPIC, queueId=PROBE_QUEUE).ext["offset"]) <= offset:
                if time.perf_counter() - answered > STUCK:
                    raise PeerFailed(f"the slave of {pair.make} is {STUCK:g} s behind")
            delays.append(time.perf_counter() - answered)
            time.sleep(PROBE_EVERY)
    return delays
