"""Pulls of messages that were just stored, ours next to Apache's: 32 messages of 1 KB from the middle of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.record import decode_records

from . import broker_frames as frames
from .broker_peers import APACHE, OURS, brokers
from .broker_rounds import COLUMNS, Contest, comparison, title, warm_seconds
from .broker_table import progress, show
from .load import drive, drive_count

if TYPE_CHECKING:
    from .broker_peers import Peer

TOPIC, QUEUE = "PullTest", 0
STORED, BODY = 50_000, 1024
OFFSET = STORED // 2
PULLED = 32
CONNECTIONS = 4
WINDOWS = (1, 8)


def main(seconds: float) -> None:
    rows = []
    pull = frames.pull(TOPIC, QUEUE, OFFSET, PULLED)
    with brokers(OURS, APACHE) as peers:
        for peer in peers:
            drive_count(peer.port, frames.send(BODY, topic=TOPIC, queue=QUEUE), 4, 64, STORED)
            _check(peer, pull)
        drive(peers[1].port, pull, CONNECTIONS, max(WINDOWS), warm_seconds(seconds))
        contest = Contest(peers, seconds)
        for window in WINDOWS:
            load = f"{CONNECTIONS} × {window}"
            ours, theirs = contest.run(load, [pull] * 2, CONNECTIONS, window, per_reply=PULLED)
            rows.append(comparison(load, ours, theirs))
        notes = contest.notes()
    what = f"Pulls of {PULLED} × {BODY} B, messages/s, latency of a pull, CPU of a message"
    show(title(what, seconds), COLUMNS, rows, notes)


def _check(peer: Peer, pull: bytes) -> None:
    """Every pull of the run is this one, so what it brings need be looked at only once."""
    reply = frames.ask(peer.port, pull)
    assert reply.code == 0, f"{peer.make} answered a pull with {reply.code}: {reply.remark}"
    assert isinstance(reply.body, bytes | memoryview), f"{peer.make} answered a pull without a body"
    found = [(record.queue_offset, len(record.body)) for record in decode_records(reply.body)]
    wanted = [(OFFSET + number, BODY) for number in range(PULLED)]
    assert found == wanted, f"{peer.make} answered a pull with {len(found)} messages: {found}"
    progress(f"{peer.make} answers a pull with {len(found)} messages in {len(reply.body):,} bytes")
