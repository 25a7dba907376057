"""Throughput: how many messages came and went since the start, how fast, and how long storing them took.

Every cluster overview shows these figures (docs/spec/broker.md 12.2).
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import deque
from enum import Enum
from itertools import accumulate, pairwise
from typing import NamedTuple

_SAMPLES = 601  # seconds kept, for a rate over ten minutes
_WINDOWS = (10_000, 60_000, 600_000)
_MINUTE = 60_000

# Upper bounds in milliseconds of the buckets: fine where storing is fast.
_STEPS = ((0.1, 10), (1, 19), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS = [round(bound, 1) for bound in accumulate(step for step, count in _STEPS for _ in range(count))]
# The coarser ranges that RocketMQ prints, each with its upper bound.
_RANGES = {
    "[<=0ms]": 1,
    "[0~10ms]": 10,
    "[10~50ms]": 50,
    "[50~100ms]": 100,
    "[100~200ms]": 200,
    "[200~500ms]": 500,
    "[500ms~1s]": 1000,
    "[1~2s]": 2000,
    "[2~3s]": 3000,
    "[3~4s]": 4000,
    "[4~5s]": 5000,
    "[5~10s]": 10_000,
}
_BEYOND = "[10s~]"


class Rate(Enum):
    """What has a rate."""

    PUT = "puts"
    FOUND = "found"
    MISSED = "missed"
    TRANSFERRED = "transferred"


class _Sample(NamedTuple):
    time: int
    puts: int
    found: int
    missed: int
    transferred: int


class Throughput:
    """Sums since the start, all of them readable. Times are epoch milliseconds, durations milliseconds."""

    __slots__ = (
        "_day",
        "_minute_end",
        "_samples",
        "_times",
        "_times_of_last_minute",
        "found",
        "get_total_this_morning",
        "get_total_yesterday_morning",
        "missed",
        "put_bytes",
        "put_failures",
        "put_total_this_morning",
        "put_total_yesterday_morning",
        "puts",
        "slowest_get",
        "slowest_put",
        "started",
        "transferred",
    )

    def __init__(self, now: int) -> None:
        self.started = now
        self.puts = 0  # messages stored, and not
        self.put_bytes = 0
        self.put_failures = 0
        self.found = 0  # pulls that found something, and not
        self.missed = 0
        self.transferred = 0  # messages pulled
        self.slowest_put = 0.0
        self.slowest_get = 0.0
        # What `puts` and `transferred` were at the last two midnights.
        self.put_total_this_morning = self.put_total_yesterday_morning = 0
        self.get_total_this_morning = self.get_total_yesterday_morning = 0
        self._day = _day(now)
        self._samples = deque([_Sample(now, 0, 0, 0, 0)], _SAMPLES)
        self._minute_end = now + _MINUTE
        self._times = [0] * (len(_BOUNDS) + 1)
        self._times_of_last_minute = self._times.copy()

    # Counting

    def stored(self, count: int, size: int, duration: float) -> None:
        """One write stored `count` messages of `size` bytes in this time."""
        self.puts += count
        self.put_bytes += size
        self._times[bisect_right(_BOUNDS, duration)] += count
        if duration > self.slowest_put:
            self.slowest_put = duration

    def refused(self, count: int = 1) -> None:
        """The store refused these messages."""
        self.put_failures += count

    def pulled(self, count: int, duration: float = 0.0) -> None:
        """A pull found `count` messages, or none."""
        if count:
            self.found += 1
            self.transferred += count
        else:
            self.missed += 1
        if duration > self.slowest_get:
            self.slowest_get = duration

    # Sampling

    def sample(self, now: int) -> None:
        """To be called every second."""
        self._samples.append(_Sample(now, self.puts, self.found, self.missed, self.transferred))
        if not self._minute_end - _MINUTE <= now < self._minute_end:
            self._minute_end = now + _MINUTE
            self._times, self._times_of_last_minute = [0] * len(self._times), self._times
        day = _day(now)
        if day > self._day:
            self.put_total_yesterday_morning, self.put_total_this_morning = self.put_total_this_morning, self.puts
            self.get_total_yesterday_morning, self.get_total_this_morning = (
                self.get_total_this_morning,
                self.transferred,
            )
        self._day = day

    # Reading

    def rates(self, *wanted: Rate) -> str:
        """Per second over the last ten seconds, minute and ten minutes; several kinds are added up.

        Until the broker has run that long, the rates cover the time it has run.
        """
        return " ".join(str(round(sum(self._rate(rate, window) for rate in wanted), 2)) for window in _WINDOWS)

    def _rate(self, rate: Rate, window: int) -> float:
        last = self._samples[-1]
        first = next((sample for sample in reversed(self._samples) if last.time - sample.time >= window), None)
        if first is None:
            first = self._samples[0]
        grown: int = getattr(last, rate.value) - getattr(first, rate.value)
        return grown * 1000 / (last.time - first.time) if last.time > first.time else 0.0

    def put_times(self) -> str:
        """How many messages took how long to be stored, as RocketMQ prints it: in this minute and the one before."""
        sums = [0, *accumulate(self._recent_times())]
        ends = [0, *(bisect_left(_BOUNDS, bound) + 1 for bound in _RANGES.values()), len(_BOUNDS) + 1]
        counts = [sums[end] - sums[start] for start, end in pairwise(ends)]
        return " ".join(f"{name}:{count}" for name, count in zip([*_RANGES, _BEYOND], counts, strict=True))

    def _recent_times(self) -> list[int]:
        return [now + before for now, before in zip(self._times, self._times_of_last_minute, strict=True)]

    def put_time(self, share: float) -> float:
        """The time within which this share of the last two minutes' messages was stored."""
        times = self._recent_times()
        wanted = share * sum(times)
        if not wanted:
            return 0.0
        passed, low = 0, 0.0
        for count, high in zip(times, _BOUNDS, strict=False):
            if count and passed + count >= wanted:
                return low + (high - low) * (wanted - passed) / count
            passed, low = passed + count, high
        return _BOUNDS[-1]


def _day(now: int) -> tuple[int, ...]:
    return time.localtime(now // 1000)[:3]
