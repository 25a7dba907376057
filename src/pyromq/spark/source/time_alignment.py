"""How far a limited micro-batch goes in each queue, so that all queues are at the same time.

A query with windows takes a message for late if one that is much younger came before it. A batch that took its share of
each queue by number alone would make messages late that came in time: of a queue with little in it the batch takes all,
up to today, and of another it takes the first minute of yesterday. So messages are taken in the order of their
store times, over all queues.

First by number, which is right if queues are filled evenly. What two messages beside each cut say about their times
decides whether that will do. If not, the time is searched for up to which there are as many messages as the batch may
take. Store times closer than `TOLERANCE` are equal here: a batch of messages is stored at once, and the
order in which queues get theirs means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .planning import admit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyromq.protocol.message_queue import MessageQueue

TOLERANCE = 1000  # ms
_ROUNDS = 24  # of questions about times, at most: some weeks, halved until they are a second
_GUESSED = 3  # rounds that guess the time instead of halving what is left


class StoreTimes(Protocol):
    """Asks brokers when messages were stored, in ms."""

    async def beside(self, cuts: Mapping[MessageQueue, int]) -> dict[MessageQueue, tuple[int | None, int | None]]:
        """For each queue, when the last message before this offset was stored, and the first from there on."""

    async def reached(self, queues: Collection[MessageQueue], time: int) -> dict[MessageQueue, int]:
        """About how far each queue was at this time."""


async def align(
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    limit: float,
    times: StoreTimes,
    cost: Callable[[MessageQueue], float] = lambda queue: 1.0,
) -> dict[MessageQueue, int]:
    """How far a micro-batch goes in each queue if its total cost, messages or bytes, is limited to `limit`."""
    cuts = admit(starts, ends, limit, cost)
    behind = [queue for queue in ends if ends[queue] > starts[queue]]
    if len(behind) < 2 or all(cuts[queue] == ends[queue] for queue in behind):
        return cuts
    beside = await times.beside({queue: cuts[queue] for queue in behind})
    taken = [before for queue, (before, _) in beside.items() if before is not None and cuts[queue] > starts[queue]]
    left = [after for queue, (_, after) in beside.items() if after is not None and cuts[queue] < ends[queue]]
    if not taken or not left or max(taken) - min(left) <= TOLERANCE:
        return cuts

    def total(offsets: Mapping[MessageQueue, int]) -> float:
        return sum((offsets[queue] - starts[queue]) * cost(queue) for queue in behind)

    # Up to `low` there are too few messages, up to `high` too many.
    low, high = min(left), max(taken) + 1
    reached = await times.reached(behind, low)
    lows = {queue: min(max(reached[queue], starts[queue]), cuts[queue]) for queue in behind}
    reached = await times.reached(behind, high)
    highs = {queue: max(min(reached[queue], ends[queue]), cuts[queue]) for queue in behind}
    for number in range(_ROUNDS):
        few, many = total(lows), total(highs)
        if high - low <= TOLERANCE or many <= limit or few >= limit:
            break
        # Where it would be if messages came evenly.
        share = min(max((limit - few) / (many - few), 0.02), 0.98) if number < _GUESSED else 0.5
        at = min(max(low + int((high - low) * share), low + 1), high - 1)
        reached = await times.reached([queue for queue in behind if lows[queue] < highs[queue]], at)
        found = {queue: min(max(reached.get(queue, 0), lows[queue]), highs[queue]) for queue in behind}
        if total(found) <= limit:
            low, lows = at, found
        else:
            high, highs = at, found
    rest = limit - total(lows)
    if rest >= min(map(cost, behind)) or lows == {queue: starts[queue] for queue in behind}:
        lows = admit(lows, highs, rest, cost)
    return {queue: lows.get(queue, starts[queue]) for queue in ends}
