"""Pulls by SQL92: 1 KB messages of which one in ten is selected, from the middle of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop import wire

from pyromq.protocol.codes import RequestCode
from pyromq.protocol.record import decode_records

from . import broker_frames, features_frames
from .broker_rounds import Contest, title, warm_seconds
from .broker_table import progress, show
from .load import drive, drive_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .broker_peers import Peer

EXPRESSION = "a > 5 AND b IN ('x','y')"
# Of twenty messages two match; of the others half fail by the number and half by the text.
LOT = [*((7, "x"), (9, "y")), *[(number, "x") for number in range(6)], *[(3, "y")] * 3, *[(8, "z")] * 9]
TOPIC, BODY = "SqlTest", 1024
STORED = 50_000
OFFSET = STORED // 2
PULLED, SHARE = 32, 10
CONNECTIONS, WINDOW = 4, 8


def run(peers: Sequence[Peer], seconds: float) -> None:
    pull = features_frames.pull_by_sql(TOPIC, OFFSET, PULLED, EXPRESSION)
    sends = [features_frames.send(TOPIC, BODY, f"a\x01{number}\x02b\x01{text}") for number, text in _spread(LOT)]
    for peer in peers:
        with wire.Connection(peer.address) as connection:
            connection.ask(RequestCode.UPDATE_BROKER_CONFIG, b"enablePropertyFilter=true")
        features_frames.create_topic(peer, TOPIC)
        # One at a time on one connection, so that they lie in the order of the lot.
        drive_count(peer.port, sends, 1, 64, STORED)
        features_frames.wait_until_stored(peer, TOPIC, STORED, 30.0)
        _check(peer, pull)
    drive(peers[1].port, pull, CONNECTIONS, WINDOW, warm_seconds(seconds))
    contest = Contest(peers, seconds)
    ours, theirs = contest.run("SQL92", [pull] * 2, CONNECTIONS, WINDOW, per_reply=PULLED)
    per_second = [SHARE * 1e6 / each.cpu for each in (ours, theirs)]
    show(
        title(f"Pulls by `{EXPRESSION}`, {BODY} B, one message in {SHARE} selected", seconds),
        (
            *("load", "selected/s", "Apache", "ratio", "p99 ms", "Apache"),
            *("looked at per broker CPU second", "Apache", "ratio"),
        ),
        [
            (
                f"{CONNECTIONS} × {WINDOW}, {PULLED} a pull",
                *(f"{ours.rate:,.0f}", f"{theirs.rate:,.0f}", ours.rate / theirs.rate, ours.p99, theirs.p99),
                *(f"{per_second[0]:,.0f}", f"{per_second[1]:,.0f}", per_second[0] / per_second[1]),
            )
        ],
        contest.notes(),
    )


def _spread(lot: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The same in an order in which those that match are far apart."""
    return [lot[at] for at in (0, *range(2, 11), 1, *range(11, len(lot)))]


def _check(peer: Peer, pull: bytes) -> None:
    """Every pull of the run is this one, so what it brings need be looked at only once."""
    reply = broker_frames.ask(peer.port, pull)
    assert reply.code == 0, f"{peer.make} answered a pull with {reply.code}: {reply.remark}"
    assert isinstance(reply.body, bytes | memoryview), f"{peer.make} answered a pull without a body"
    found = [(record.find_property("a"), record.find_property("b")) for record in decode_records(reply.body)]
    assert found.count(("7", "x")) == found.count(("9", "y")) == PULLED // 2, f"{peer.make} selected {found}"
    examined = int((reply.ext or {})["nextBeginOffset"]) - OFFSET
    assert abs(examined - PULLED * SHARE) < 2 * SHARE, f"{peer.make} looked at {examined} messages"
    progress(f"{peer.make} looks at {examined} messages and answers with {len(found)}")
