"""A group's progress: one row per queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - part of what this module offers
from typing import TYPE_CHECKING

from .times import from_millis

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyromq.protocol.bodies import ConsumeStats, ConsumeStatsList
    from pyromq.protocol.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group in one queue. Both offsets are those of the next message: to write, to consume.

    `last_time` is the store time of the last consumed message, None if there is none or it is gone. `client_id` is the
    consumer of the queue, if requested and known. `pull_offset` is the next message to give to a consumer; those
    between it and `consumer_offset` are in flight.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_time: datetime | None = None
    client_id: str | None = None
    pull_offset: int = 0

    @property
    def lag(self) -> int:
        """How many messages the group lags behind. Negative if it is past the end, for example after a lost log."""
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        """How many messages consumers hold but have not acknowledged, according to the broker."""
        return self.pull_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group in all its queues, in order. `tps` is how many messages a second it gets now."""

    group: str
    tps: float
    rows: tuple[QueueProgress, ...]

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.rows)

    def of_topic(self, topic: str) -> tuple[QueueProgress, ...]:
        return tuple(row for row in self.rows if row.queue.topic == topic)


def progress_of(group: str, stats: Iterable[ConsumeStats], owners: Mapping[MessageQueue, str]) -> GroupProgress:
    """Combine the answers of several brokers."""
    rows = {}
    tps = 0.0
    for each in stats:
        tps += each.consume_tps
        for queue, offsets in each.offset_table.items():
            rows[queue] = QueueProgress(
                queue,
                offsets.broker_offset,
                offsets.consumer_offset,
                from_millis(offsets.last_timestamp),
                owners.get(queue),
                offsets.pull_offset,
            )
    ordered = sorted(rows, key=lambda queue: (queue.topic, queue))
    return GroupProgress(group, tps, tuple(rows[queue] for queue in ordered))


def progress_of_groups(found: Iterable[ConsumeStatsList]) -> dict[str, GroupProgress]:
    """The progress of all groups, combined from several brokers."""
    stats: dict[str, list[ConsumeStats]] = {}
    for of_broker in found:
        for table in of_broker.consume_stats_list:
            for group, several in table.items():
                stats.setdefault(group, []).extend(several)
    return {group: progress_of(group, several, {}) for group, several in stats.items()}
