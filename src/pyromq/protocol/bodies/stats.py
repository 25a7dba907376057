"""Where queues and groups stand (202, 208, 317)."""

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
    """How far a group is in one queue. `pull_offset` is of 5.x."""

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
