"""A million messages that wait for hours: what they cost a broker that has other things to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from . import broker_frames, features_frames
from .broker_rounds import Contest, title, too_short, warm_seconds
from .broker_table import progress, show
from .load import drive, drive_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .broker_peers import Peer
    from .broker_rounds import Round

PENDING = 1_000_000
TRIED = 100  # a trial does a hundredth of that
TOPIC, BODY = "PendingTest", 128
KINDS = {"delays of 2 h": "DELAY\x0118", "timers of a day": "TIMER_DELAY_SEC\x0186400"}
CONNECTIONS, WINDOW = 4, 64
SETTLE_SECONDS = 3.0


class State(NamedTuple):
    """Of one broker, with so much waiting."""

    memory: float  # MB, without mapped files
    idle: float  # percent of a core while nobody asks for anything
    sends: Round


def run(peers: Sequence[Peer], seconds: float) -> None:
    count = PENDING // TRIED if too_short(seconds) else PENDING
    for peer in peers:
        drive_count(peer.port, broker_frames.send(BODY), 1, 1, 1)  # makes the topic
        features_frames.create_topic(peer, TOPIC)
    drive(peers[1].port, broker_frames.send(BODY), CONNECTIONS, WINDOW, warm_seconds(seconds) / 2)
    contest = Contest(peers, seconds, [[(broker_frames.TOPIC, broker_frames.QUEUE)]] * 2)
    states = [_look(peers, contest, "nothing", seconds)]
    for kind, properties in KINDS.items():
        for peer in peers:
            measured = drive_count(peer.port, features_frames.send(TOPIC, BODY, properties), CONNECTIONS, WINDOW, count)
            progress(f"{peer.make} took {count:,} {kind} at {measured.rate:,.0f}/s")
        states.append(_look(peers, contest, kind, seconds))
    loads = ("nothing", *(f"{'and ' if number else ''}{count:,} {kind}" for number, kind in enumerate(KINDS)))
    rows = [_row(load, state, states[0]) for load, state in zip(loads, states, strict=True)]
    show(
        title(f"Messages of {BODY} B that wait, and sends of {BODY} B beside them", seconds),
        (
            *("waiting", "MB", "Apache", "idle CPU %", "Apache"),
            *("sends/s", "of before", "Apache", "of before", "CPU µs of a send", "of before", "Apache", "of before"),
        ),
        rows,
        contest.notes(),
    )


def _look(peers: Sequence[Peer], contest: Contest, kind: str, seconds: float) -> list[State]:
    """All brokers as they are now: first at rest, then under the same load in turn."""
    time.sleep(SETTLE_SECONDS)
    memories = [peer.memory("RssAnon") / 1e6 for peer in peers]
    before, began = [peer.cpu_seconds() for peer in peers], time.perf_counter()
    time.sleep(2 * seconds)
    took = time.perf_counter() - began
    idle = [100 * (peer.cpu_seconds() - cpu) / took for peer, cpu in zip(peers, before, strict=True)]
    progress(f"{kind} waiting: {memories[0]:.0f} and {memories[1]:.0f} MB, idle {idle[0]:.1f} and {idle[1]:.1f} %")
    rounds = contest.run(f"sends beside {kind}", [broker_frames.send(BODY)] * 2, CONNECTIONS, WINDOW)
    return [State(*each) for each in zip(memories, idle, rounds, strict=True)]


def _row(load: str, now: Sequence[State], first: Sequence[State]) -> tuple[object, ...]:
    (ours, theirs), (ours_first, theirs_first) = now, first
    cells: list[object] = [load, ours.memory, theirs.memory, ours.idle, theirs.idle]
    for state, begin in ((ours, ours_first), (theirs, theirs_first)):
        cells += [f"{state.sends.rate:,.0f}", state.sends.rate / begin.sends.rate]
    for state, begin in ((ours, ours_first), (theirs, theirs_first)):
        cells += [state.sends.cpu, state.sends.cpu / begin.sends.cpu]
    return tuple(cells)
