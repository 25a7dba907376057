"""Counts of what happens seldom enough to be counted one by one: dead letters, ends of transactions, delays."""

from __future__ import annotations

from typing import TypeVar

from pyromq.metrics.broker_metrics import DELAY_LATENCY, FINISH_LATENCY
from pyromq.metrics.model import Distribution

K = TypeVar("K")


class EventCounts:
    """Totals since the start, all of them readable. Where nothing else is said, they are by topic."""

    def __init__(self) -> None:
        self.dead_letters: dict[tuple[str, str], int] = {}  # by group and the topic that the message came from
        self.commits: dict[str, int] = {}
        self.rollbacks: dict[str, int] = {}
        self.finishes: dict[str, Distribution] = {}
        self.timers_in: dict[str, int] = {}
        self.timers_out: dict[str, int] = {}
        self.delays: dict[str, Distribution] = {}

    def dead_letter(self, group: str, topic: str) -> None:
        _more(self.dead_letters, (group, topic))

    def committed(self, topic: str, millis: float) -> None:
        """A half message was committed so long after it was made."""
        _more(self.commits, topic)
        if topic not in self.finishes:
            self.finishes[topic] = Distribution(FINISH_LATENCY.buckets)
        self.finishes[topic].add(max(millis, 0.0))

    def rolled_back(self, topic: str) -> None:
        _more(self.rollbacks, topic)

    def timer_entered(self, topic: str) -> None:
        _more(self.timers_in, topic)

    def timer_delivered(self, topic: str, seconds: float) -> None:
        """A message was delivered so long after it was stored."""
        _more(self.timers_out, topic)
        if topic not in self.delays:
            self.delays[topic] = Distribution(DELAY_LATENCY.buckets)
        self.delays[topic].add(max(seconds, 0.0))

    def forget_topic(self, topic: str) -> None:
        for counts in (self.commits, self.rollbacks, self.timers_in, self.timers_out):
            counts.pop(topic, None)
        for distributions in (self.finishes, self.delays):
            distributions.pop(topic, None)
        for key in [key for key in self.dead_letters if key[1] == topic]:
            del self.dead_letters[key]

    def forget_group(self, group: str) -> None:
        for key in [key for key in self.dead_letters if key[0] == group]:
            del self.dead_letters[key]


def _more(table: dict[K, int], key: K) -> None:
    table[key] = table.get(key, 0) + 1
