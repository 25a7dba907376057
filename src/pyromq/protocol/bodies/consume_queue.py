"""Entries of a consume queue, for diagnosis (321)."""

from __future__ import annotations

from .base import I32, I64, Body, written
from .heartbeat import SubscriptionData  # noqa: TC001 - msgspec resolves annotations at run time


class ConsumeQueueData(Body, frozen=True, kw_only=True):
    """One entry. The others of its members are for entries with a bitmap, and `eval` says whether that one matches."""

    bit_map: str | None = None
    eval: bool = written(False)
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: I64 = written(0)
    physic_size: I32 = written(0)
    tags_code: I64 = written(0)


class QueryConsumeQueueResponseBody(Body, frozen=True, kw_only=True):
    """321. `filter_data` is JSON as text, or a sentence; it and the subscription belong to the given group."""

    filter_data: str | None = None
    max_queue_index: I64 = written(0)
    min_queue_index: I64 = written(0)
    queue_data: list[ConsumeQueueData] = written([])
    subscription_data: SubscriptionData | None = None
