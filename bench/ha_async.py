"""ASYNC_MASTER: what a slave costs its master, and how far behind the slave is at half load."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import wire
from tests.interop.process import PeerFailed

from pyromq.protocol.codes import RequestCode

from . import broker_frames as frames
from .broker_rounds import GET_MAX_OFFSET, Contest, title
from .broker_table import progress, show
from .ha_pairs import BODY, MAKES, PROBE_QUEUE, QUEUES, TOPIC, groups, rounds, warm
from .load import drive_steadily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ha_pairs import Group

CONNECTIONS, WINDOW = 4, 64
PROBE_EVERY = 0.005  # seconds
# The header of a probe, under the short names of a client.
PROBE: dict[str, object] = {
    "a": "probe",
    "b": TOPIC,
    "c": "TBW102",
    "d": QUEUES,
    "e": PROBE_QUEUE,
    "f": 0,
    "g": 1,
    "h": 0,
}
STUCK = 10.0


class Delay(NamedTuple):
    """Milliseconds between the answer of the master and the slave's queue having the message."""

    p50: float
    p99: float
    rate: float  # of the load beside it


def main(seconds: float) -> None:
    makes = [(make, has_slave) for make in MAKES for has_slave in (False, True)]
    with groups("ASYNC_MASTER", makes) as found:
        for group in found:
            warm(group, seconds)
        half = [rate / 2 for rate in _most(found, seconds)]
        _costs(found, half, seconds)
        _delays(found[1::2], half, seconds)


def _most(found: Sequence[Group], seconds: float) -> list[float]:
    """Prints what masters take at full load; gives what each make took with a slave."""
    contest = Contest(
        [group.master for group in found],
        seconds,
        [[(TOPIC, frames.QUEUE)]] * len(found),
        rounds=rounds(seconds),
        turn=lambda number: found[number].turn(),
    )
    measured = contest.run("full load", [frames.send(BODY)] * len(found), CONNECTIONS, WINDOW)
    rows = [
        (make, f"{alone.rate:,.0f}", f"{followed.rate:,.0f}", alone.p99, followed.p99)
        for make, alone, followed in zip(MAKES, measured[::2], measured[1::2], strict=True)
    ]
    what = f"Sends to an ASYNC_MASTER, {CONNECTIONS} × {WINDOW}, {BODY} B; a slave shares the two cores"
    columns = ("", "alone/s", "with a slave/s", "p99 ms alone", "with a slave")
    show(title(what, seconds, rounds(seconds)), columns, rows, contest.notes())
    return [each.rate for each in measured[1::2]]


def _costs(found: Sequence[Group], half: Sequence[float], seconds: float) -> None:
    """At the same rate with and without a slave: at full load a master that gets less of the machine does more at once,
    which makes a message cheaper and has nothing to do with slaves.
    """
    costs: list[list[float]] = [[] for _ in found]
    for _ in range(rounds(seconds)):
        for number, group in enumerate(found):
            with group.turn():
                costs[number].append(_cost(group, half[number // 2], seconds))
            with_slave = "with a slave" if group.slave else "alone"
            progress(f"cost: {group.make} {with_slave} {costs[number][-1]:.1f} µs at {half[number // 2]:,.0f}/s")
    medians = list(map(statistics.median, costs))
    rows = [
        (make, f"{rate:,.0f}", alone, followed, followed / alone)
        for make, rate, alone, followed in zip(MAKES, half, medians[::2], medians[1::2], strict=True)
    ]
    what = "What a slave costs an ASYNC_MASTER: CPU µs of the master per message, at half of the most with a slave"
    show(title(what, seconds, rounds(seconds)), ("", "messages/s", "alone", "with a slave", "ratio"), rows)


def _cost(group: Group, rate: float, seconds: float) -> float:
    before = group.master.cpu_seconds()
    load, _ = drive_steadily(group.master.port, frames.send(BODY), CONNECTIONS, rate, seconds, lambda: None)
    return (group.master.cpu_seconds() - before) / load.count * 1e6


def _delays(pairs: Sequence[Group], half: Sequence[float], seconds: float) -> None:
    found: list[list[Delay]] = [[] for _ in pairs]
    for _ in range(rounds(seconds)):
        for number, pair in enumerate(pairs):
            with pair.turn():
                delay = _delay(pair, half[number], seconds)
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
            answer = master.ask(RequestCode.SEND_MESSAGE_V2, b"x" * BODY, **PROBE)
            answered = time.perf_counter()
            if answer.code != 0:
                continue  # busy, for a moment
            offset = int(answer.ext["queueOffset"])
            while int(slave.ask(GET_MAX_OFFSET, topic=TOPIC, queueId=PROBE_QUEUE).ext["offset"]) <= offset:
                if time.perf_counter() - answered > STUCK:
                    raise PeerFailed(f"the slave of {pair.make} is {STUCK:g} s behind")
            delays.append(time.perf_counter() - answered)
            time.sleep(PROBE_EVERY)
    return delays
