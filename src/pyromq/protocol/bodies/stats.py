"""Offsets of queues and groups (202, 208, 303, 317), and a broker's counters (315)."""

from __future__ import annotations

from ..message_queue import MessageQueue  # noqa: TC001 - msgspec resolves annotations at run time
from .base import I64, Body, written


class TopicOffset(Body, frozen=True, kw_only=True):
    """The ends of one queue. The time is that of its last message, 0 without one, -1 when the log lost it."""

    last_update_timestamp: I64 = written(0)
    max_offset: I64 = written(0)
    min_offset: I64 = written(0)


class TopicStatsTable(Body, frozen=True, kw_only=True):
    """202. `topic_put_tps` is of 5.5."""

    offset_table: dict[MessageQueue, TopicOffset] = written({})
    topic_put_tps: float | None = None


class OffsetWrapper(Body, frozen=True, kw_only=True):
    """A group's progress in one queue. `pull_offset` is 5.x."""

    broker_offset: I64 = written(0)
    consumer_offset: I64 = written(0)
    last_timestamp: I64 = written(0)
    pull_offset: I64 = 0


class ConsumeStats(Body, frozen=True, kw_only=True):
    """208"""

    consume_tps: float = written(0.0)
    offset_table: dict[MessageQueue, OffsetWrapper] = written({})


class ConsumeStatsList(Body, frozen=True, kw_only=True):
    """317: per group one object, in it per topic one entry. `total_inflight_diff` is of 5.5."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = written([])
    total_diff: I64 = written(0)
    total_inflight_diff: I64 = 0


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """The times of one queue: of its first and last message, and of the one that a group consumed last; -1 for none.

    Each is there a second time as text, `yyyy-MM-dd#HH:mm:ss:SSS` in the broker's time zone. `delay_time` is how long
    the next message has been waiting.
    """

    consume_time_stamp: I64 = written(-1)
    consume_time_stamp_str: str | None = None
    delay_time: I64 = written(0)
    max_time_stamp: I64 = written(-1)
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue
    min_time_stamp: I64 = written(-1)
    min_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body, frozen=True):
    """303"""

    consume_time_span_set: list[QueueTimeSpan] = written([])


class BrokerStatsItem(Body, frozen=True, kw_only=True):
    """A counter over some time: how much it grew, by how much per second, and by how much with each call."""

    avgpt: float = written(0.0)
    sum: I64 = written(0)
    tps: float = written(0.0)


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """315: a counter over the last minute, hour and day."""

    stats_day: BrokerStatsItem = written(BrokerStatsItem())
    stats_hour: BrokerStatsItem = written(BrokerStatsItem())
    stats_minute: BrokerStatsItem = written(BrokerStatsItem())
