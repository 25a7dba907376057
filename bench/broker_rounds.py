"""Interleaved rounds of one load against several brokers, their medians, and the table that compares two of them."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import wire

from .broker_table import progress
from .load import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .broker_peers import Peer

    Frames = bytes | Sequence[bytes]
    Queues = Sequence[tuple[str, int]]  # topic and number

ROUNDS = 3
WARM_SECONDS = 30.0  # cold, the JVM does half
SHORT = 3.0  # rounds shorter than this only show that everything works
BUSY = 0.9
GET_MAX_OFFSET = 30
SETTLE_SECONDS = 10.0
COLUMNS = (
    *("load", "ours/s", "Apache/s", "ratio"),
    *("p50 ms", "Apache", "p99 ms", "Apache", "ratio"),
    *("CPU µs", "Apache", "ratio"),
)


class Round(NamedTuple):
    rate: float  # messages a second
    p50: float
    p99: float
    cpu: float  # µs of the broker's CPU per message
    busy: float  # the driver's own share of a core


def too_short(seconds: float) -> bool:
    """Whether rounds of so many seconds are a trial, for which less is warmed and stored."""
    return seconds < SHORT


def warm_seconds(seconds: float) -> float:
    return WARM_SECONDS * seconds / SHORT if too_short(seconds) else WARM_SECONDS


def title(what: str, seconds: float, rounds: int = ROUNDS) -> str:
    tried = " (too short to conclude anything)" if too_short(seconds) else ""
    return f"{what}, median of {rounds} interleaved rounds of {seconds:g} s{tried}"


def comparison(load: str, ours: Round, theirs: Round) -> tuple[object, ...]:
    """A row under COLUMNS."""
    return (
        load,
        *(f"{ours.rate:,.0f}", f"{theirs.rate:,.0f}", ours.rate / theirs.rate),
        *(ours.p50, theirs.p50, ours.p99, theirs.p99, ours.p99 / theirs.p99),
        *(ours.cpu, theirs.cpu, ours.cpu / theirs.cpu),
    )


class Contest:
    """Loads that several brokers get in turn, and what a reader must know of how that went.

    The driver counts answers, and an answer may be a refusal. So for sends, `queues` says where the messages of each
    broker go, and `notes` compares the answers with what lies there. `turn` is entered, with the number of the broker,
    for as long as one is measured.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        seconds: float,
        queues: Sequence[Queues] = (),
        *,
        rounds: int = ROUNDS,
        turn: Callable[[int], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        self._peers = peers
        self._seconds = seconds
        self._queues = queues
        self._rounds = rounds
        self._turn = turn
        self._stored = []
        for number, (peer, each) in enumerate(zip(peers, queues, strict=bool(queues))):
            with turn(number):
                self._stored.append(stored(peer.address, each))
        self._answered = [0] * len(peers)
        self._notes: list[str] = []

    def run(
        self, load: str, frames: Sequence[Frames], connections: int, window: int, *, per_reply: int = 1
    ) -> list[Round]:
        """The median of each broker under frames of its own; one reply is so many messages."""
        results: list[list[Round]] = [[] for _ in self._peers]
        for _ in range(self._rounds):
            for number, peer in enumerate(self._peers):
                with self._turn(number):
                    before = peer.cpu_seconds()
                    measured = drive(peer.port, frames[number], connections, window, self._seconds)
                    cpu = (peer.cpu_seconds() - before) / (measured.count * per_reply) * 1e6
                rate = measured.rate * per_reply
                self._answered[number] += measured.count
                results[number].append(Round(rate, measured.p50, measured.p99, cpu, measured.busy))
                progress(f"{load}: {peer.make} {rate:,.0f}/s, p99 {measured.p99:.2f} ms, {cpu:.1f} µs")
        medians = [Round(*map(statistics.median, zip(*rounds, strict=True))) for rounds in results]
        busy = max(each.busy for each in medians)
        if busy > BUSY:
            self._notes.append(f"{load}: the driver took {busy:.0%} of a core and may be what was measured.")
        return medians

    def notes(self) -> list[str]:
        """Loads whose driver had no time left, brokers that refused."""
        refused = []
        for number, queues in enumerate(self._queues):
            peer, answered = self._peers[number], self._answered[number]
            with self._turn(number):
                found = _settled(peer, queues) - self._stored[number]
            if found < answered:
                refused.append(f"{peer.make} stored {found:,} of the {answered:,} messages counted here.")
        return self._notes + refused


def _settled(peer: Peer, queues: Queues) -> int:
    """What queues hold once that grows no more: Apache's broker enters messages into queues behind the answer."""
    deadline = time.monotonic() + SETTLE_SECONDS
    total, last = stored(peer.address, queues), -1
    while total != last and time.monotonic() < deadline:
        time.sleep(0.5)
        total, last = stored(peer.address, queues), total
    return total


def stored(address: str, queues: Queues) -> int:
    """How many messages queues have got."""
    with wire.Connection(address) as connection:
        answers = [connection.ask(GET_MAX_OFFSET, topic=topic, queueId=queue) for topic, queue in queues]
    return sum(int(answer.ext["offset"]) for answer in answers)
