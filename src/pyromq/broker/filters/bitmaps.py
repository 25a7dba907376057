"""Filter bitmaps: which groups want a message, computed once when it is stored (docs/spec/broker.md 7.4).

With `enableCalcFilterBitMap` and `enableConsumeQueueExt`, a message of a topic that groups filter by SQL92 is tested by
the filter of each of them, and the bits of those that select it lie beside its queue entry. A pull can then skip a
message without reading it. That costs every send one test per group, and pays off where a topic has many groups
that each want little; it is off by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.filter.bloom import mask_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.store.queues.consume_queue_ext import Bitmap

    from ..config import LiveConfig
    from .consumer_filters import FilterData, Filters


class FilterBits:
    """Makes the bitmaps of a broker. What a topic needs is computed once and kept until a filter changes."""

    def __init__(self, filters: Filters, live: LiveConfig) -> None:
        self._filters = filters
        self._live = live
        self._kept: dict[str, Bitmap | None] = {}
        self._kept_for = -1

    def of_topic(self, topic: str) -> Bitmap | None:
        """A function that makes the bitmap of a message of `topic`; None if the topic needs none."""
        if not self._live.config.calc_filter_bitmap:
            return None
        if self._kept_for != self._filters.changes:
            self._kept_for = self._filters.changes
            self._kept.clear()
        try:
            return self._kept[topic]
        except KeyError:
            known = self._filters.of_topic(topic)
            made = self._kept[topic] = _bitmap(known, self._filters.bloom.bits // 8) if known else None
            return made


def _bitmap(filters: Sequence[FilterData], size: int) -> Bitmap:
    tests = [(data.selection[1], mask_of(data.positions)) for data in filters]

    def bitmap(record: memoryview) -> bytes:
        bits = 0
        for match, mask in tests:
            if match is None or match(record):
                bits |= mask
        return bits.to_bytes(size, "little")

    return bitmap
