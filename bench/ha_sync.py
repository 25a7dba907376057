"""SYNC_MASTER with one slave: sends that are answered once both have the message, ours next to Apache's."""

from __future__ import annotations

from pyromq.protocol.command import SerializeType

from . import broker_frames as frames
from .broker_rounds import Contest, title
from .broker_table import show
from .ha_pairs import BODY, MAKES, TOPIC, groups, rounds, warm

# Connections, requests in flight on each, header.
LOADS = ((4, 64, SerializeType.JSON), (4, 64, SerializeType.ROCKETMQ), (64, 1, SerializeType.JSON))
COLUMNS = (
    *("load", "ours/s", "5.5.0/s", "ratio", "4.9.7/s", "ratio"),
    *("p50 ms", "5.5.0", "4.9.7", "p99 ms", "5.5.0", "ratio", "4.9.7", "ratio"),
    *("master CPU µs", "5.5.0", "4.9.7"),
)


def main(seconds: float) -> None:
    rows = []
    with groups("SYNC_MASTER", [(make, True) for make in MAKES]) as pairs:
        for pair in pairs:
            warm(pair, seconds)
        contest = Contest(
            [pair.master for pair in pairs],
            seconds,
            [[(TOPIC, frames.QUEUE)]] * len(pairs),
            rounds=rounds(seconds),
            turn=lambda number: pairs[number].turn(),
        )
        for connections, window, serialize in LOADS:
            load = f"{connections} × {window}, {BODY} B, {'JSON' if serialize is SerializeType.JSON else 'binary'}"
            ours, new, old = contest.run(load, [frames.send(BODY, serialize)] * 3, connections, window)
            rows.append(
                (
                    load,
                    *(f"{ours.rate:,.0f}", f"{new.rate:,.0f}", ours.rate / new.rate),
                    *(f"{old.rate:,.0f}", ours.rate / old.rate),
                    *(ours.p50, new.p50, old.p50),
                    *(ours.p99, new.p99, ours.p99 / new.p99, old.p99, ours.p99 / old.p99),
                    *(ours.cpu, new.cpu, old.cpu),
                )
            )
        notes = contest.notes()
    show(title("Sends to a SYNC_MASTER with a slave", seconds, rounds(seconds)), COLUMNS, rows, notes)
