"""Our broker next to Apache RocketMQ 5.5.0 on this machine, under the same load driver with ready-made frames."""

from __future__ import annotations

from pyromq.protocol.command import SerializeType

from . import broker_frames as frames
from . import broker_pulls
from .broker_peers import APACHE, OURS, brokers
from .broker_rounds import COLUMNS, Contest, comparison, title, warm_seconds
from .broker_table import show
from .load import drive, drive_count

# Connections, requests in flight on each, bytes of body.
Load = tuple[int, int, int]
LOADS: dict[str, tuple[Load, ...]] = {
    "ASYNC_FLUSH": ((4, 64, 1024), (4, 64, 128), (64, 1, 1024), (64, 1, 128), (1, 1, 128)),
    "SYNC_FLUSH": ((4, 64, 1024), (64, 1, 1024), (1, 1, 1024)),
}


def main(seconds: float) -> None:
    for flush, loads in LOADS.items():
        _sends(flush, loads, seconds)
    broker_pulls.main(seconds)


def _sends(flush: str, loads: tuple[Load, ...], seconds: float) -> None:
    rows = []
    with brokers(OURS, APACHE, flush=flush) as peers:
        for peer in peers:
            drive_count(peer.port, frames.send(128), 1, 1, 1)  # makes the topic
        drive(peers[1].port, frames.send(1024), 4, 64, warm_seconds(seconds))
        contest = Contest(peers, seconds, [[(frames.TOPIC, frames.QUEUE)]] * 2)
        for connections, window, body in loads:
            for serialize in SerializeType:
                # Real clients send JSON; what binary headers change shows where nothing else waits.
                if serialize is SerializeType.ROCKETMQ and window == 1:
                    continue
                load = f"{connections} × {window}, {body} B, {'JSON' if serialize is SerializeType.JSON else 'binary'}"
                ours, theirs = contest.run(load, [frames.send(body, serialize)] * 2, connections, window)
                rows.append(comparison(load, ours, theirs))
        notes = contest.notes()
    show(title(f"Sends, {flush}", seconds), COLUMNS, rows, notes)
