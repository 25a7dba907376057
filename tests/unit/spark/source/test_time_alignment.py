"""How far a limited micro-batch goes, with queues whose messages have times given by a test."""

from __future__ import annotations

import bisect
import random
from typing import TYPE_CHECKING

import pytest

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.source.time_alignment import TOLERANCE, align

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HOUR = 3_600_000


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="b", queue_id=number)


class Queues:
    """The store times of each queue's messages, which begin at offset 0."""

    def __init__(self, *times: list[int]) -> None:
        self.times = {queue(number): each for number, each in enumerate(times)}
        self.asked = 0

    async def beside(self, cuts: Mapping[MessageQueue, int]) -> dict[MessageQueue, tuple[int | None, int | None]]:
        self.asked += 1
        return {
            each: (
                self.times[each][cut - 1] if cut else None,
                self.times[each][cut] if cut < len(self.times[each]) else None,
            )
            for each, cut in cuts.items()
        }

    async def reached(self, queues: Collection[MessageQueue], time: int) -> dict[MessageQueue, int]:
        self.asked += 1
        return {each: bisect.bisect_left(self.times[each], time) for each in queues}

    async def batches(self, limit: int) -> list[dict[MessageQueue, int]]:
        """The ends of all batches until everything is read."""
        ends = {each: len(times) for each, times in self.times.items()}
        found = [dict.fromkeys(ends, 0)]
        while found[-1] != ends:
            found.append(await align(found[-1], ends, limit, self))
            taken = sum(found[-1].values()) - sum(found[-2].values())
            assert 0 < taken <= limit
        return found[1:]

    def ahead(self, cuts: Mapping[MessageQueue, int]) -> int:
        """How much younger the youngest message read is than the oldest that is not."""
        read = [self.times[each][cut - 1] for each, cut in cuts.items() if cut]
        left = [self.times[each][cut] for each, cut in cuts.items() if cut < len(self.times[each])]
        return max(read) - min(left) if read and left else 0


async def test_queues_of_any_shape_stay_at_the_same_time():
    dice = random.Random(3)
    steady = [*range(0, HOUR, 500)]
    quiet, then_busy = [10, 20, HOUR // 2], [*range(HOUR - 60_000, HOUR, 20)]
    bursts = sorted(dice.choice((0, HOUR // 3, HOUR // 2)) + dice.randrange(2000) for _ in range(3000))
    queues = Queues(steady, quiet, then_busy, bursts, [], [HOUR])
    batches = await queues.batches(400)
    assert max(map(queues.ahead, batches)) <= 2 * TOLERANCE
    many = sum(map(len, queues.times.values()))
    assert len(batches) <= many / 400 * 1.1 + 1  # nearly full, all of them
    assert queues.asked <= 12 * len(batches)


async def test_what_was_stored_at_the_same_time_is_shared_by_number():
    """Rows dealt out to queues in large batches: the first of them is not read to its end before the others."""
    queues = Queues(*([number * 7] * 2500 for number in range(4)))
    for cuts in await queues.batches(2000):
        assert len({*cuts.values()}) == 1


async def test_even_queues_cost_one_question():
    queues = Queues(*([*range(number, HOUR, 1000)] for number in range(4)))
    await align(dict.fromkeys(queues.times, 0), dict.fromkeys(queues.times, 3600), 1000, queues)
    assert queues.asked == 1


@pytest.mark.parametrize("limit", [1, 3])
async def test_less_than_a_message_for_each_queue_still_moves(limit):
    queues = Queues(*([*range(number * HOUR, number * HOUR + 50)] for number in range(5)))
    batches = await queues.batches(limit)
    assert max(map(queues.ahead, batches)) <= TOLERANCE


async def test_a_limit_in_bytes_counts_what_messages_weigh():
    queues = Queues([*range(0, HOUR, 1000)], [*range(HOUR // 2, HOUR, 1000)])
    ends = {each: len(times) for each, times in queues.times.items()}
    weight = {queue(0): 100.0, queue(1): 1000.0}
    cuts = await align(dict.fromkeys(ends, 0), ends, 200_000, queues, weight.__getitem__)
    assert queues.ahead(cuts) <= TOLERANCE
    assert 195_000 < sum(cuts[each] * weight[each] for each in cuts) <= 200_000
