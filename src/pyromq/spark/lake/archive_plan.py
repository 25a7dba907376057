"""What one step of an archive takes, decided without IO: from where to where in each queue, and what is gone.

The table says where each queue continues, the broker what it has. Between the two there are three cases. The usual
one: the table's position lies within the queue, and the step takes what follows. The broker deleted messages before
they were archived: the archive goes on at the broker's minimum, and the commit that does so records the gap, so that
the loss is part of the table for good. And the queue ends before the table's position: its topic was deleted and
created again, or a broker lost messages that it had already handed out. New messages then have offsets that the table
already has; taking them would double offsets, waiting until the queue is long enough would leave messages out. So the
topic is refused until somebody archives it under another name. Other topics go on.

A topic that was created again may also have outgrown its table before anybody looked. Then its first messages, which
the table should have, are younger than the table's last commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError

from ..source.offsets import place
from ..source.planning import FIRST_GUESS, QueueRange, admit
from .table import Gap, Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from pyromq.protocol.message_queue import MessageQueue


# How far the clocks of brokers and archives may be apart.
CLOCKS_DIFFER = timedelta(minutes=10)


class TopicRecreated(PyroMQError):
    """A queue ends before what the table has of it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to read, how the positions move when it is committed, and what was gone before it began."""

    ranges: tuple[QueueRange, ...] = ()
    moves: tuple[Move, ...] = ()
    gaps: tuple[Gap, ...] = ()
    lag: int = 0  # messages in the broker that the table does not have, those of this step among them

    @property
    def rows(self) -> int:
        """How many messages the ranges have."""
        return sum(map(len, self.ranges))


def next_step(
    positions: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, tuple[int, int]],
    now: datetime,
    *,
    limit: float = float("inf"),
    size: Callable[[MessageQueue], float] = lambda queue: FIRST_GUESS,
) -> Step:
    """The step that follows `positions`, at most `limit` bytes of it. Queues that are not in `bounds` wait.

    A queue that the table does not know starts at the broker's minimum: what a broker deleted before anybody wanted to
    archive the topic is no gap. Raises TopicRecreated.
    """
    starts, gaps = {}, []
    for queue, (minimum, maximum) in bounds.items():
        position = positions.get(queue)
        if position is None:
            starts[queue] = minimum
            continue
        if position > maximum:
            raise TopicRecreated(
                f"{place(queue)} ends at {maximum}, but the table has messages up to {position}: the topic was created "
                "again, or its broker lost messages; archive it under another name, with an alias"
            )
        if position < minimum:
            gaps.append(Gap(queue, position, minimum, now))
        starts[queue] = max(position, minimum)
    maxima = {queue: maximum for queue, (_, maximum) in bounds.items()}
    ends = admit(starts, maxima, limit, size)
    # A new queue is noted even if it is empty: from then on the table tells what was lost in it.
    moves = tuple(
        Move(queue, before, ends[queue])
        for queue in sorted(bounds)
        if (before := positions.get(queue, starts[queue])) != ends[queue] or queue not in positions
    )
    ranges = tuple(
        QueueRange(queue, starts[queue], ends[queue]) for queue in sorted(bounds) if starts[queue] < ends[queue]
    )
    return Step(ranges, moves, tuple(gaps), sum(maxima[queue] - starts[queue] for queue in bounds))


def check_same(
    positions: Mapping[MessageQueue, int], stored: Mapping[MessageQueue, tuple[int, datetime]], committed: datetime
) -> None:
    """Raise TopicRecreated if a message that the table should have was stored after the table's last commit.

    `stored` has an offset of each queue, and when the message there was stored, by the clock of its broker.
    """
    for queue, (offset, time) in sorted(stored.items()):
        if offset < positions.get(queue, 0) and time > committed + CLOCKS_DIFFER:
            raise TopicRecreated(
                f"{place(queue)} has message {offset} of {time:%Y-%m-%d %H:%M:%S}, but the table, last committed at "
                f"{committed:%Y-%m-%d %H:%M:%S}, has messages up to {positions[queue]}: the topic was created again; "
                "archive it under another name, with an alias"
            )


def missing(ranges: Iterable[QueueRange], runs: Iterable[QueueRange], now: datetime) -> list[Gap]:
    """What tasks did not find of `ranges`, given the runs of offsets that they found. Raises ValueError for doubles."""
    found: dict[MessageQueue, list[QueueRange]] = {}
    for run in runs:
        found.setdefault(run.queue, []).append(run)
    gaps = []
    for each in ranges:
        at = each.start
        for run in sorted(found.pop(each.queue, []), key=lambda run: run.start):
            if run.start < at or run.end > each.end:
                raise ValueError(f"{place(each.queue)}: {run.start} to {run.end} does not follow {at}")
            if run.start > at:
                gaps.append(Gap(each.queue, at, run.start, now))
            at = run.end
        if at < each.end:
            gaps.append(Gap(each.queue, at, each.end, now))
    for queue in found:
        raise ValueError(f"{place(queue)} was not asked for")
    return gaps


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When a topic is archived: few large files rather than many small ones, but never too late.

    Every `every` seconds, if there is `worth` a file by then; else when that is so, at the latest after `max_lag`. A
    backlog of a whole step does not wait.
    """

    every: float = 300.0
    max_lag: float = 900.0
    worth: int = 128 << 20
    step: int = 4 << 30

    def is_due(self, waited: float, backlog: float) -> bool:
        """Whether to archive `backlog` bytes, the last time being `waited` seconds ago."""
        if backlog <= 0:
            return False
        return waited >= self.max_lag or backlog >= self.step or (waited >= self.every and backlog >= self.worth)
