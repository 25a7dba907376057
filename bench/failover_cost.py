"""What controller mode costs: a pair under a controller, all of whose members must have a message, beside a plain
SYNC_MASTER with a slave."""

from __future__ import annotations

import contextlib
import statistics
from typing import TYPE_CHECKING

from tests.interop.failover_group import group_under
from tests.interop.peers import OURS

from . import broker_frames as frames
from .broker_peers import cpu_seconds, scratch
from .broker_rounds import title
from .broker_table import progress, show
from .ha_pairs import BODY, groups, rounds
from .load import drive, drive_steadily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONNECTIONS, WINDOW = 4, 64
LOADS = ((4, 64), (64, 1))
FILE = 1 << 30


class Pair:
    """A pair to be loaded: where its master listens, and whose CPU counts."""

    def __init__(self, name: str, port: int, cpu: Callable[[], float]) -> None:
        self.name, self.port, self.cpu = name, port, cpu


def main(seconds: float) -> None:
    with _both() as pairs:
        for pair in pairs:
            drive(pair.port, frames.send(BODY), CONNECTIONS, WINDOW, seconds)
        half = min(_most(pairs, seconds)) / 2
        _costs(pairs, half, seconds)


@contextlib.contextmanager
def _both() -> Iterator[list[Pair]]:
    with (
        scratch() as home,
        groups("SYNC_MASTER", [(OURS, True)]) as [plain],
        plain.turn(),
        group_under(OURS, home) as switched,
    ):
        first = switched.add(OURS, mappedFileSizeCommitLog=FILE)
        switched.add(OURS, mappedFileSizeCommitLog=FILE)
        switched.create_topic(frames.TOPIC)
        yield [
            Pair("SYNC_MASTER", plain.master.port, plain.master.cpu_seconds),
            Pair("controller mode", first.port, lambda: cpu_seconds(first.process.pid)),
        ]


def _most(pairs: Sequence[Pair], seconds: float) -> list[float]:
    """Prints what each takes at full load; gives what each took of the first load."""
    rows, rates = [], []
    for connections, window in LOADS:
        measured: list[list[tuple[float, float, float]]] = [[] for _ in pairs]
        for _ in range(rounds(seconds)):
            for pair, found in zip(pairs, measured, strict=True):
                load = drive(pair.port, frames.send(BODY), connections, window, seconds)
                found.append((load.rate, load.p50, load.p99))
                progress(f"{connections} × {window}: {pair.name} {load.rate:,.0f}/s, p99 {load.p99:.2f} ms")
        medians = [tuple(map(statistics.median, zip(*found, strict=True))) for found in measured]
        rates.append([rate for rate, _, _ in medians])
        plain, switched = medians
        rows.append(
            (
                f"{connections} × {window}",
                *(f"{plain[0]:,.0f}", f"{switched[0]:,.0f}", switched[0] / plain[0]),
                *(plain[2], switched[2]),
            )
        )
    columns = ("load", "SYNC_MASTER/s", "controller mode/s", "ratio", "p99 ms", "controller mode")
    show(title(f"Sends of {BODY} B to a pair", seconds, rounds(seconds)), columns, rows)
    return rates[0]


def _costs(pairs: Sequence[Pair], rate: float, seconds: float) -> None:
    """At the same rate: a master that gets less of the machine does more at once, which makes a message cheaper."""
    costs: list[list[float]] = [[] for _ in pairs]
    for _ in range(rounds(seconds)):
        for pair, found in zip(pairs, costs, strict=True):
            before = pair.cpu()
            load, _ = drive_steadily(pair.port, frames.send(BODY), CONNECTIONS, rate, seconds, lambda: None)
            found.append((pair.cpu() - before) / load.count * 1e6)
            progress(f"cost: {pair.name} {found[-1]:.1f} µs at {rate:,.0f}/s")
    plain, switched = map(statistics.median, costs)
    columns = ("messages/s", "SYNC_MASTER µs", "controller mode µs", "ratio")
    what = "CPU of the master per message, at half of the most"
    show(title(what, seconds, rounds(seconds)), columns, [(f"{rate:,.0f}", plain, switched, switched / plain)])
