"""Statistics: what went in and out, by topic, queue and group, over the last minute, hour and day.

    item                                        key
    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE              topic
    QUEUE_PUT_NUMS, QUEUE_PUT_SIZE              topic@queueId
    GROUP_GET_NUMS, GROUP_GET_SIZE              topic@group
    QUEUE_GET_NUMS, QUEUE_GET_SIZE              topic@queueId@group
    GROUP_GET_LATENCY                           queueId@topic@group, or topic@group without details
    SNDBCK_PUT_NUMS                             topic@group
    BROKER_PUT_NUMS, BROKER_GET_NUMS            cluster

A counter only grows. Its value is noted every ten seconds, ten minutes and hour; a view shows how much it grew between
the oldest and the newest note kept (docs/spec/broker.md 13.2). The lag of groups, which RocketMQ
keeps as gauges that no request shows, comes from the offsets (`offsets/progress.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.bodies import BrokerStatsData, BrokerStatsItem

from .events import EventCounts
from .incoming import IncomingCounts
from .throughput import Throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

# Which parts of the keys are topics or groups; neither may contain an @. A shorter key has only the last parts.
_LAYOUTS = {
    TOPIC_PUT_NUMS: ("topic",),
    TOPIC_PUT_SIZE: ("topic",),
    QUEUE_PUT_NUMS: ("topic", "queue"),
    QUEUE_PUT_SIZE: ("topic", "queue"),
    GROUP_GET_NUMS: ("topic", "group"),
    GROUP_GET_SIZE: ("topic", "group"),
    QUEUE_GET_NUMS: ("topic", "queue", "group"),
    QUEUE_GET_SIZE: ("topic", "queue", "group"),
    GROUP_GET_LATENCY: ("queue", "topic", "group"),
    SNDBCK_PUT_NUMS: ("topic", "group"),
}

_SECOND = 1000
_MINUTE = 0  # of the three views

Note = tuple[int, int]


class Counter:
    """A sum, and how many calls added to it. `notes` are its past values for each view, the newest last."""

    __slots__ = ("calls", "notes", "value")

    def __init__(self) -> None:
        self.value = 0
        self.calls = 0
        self.notes: tuple[list[Note], list[Note], list[Note]] = ([], [], [])


class _Rounds:
    """When the counters were noted for one view; all are noted at the same times."""

    __slots__ = ("_due", "_kept", "_period", "times")

    def __init__(self, period: int, kept: int, now: int) -> None:
        self._period = period
        self._kept = kept
        self._due = now + period
        # At the start every counter was zero.
        self.times = [now]

    def is_due(self, now: int) -> bool:
        if now < self._due - self._period:  # the clock was set back
            self._due = now + self._period
        return now >= self._due

    def begin(self, now: int) -> None:
        self._due += ((now - self._due) // self._period + 1) * self._period
        self.times.append(now)
        del self.times[: -self._kept]

    def note(self, counter: Counter, notes: list[Note]) -> None:
        if not notes:
            notes.append((0, 0))
        value = counter.value
        # Most counters of a large broker are idle, and then share their notes.
        notes.append(notes[-1] if notes[-1][0] == value else (value, counter.calls))
        if len(notes) > self._kept:
            del notes[0]

    def view(self, notes: list[Note]) -> BrokerStatsItem:
        if not notes:
            return BrokerStatsItem()
        (value, calls), (last_value, last_calls) = notes[0], notes[-1]
        elapsed = self.times[-1] - self.times[-len(notes)]
        grown, called = last_value - value, last_calls - calls
        return BrokerStatsItem(
            sum=grown,
            tps=grown * 1000 / elapsed if elapsed > 0 else 0.0,
            avgpt=grown / called if called > 0 else 0.0,
        )


class Statistics:
    """All counters of a broker. A counter exists once something was added to it.

    `throughput` has the sums over all topics since the start. Times are epoch milliseconds.
    """

    def __init__(self, now: int) -> None:
        self.throughput = Throughput(now)
        self.incoming = IncomingCounts()
        self.events = EventCounts()
        # Called before each report, to add what was counted elsewhere.
        self.sources: list[Callable[[], None]] = []
        self._counters: dict[tuple[str, str], Counter] = {}
        self._rounds = (
            _Rounds(10 * _SECOND, 7, now),
            _Rounds(600 * _SECOND, 7, now),
            _Rounds(3600 * _SECOND, 25, now),
        )

    def take_sources(self) -> None:
        """Add what sources have counted, and forget them: others take their place."""
        for source in self.sources:
            source()
        self.sources.clear()

    def add(self, item: str, key: str, count: int = 1, calls: int = 1) -> None:
        # CPython 3.11: 0.13 µs; with a dict of dicts 0.18 µs.
        try:
            counter = self._counters[item, key]
        except KeyError:
            counter = self._counters[item, key] = Counter()
        counter.value += count
        counter.calls += calls

    def add_stored(self, cluster: str, topic: str, sizes: Sequence[int], kind: str) -> None:
        """Count stored messages of a topic, of these sizes and this type."""
        count = len(sizes)
        for size in sizes:
            self.incoming.note(topic, kind, size)
        self.add(TOPIC_PUT_NUMS, topic, count, count)
        self.add(TOPIC_PUT_SIZE, topic, sum(sizes), count)
        self.add(BROKER_PUT_NUMS, cluster, count, count)

    def add_latency(self, topic: str, queue_id: int, group: str, millis: int, *, detailed: bool) -> None:
        """Count how long it took to find messages for a group."""
        key = f"{queue_id}@{topic}@{group}" if detailed else f"{topic}@{group}"
        self.add(GROUP_GET_LATENCY, key, millis)

    def sample(self, now: int) -> None:
        """Call it every second. Ten thousand counters, every ten seconds, take 2 ms."""
        self.collect()
        self.throughput.sample(now)
        for which, rounds in enumerate(self._rounds):
            if rounds.is_due(now):
                rounds.begin(now)
                for counter in self._counters.values():
                    rounds.note(counter, counter.notes[which])

    def collect(self) -> None:
        """Add what was counted elsewhere."""
        for source in self.sources:
            source()

    def view(self, item: str, key: str) -> BrokerStatsData | None:
        """A counter over the last minute, hour and day; None if nothing was ever added to it."""
        self.collect()
        counter = self._counters.get((item, key))
        if counter is None:
            return None
        minute, hour, day = (rounds.view(notes) for rounds, notes in zip(self._rounds, counter.notes, strict=True))
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def totals(self, item: str) -> list[tuple[str, int]]:
        """All keys of an item, with what was added since the start."""
        return [(key, counter.value) for (kind, key), counter in self._counters.items() if kind == item]

    def tps(self, item: str, key: str) -> float:
        """What was added per second in the last minute."""
        counter = self._counters.get((item, key))
        return 0.0 if counter is None else self._rounds[_MINUTE].view(counter.notes[_MINUTE]).tps

    def forget_topic(self, topic: str) -> None:
        """Drop all counters of a deleted topic."""
        self.incoming.forget(topic)
        self.events.forget_topic(topic)
        self._forget("topic", topic)

    def forget_group(self, group: str) -> None:
        """Drop all counters of a deleted group."""
        self.events.forget_group(group)
        self._forget("group", group)

    def _forget(self, part: str, name: str) -> None:
        for item, key in [known for known in self._counters if name in known[1]]:
            parts = key.split("@")
            layout = _LAYOUTS.get(item, ())[-len(parts) :]
            if (part, name) in zip(layout, parts, strict=False):
                del self._counters[item, key]
