"""Ordered pops: a queue gives a group nothing more until its messages are acknowledged or their time is over.

There is no checkpoint. The group's offset in the queue stays at the first unacknowledged message, and what
was popped from there on is remembered here, with how often it was popped before; `kept_files` keeps it in
consumerOrderInfo.json, as RocketMQ does. Decides only; times are epoch milliseconds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.protocol.bodies import ConsumerOrderInfoTable, OrderInfo

from .offsets import QueueOfGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

_SEPARATOR = "@"
_KEPT_MS = 24 * 3600 * 1000


class PopOrders:
    """The messages that groups hold from ordered queues. Each change sets `dirty`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._by_queue: dict[QueueOfGroup, OrderInfo] = {}
        self.dirty = False

    def __len__(self) -> int:
        return len(self._by_queue)

    def free_at(self, queue: QueueOfGroup, committed: int | None, attempt_id: str | None, now: int) -> int:
        """When the queue may give the group messages; `now` if it may already.

        The same attempt gets the same messages again: its answer was lost. And if the group's offset was reset
        meanwhile, what it holds no longer counts.
        """
        info = self._by_queue.get(queue)
        if info is None or not info.offsets or (attempt_id is not None and info.attempt_id == attempt_id):
            return now
        if committed != _next_offset(info):
            return now
        default = info.pop_time + (info.invisible_time or 0)
        changed = info.visible_at or {}
        return max((now, *(changed.get(offset, default) for offset in _unacked(info))))

    def popped(
        self, queue: QueueOfGroup, offsets: Sequence[int], pop_time: int, invisible_time: int, attempt_id: str | None
    ) -> tuple[list[tuple[int, int]], int]:
        """The group now holds these messages; returns how often each was popped before, and the least of all."""
        before = self._by_queue.get(queue)
        counts: dict[int, int] = {}
        if before is not None:
            if before.attempt_id is not None and before.attempt_id == attempt_id:
                counts = dict(before.counts)
            else:
                again = set(_offsets(before)).intersection(offsets)
                counts = {offset: before.counts.get(offset, 0) + 1 for offset in sorted(again)}
        first = offsets[0]
        self._by_queue[queue] = OrderInfo(
            attempt_id=attempt_id,
            invisible_time=invisible_time,
            last_consume_timestamp=pop_time,
            offsets=[first, *(offset - first for offset in offsets[1:])],
            counts=counts,
            pop_time=pop_time,
        )
        self.dirty = True
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        return list(counts.items()), least

    def acked(self, queue: QueueOfGroup, offset: int, pop_time: int) -> int | None:
        """Take an ack; returns the offset to commit, or None if another member has the message by now.

        ValueError if it was never popped.
        """
        info = self._by_queue.get(queue)
        if info is None:
            return offset + 1
        if info.pop_time != pop_time:
            return None
        info = replace(info, acked=_signed(info.acked | 1 << _offsets(info).index(offset)))
        self._by_queue[queue] = info
        self.dirty = True
        return _next_offset(info)

    def change(self, queue: QueueOfGroup, offset: int, pop_time: int, visible_at: int) -> None:
        """Change when a message comes back, unless another member has it by now."""
        info = self._by_queue.get(queue)
        if info is not None and info.pop_time == pop_time and offset in _offsets(info):
            self._by_queue[queue] = replace(info, visible_at={**(info.visible_at or {}), offset: visible_at})
            self.dirty = True

    def forget_topic(self, topic: str) -> None:
        self._keep(lambda queue: queue.topic != topic)

    def forget_group(self, group: str) -> None:
        self._keep(lambda queue: queue.group != group)

    def clean(self, now: int) -> None:
        """Forget entries that were not used for a day."""
        self._keep(lambda queue: now - self._by_queue[queue].last_consume_timestamp <= _KEPT_MS)

    def _keep(self, wanted: Callable[[QueueOfGroup], bool]) -> None:
        kept = {queue: info for queue, info in self._by_queue.items() if wanted(queue)}
        if len(kept) < len(self._by_queue):
            self._by_queue = kept
            self.dirty = True

    # The file

    def snapshot(self) -> ConsumerOrderInfoTable:
        """A copy of the table that does not change, for another thread."""
        self.clean(self._clock())
        self.dirty = False  # cleaning alone does not cause another write
        table: dict[str, dict[int, OrderInfo]] = {}
        for queue, info in self._by_queue.items():
            table.setdefault(f"{queue.topic}{_SEPARATOR}{queue.group}", {})[queue.queue_id] = info
        return ConsumerOrderInfoTable(table=table)

    def load(self, saved: ConsumerOrderInfoTable) -> None:
        """Replace everything by what was saved."""
        self._by_queue = {}
        for name, queues in saved.table.items():
            topic, separator, group = name.partition(_SEPARATOR)
            if not separator:
                logger.warning("order of %r dropped: not a topic@group", name)
                continue
            for queue_id, info in queues.items():
                if len(info.offsets) <= 64:
                    self._by_queue[QueueOfGroup(group, topic, queue_id)] = info
        self.dirty = False


def _offsets(info: OrderInfo) -> list[int]:
    if not info.offsets:
        return []
    first = info.offsets[0]
    return [first, *(first + distance for distance in info.offsets[1:])]


def _unacked(info: OrderInfo) -> list[int]:
    return [offset for number, offset in enumerate(_offsets(info)) if not info.acked >> number & 1]


def _next_offset(info: OrderInfo) -> int:
    """The group's offset in the queue unless it is reset."""
    return min(_unacked(info), default=info.offsets[0] + (info.offsets[-1] if len(info.offsets) > 1 else 0) + 1)


def _signed(bits: int) -> int:
    """As Java's long."""
    return bits - 2**64 if bits >= 2**63 else bits
