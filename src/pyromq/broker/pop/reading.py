"""Takes messages for a pop: from which queues, in which order, and how far the group gets.

Everything here happens in one turn. A caller must either hand out what it took, or give it back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyromq.protocol.pop_handle import pop_retry_topic
from pyromq.protocol.record import OFFSET, QUEUE_OFFSET_AT
from pyromq.store import GetStatus

from .held_pops import ANY_QUEUE
from .offsets import QueueOfGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.protocol.headers import PopMessage
    from pyromq.store import GetResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..context import Context
    from ..filters.consumer_filters import Selection
    from ..topics import TopicTable
    from .offsets import PopOffsets
    from .orders import PopOrders

FROM_FIRST = 0  # initMode

# The group's offset is outside the queue, or a file is missing: the result says where to continue.
_ELSEWHERE = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.NO_MESSAGE_IN_QUEUE,
)
_PASSED = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)


@dataclass(frozen=True, slots=True)
class Part:
    """What was taken from one queue: `records`, at `offsets`. The read began at `start`."""

    queue: QueueOfGroup
    start: int
    offsets: list[int]
    records: list[memoryview]
    is_retry: bool


@dataclass(slots=True)
class Taken:
    """What a pop found. `rest` counts what queues still have; `passed` is set if some messages did not match.

    `free_at` is when the first of the ordered queues that hold back now may give something.
    """

    parts: list[Part] = field(default_factory=list)
    count: int = 0
    rest: int = 0
    passed: bool = False
    free_at: int | None = None


class PopReader:
    """Takes messages from queues, or only peeks at them."""

    def __init__(self, context: Context, topics: TopicTable, offsets: PopOffsets, orders: PopOrders) -> None:
        self._store = context.store
        self._topics = topics
        self._offsets = offsets
        self._orders = orders
        self._live = context.live

    def take(self, header: PopMessage, selection: Selection, now: int) -> Taken:
        """Take at most as many messages as `header` wants. StoreError if they cannot be read; nothing is taken then."""
        taken = Taken()
        try:
            for queue, is_retry in self._queues(header):
                self._take_from(queue, header, selection, now, taken, is_retry=is_retry)
        except BaseException:
            self.give_back(taken.parts)
            raise
        return taken

    def give_back(self, parts: list[Part]) -> None:
        for part in parts:
            self._offsets.give_back(part.queue, part.start)

    def peek(self, group: str, topic: str, queue_id: int, count: int) -> tuple[list[memoryview], int]:
        """The messages that a pop would take, at most `count`, and how many there are in all."""
        found: list[memoryview] = []
        rest = 0
        for queue, _ in self._all_queues(group, topic, queue_id, in_order=False):
            source = self._source(queue)
            if source is None:
                continue
            start = self._at(queue, source)
            rest += max(int(source.max_offset) - start, 0)
            if len(found) < count:
                found += self._read(queue, source, start, count - len(found), (None, None, None))[1].slices
        return found, rest

    def has_messages(
        self, group: str, topic: str, queue_id: int, now: int, *, order: bool, attempt: str | None
    ) -> bool:
        """Whether a pop would find something, judged without reading messages."""
        for queue, _ in self._all_queues(group, topic, queue_id, in_order=order):
            source = self._source(queue)
            if source is None or source.max_offset <= self._at(queue, source):
                continue
            if not order or self._orders.free_at(queue, self._offsets.get(queue), attempt, now) <= now:
                return True
        return False

    # Which queues

    def _queues(self, header: PopMessage) -> Iterator[tuple[QueueOfGroup, bool]]:
        return self._all_queues(header.consumer_group, header.topic, header.queue_id, in_order=header.order)

    def _all_queues(
        self, group: str, topic: str, queue_id: int, *, in_order: bool
    ) -> Iterator[tuple[QueueOfGroup, bool]]:
        """The queues to read, and whether each belongs to a retry topic: sometimes those come first, otherwise last.

        So neither retried nor new messages can starve the others.
        """
        retry_first = random.randrange(100) < self._live.config.pop_from_retry
        if retry_first and not in_order:
            yield from self._retry_queues(group, topic)
        if queue_id == ANY_QUEUE:
            yield from ((queue, False) for queue in self._queues_of(group, topic))
        else:
            yield QueueOfGroup(group, topic, queue_id), False
        if not retry_first and not in_order:
            yield from self._retry_queues(group, topic)

    def _retry_queues(self, group: str, topic: str) -> Iterator[tuple[QueueOfGroup, bool]]:
        config = self._live.config
        versions = (True, False) if config.retry_topic_v2 and config.retry_topic_v1_too else (config.retry_topic_v2,)
        for v2 in versions:
            yield from ((queue, True) for queue in self._queues_of(group, pop_retry_topic(topic, group, v2=v2)))

    def _queues_of(self, group: str, topic: str) -> Iterator[QueueOfGroup]:
        config = self._topics.get(topic)
        count = 0 if config is None else config.read_queue_nums
        if count > 0:
            first = random.randrange(count)
            for number in range(count):
                yield QueueOfGroup(group, topic, (first + number) % count)

    def _source(self, queue: QueueOfGroup) -> ConsumeQueue | None:
        return self._store.queues.find(queue.topic, queue.queue_id)

    # Reading one

    def _take_from(
        self, queue: QueueOfGroup, header: PopMessage, selection: Selection, now: int, taken: Taken, *, is_retry: bool
    ) -> None:
        source = self._source(queue)
        if source is None:
            return
        start = self._offsets.get(queue)
        if start is None:
            start = self._first(source, from_first=is_retry or header.init_mode == FROM_FIRST)
            self._offsets.commit(queue, start)
        if header.order:
            free_at = self._orders.free_at(queue, start, header.attempt_id, now)
            if free_at > now:
                taken.free_at = free_at if taken.free_at is None else min(free_at, taken.free_at)
                return
        if taken.count >= header.max_msg_nums:
            taken.rest += max(int(source.max_offset) - start, 0)
            return
        start, found = self._read(queue, source, start, header.max_msg_nums - taken.count, selection)
        if found.count:
            offsets = [OFFSET.unpack_from(record, QUEUE_OFFSET_AT)[0] for record in found.slices]
            taken.parts.append(Part(queue, start, offsets, found.slices, is_retry))
            taken.count += found.count
            if not header.order:
                self._offsets.move(queue, int(found.next_offset))
        elif found.status in _PASSED:
            taken.passed |= found.next_offset < found.max_offset
            if header.order:
                self._offsets.commit(queue, int(found.next_offset))
            else:
                self._offsets.move(queue, int(found.next_offset))
        taken.rest += max(int(found.max_offset - found.next_offset), 0)

    def _read(
        self, queue: QueueOfGroup, source: ConsumeQueue, start: int, count: int, selection: Selection
    ) -> tuple[int, GetResult]:
        """The messages from `start` on, or from where the queue says to continue."""
        found = self._store.get(source, start, count, *selection)
        if found.status in _ELSEWHERE and found.next_offset != start:
            start = int(found.next_offset)
            self._offsets.commit(queue, start)
            found = self._store.get(source, start, count, *selection)
        return start, found

    def _at(self, queue: QueueOfGroup, source: ConsumeQueue) -> int:
        known = self._offsets.get(queue)
        return int(source.min_offset) if known is None else known

    def _first(self, source: ConsumeQueue, *, from_first: bool) -> int:
        """Where a new group starts: at the first message, or else at the last, unless the whole queue is recent."""
        if from_first:
            return int(source.min_offset)
        if source.min_offset <= 0 and not self._store.get(source, 0, 1).suggest_slave:
            return 0
        return max(int(source.max_offset) - 1, 0)
