"""How many timers wait for each topic, as slaves of RocketMQ 5.x copy it (61). Nothing is counted until one asks."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING

from pyromq.protocol.bodies.timers import TimerMetric, TimerMetricsTable
from pyromq.store.tags import TimerKind

from ..topics import next_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from .delivery import TimerService


class TopicCounts:
    """Counts by topic. `clock` gives epoch milliseconds.

    Which topic an entry of the timer queue is for stands in its message, and is read once: four bytes per entry, from
    the first pending one on, are kept for the next time.
    """

    def __init__(self, timers: TimerService, clock: Callable[[], int]) -> None:
        self._timers = timers
        self._clock = clock
        self._turn = asyncio.Lock()
        self._names: dict[str, int] = {"": 0}
        self._start = 0  # the queue offset of the first of these
        self._numbers = array("i")
        self._table = TimerMetricsTable()

    async def table(self) -> TimerMetricsTable:
        """The counts now. A recall that waits counts as one less."""
        async with self._turn:
            await self._read()
            counts = self._count()
        before, now = self._table.timing_count, self._clock()
        if counts != {topic: metric.count for topic, metric in before.items()}:
            metrics = {
                topic: before[topic]
                if topic in before and before[topic].count == count
                else TimerMetric(count=count, time_stamp=now)
                for topic, count in counts.items()
            }
            version = next_version(self._table.data_version, now)
            self._table = TimerMetricsTable(data_version=version, timing_count=metrics)
        return self._table

    async def _read(self) -> None:
        """Read which topics new entries are for, with room for others in between."""
        timers, names, numbers = self._timers, self._names, self._numbers
        while (end := self._start + len(numbers)) < timers.followed:
            if end < timers.first_pending:
                self._start = timers.first_pending
                del numbers[:]
            else:
                numbers.extend([names.setdefault(topic, len(names)) for topic in timers.topics_from(end)])
            await asyncio.sleep(0)
        if (done := timers.first_pending - self._start) > 0:
            del numbers[:done]
            self._start += done

    def _count(self) -> dict[str, int]:
        import numpy as np  # which a start does not need

        offsets, kinds = self._timers.pending_entries()
        weights = np.where(kinds == TimerKind.RECALL, -1, 1)[offsets >= self._start]
        numbers = np.array(self._numbers, np.int32)[offsets[offsets >= self._start] - self._start]
        counts = np.bincount(numbers, weights, len(self._names))
        return {name: int(counts[number]) for name, number in self._names.items() if name and counts[number] > 0}
