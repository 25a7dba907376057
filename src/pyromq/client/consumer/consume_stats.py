"""Rates of pulling and consuming by topic, as running info (307) reports them.

Counters only grow and are sampled every ten seconds; a rate is the difference between now and the oldest sample, a
minute ago, or an hour for failures. A minute without messages means a rate of 0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from pyromq.protocol.bodies import ConsumeStatus

SAMPLE_EVERY = 10.0

_MINUTE = 60.0
_HOUR = 3600.0
# The hour is sampled coarsely: no one needs its seconds.
_SAMPLES_PER_HOUR_STEP = 30


@dataclass(slots=True)
class Counters:
    """What happened to one topic since the start; times in seconds."""

    at: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pull_time: float = 0.0
    ok: int = 0
    failed: int = 0
    consumed: int = 0  # handler calls
    consume_time: float = 0.0


class TopicStats:
    """The counters of one topic. `now` is any clock in seconds that does not jump."""

    __slots__ = ("_hour", "_minute", "_samples", "counters")

    def __init__(self, now: float) -> None:
        self.counters = Counters()
        first = Counters(at=now)
        self._minute: deque[Counters] = deque([first], maxlen=int(_MINUTE / SAMPLE_EVERY) + 1)
        hour_steps = int(_HOUR / SAMPLE_EVERY) // _SAMPLES_PER_HOUR_STEP
        self._hour: deque[Counters] = deque([first], maxlen=hour_steps + 1)
        self._samples = 0

    def pulled(self, messages: int, seconds: float) -> None:
        counters = self.counters
        counters.pulls += 1
        counters.pulled += messages
        counters.pull_time += seconds

    def consumed(self, ok: int, failed: int, seconds: float) -> None:
        """A handler took `seconds`; so many messages succeeded and failed."""
        counters = self.counters
        counters.ok += ok
        counters.failed += failed
        counters.consumed += 1
        counters.consume_time += seconds

    def sample(self, now: float) -> None:
        """Call this every SAMPLE_EVERY seconds."""
        state = replace(self.counters, at=now)
        self._minute.append(state)
        self._samples += 1
        if self._samples % _SAMPLES_PER_HOUR_STEP == 0:
            self._hour.append(state)

    def status(self, now: float) -> ConsumeStatus:
        """Rates over about a minute, failures over about an hour; times in ms, as in RocketMQ."""
        counters, then = self.counters, self._minute[0]
        seconds = max(now - then.at, 1.0)
        return ConsumeStatus(
            consume_failed_msgs=counters.failed - self._hour[0].failed,
            consume_failed_tps=(counters.failed - then.failed) / seconds,
            consume_ok_tps=(counters.ok - then.ok) / seconds,
            consume_rt=_mean_ms(counters.consume_time - then.consume_time, counters.consumed - then.consumed),
            pull_rt=_mean_ms(counters.pull_time - then.pull_time, counters.pulls - then.pulls),
            pull_tps=(counters.pulled - then.pulled) / seconds,
        )


class ConsumeStats:
    """The stats of all topics of a consumer, created on first use."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicStats] = {}

    def topic(self, topic: str, now: float) -> TopicStats:
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = TopicStats(now)
        return stats

    def sample(self, now: float) -> None:
        for stats in self._topics.values():
            stats.sample(now)

    def status(self, topics: list[str], now: float) -> dict[str, ConsumeStatus]:
        return {topic: self.topic(topic, now).status(now) for topic in topics}


def _mean_ms(seconds: float, times: int) -> float:
    return seconds * 1000 / times if times else 0.0
