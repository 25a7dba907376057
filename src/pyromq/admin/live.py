"""Live rates: topics and the groups that read them, computed from two or more samples of offsets.

    pulse = Pulse()
    while True:
        pulse.add(await look(admin))
        print(pulse.rows())

Brokers count too, but only by the minute; offsets tell what came and went since the last sample.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import brokers_in
from pyromq.client.admin.fan_out import fan_out
from pyromq.client.admin.progress import progress_of_groups
from pyromq.protocol.names import is_system_group

from .topic_kinds import TopicKind, names_of_servers, topic_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.fan_out import Missing
    from pyromq.protocol.bodies import ConsumeStatsList
    from pyromq.protocol.message_queue import MessageQueue

# Members commit every five seconds: over a shorter time the rate of a group jumps.
WINDOW = 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """Offsets at one moment: for each topic the sum of its queues' ends, for each group the sum of its offsets."""

    at: float
    ends: Mapping[str, int]
    done: Mapping[tuple[str, str], int]
    lags: Mapping[tuple[str, str], int]
    brokers: int = 0
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A topic and one of its groups, None if nobody reads it. Rates are None until the second sample."""

    topic: str
    group: str | None
    in_tps: float | None
    out_tps: float | None
    lag: int | None
    lag_growth: float | None


async def look(admin: AdminClient, *, system: bool = False) -> Look:
    """Take a sample: one or two requests per broker, and one for each topic that no group reads."""
    info = await admin.brokers.cluster_info()
    brokers = brokers_in(info)
    servers = names_of_servers(info)
    configs = await fan_out(brokers, admin.topics.configs)
    stats = await fan_out({name: brokers[name] for name in configs.some()}, admin.brokers.consume_stats)
    topics = {
        topic
        for table in configs.results.values()
        for topic in table
        if system or topic_kind(topic, servers) is TopicKind.NORMAL
    }
    queues, done, lags = sums(stats.results, topics, system=system)
    others = await fan_out(topics - {queue.topic for queue in queues}, admin.topics.stats)
    ends = {topic: sum(offset.max_offset for offset in found.values()) for topic, found in others.results.items()}
    for queue, end in queues.items():
        ends[queue.topic] = ends.get(queue.topic, 0) + end
    return Look(time.monotonic(), ends, done, lags, len(brokers), configs.missing + stats.missing)


def sums(
    stats: Mapping[str, ConsumeStatsList], topics: set[str], *, system: bool = False
) -> tuple[dict[MessageQueue, int], dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """From the brokers' reports on groups: where queues end, how far groups are, and how far behind."""
    queues: dict[MessageQueue, int] = {}
    done: dict[tuple[str, str], int] = {}
    lags: dict[tuple[str, str], int] = {}
    for group, progress in progress_of_groups(stats.values()).items():
        if is_system_group(group) and not system:
            continue
        for row in progress.rows:
            if row.queue.topic in topics:
                key = (row.queue.topic, group)
                queues[row.queue] = max(row.broker_offset, queues.get(row.queue, 0))
                done[key] = done.get(key, 0) + row.consumer_offset
                lags[key] = lags.get(key, 0) + row.lag
    return queues, done, lags


class Pulse:
    """The samples of the last ten seconds or so, and the rates between them."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._looks: deque[Look] = deque()

    def add(self, latest: Look) -> None:
        self._looks.append(latest)
        while len(self._looks) > 2 and self._looks[1].at <= latest.at - self._window:
            self._looks.popleft()

    def rows(self) -> list[LiveRow]:
        """By topic and group. One that appeared after the first sample has no rates yet."""
        first, last = self._looks[0], self._looks[-1]
        seconds = last.at - first.at

        def rate(before: int | None, after: int) -> float | None:
            return None if before is None or seconds <= 0 else (after - before) / seconds

        rows = []
        for topic, end in sorted(last.ends.items()):
            groups = sorted(group for name, group in last.done if name == topic)
            came = rate(first.ends.get(topic), end)
            if not groups:
                rows.append(LiveRow(topic, None, came, None, None, None))
            for group in groups:
                key = (topic, group)
                rows.append(
                    LiveRow(
                        topic,
                        group,
                        came,
                        rate(first.done.get(key), last.done[key]),
                        last.lags[key],
                        rate(first.lags.get(key), last.lags[key]),
                    )
                )
        return rows

    def summary(self) -> str:
        last = self._looks[-1]
        groups = {group for _, group in last.done}
        return f"{last.brokers} brokers, {len(last.ends)} topics, {len(groups)} groups, lag {sum(last.lags.values())}"
