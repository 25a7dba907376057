"""Progress: where queues end, and how far groups have come in them (docs/spec/broker.md 9, 12.1).

The bodies that answer 202, 208, 303 and 317. Read-only: asking for a queue does not create it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pyromq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from pyromq.protocol.message_queue import MessageQueue

from ..stats.statistics import GROUP_GET_NUMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.bodies import TopicConfig
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..context import Context, Tables
    from ..groups import GroupTable

# A topic's settings may claim any number of queues; more than this cannot be used.
MAX_LISTED_QUEUES = 16_384


class Progress:
    """Combines offsets and store times. Times are epoch milliseconds, -1 for a message that does not exist."""

    def __init__(self, context: Context, tables: Tables) -> None:
        self._store = context.store
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._clients = tables.clients
        self._statistics = context.stats
        self._live = context.live

    def of_topic(self, topic: TopicConfig) -> TopicStatsTable:
        """202: the ends of the queues that can be written to."""
        table = {}
        for queue_id in _queue_ids(topic.write_queue_nums):
            queue = self._store.queues.find(topic.topic_name, queue_id)
            if queue is None:
                ends = TopicOffset()
            else:
                ends = TopicOffset(
                    min_offset=queue.min_offset,
                    max_offset=queue.max_offset,
                    last_update_timestamp=self._store_time(queue, queue.max_offset - 1) if queue.max_offset else 0,
                )
            table[self._named(topic, queue_id)] = ends
        return TopicStatsTable(offset_table=table)

    def of_group(self, group: str, topics: Iterable[str]) -> ConsumeStats:
        """208: the progress of `group` in the readable queues of `topics`.

        Leaves out topics that do not exist and, if the group is online, those it does not subscribe to.
        """
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in self._consumed(group, topics):
            table |= self._offsets_in(group, topic, topic.read_queue_nums)
            tps += self._tps(group, topic)
        return ConsumeStats(consume_tps=tps, offset_table=table)

    async def of_all_groups(self, groups: GroupTable, address: str, *, only_ordered: bool) -> ConsumeStatsList:
        """317: the progress of every group. There may be thousands, so other work gets its turn in between."""
        listed = []
        behind = 0
        for group in [config.group_name for config in groups]:
            stats = [
                ConsumeStats(
                    consume_tps=self._tps(group, topic),
                    offset_table=self._offsets_in(group, topic, topic.write_queue_nums),
                )
                for topic in self._consumed(group, self._offsets.topics_of(group))
                if topic.order or not only_ordered
            ]
            behind += sum(
                offset.broker_offset - offset.consumer_offset for each in stats for offset in each.offset_table.values()
            )
            listed.append({group: stats})
            await asyncio.sleep(0)
        return ConsumeStatsList(broker_addr=address, consume_stats_list=listed, total_diff=behind)

    def times(self, group: str, topic: TopicConfig, now: int) -> QueryConsumeTimeSpanBody:
        """303: when the first, the last and the last consumed message of each queue were stored."""
        return QueryConsumeTimeSpanBody(
            [self._time_span(group, topic, queue_id, now) for queue_id in _queue_ids(topic.write_queue_nums)]
        )

    def _time_span(self, group: str, topic: TopicConfig, queue_id: int, now: int) -> QueueTimeSpan:
        first = last = consumed = -1
        waiting = 0
        queue = self._store.queues.find(topic.topic_name, queue_id)
        if queue is not None:
            first = self._store_time(queue, queue.min_offset)
            last = self._store_time(queue, queue.max_offset - 1)
            offset = self._offsets.get(group, topic.topic_name, queue_id) or 0
            consumed = self._store_time(queue, offset - 1) if offset > 0 else first
            # A group that has not begun, or whose next message is gone, continues with the first one.
            following = self._store_time(queue, max(offset, queue.min_offset))
            waiting = now - following if following >= 0 else 0
        return QueueTimeSpan(
            message_queue=self._named(topic, queue_id),
            min_time_stamp=first,
            min_time_stamp_str=time_text(first),
            max_time_stamp=last,
            max_time_stamp_str=time_text(last),
            consume_time_stamp=consumed,
            consume_time_stamp_str=time_text(consumed),
            delay_time=waiting,
        )

    def _consumed(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        online = self._clients.consumer_group(group)
        subscriptions = None if online is None else online.subscriptions
        known = [self._topics.get(topic) for topic in topics if not subscriptions or topic in subscriptions]
        return [topic for topic in known if topic is not None]

    def _offsets_in(self, group: str, topic: TopicConfig, queues: int) -> dict[MessageQueue, OffsetWrapper]:
        committed = self._offsets.of(group, topic.topic_name)
        table = {}
        for queue_id in _queue_ids(queues):
            queue = self._store.queues.find(topic.topic_name, queue_id)
            offset = committed.get(queue_id, 0)
            consumed = self._store_time(queue, offset - 1) if queue is not None and offset > 0 else 0
            table[self._named(topic, queue_id)] = OffsetWrapper(
                broker_offset=0 if queue is None else queue.max_offset,
                consumer_offset=offset,
                last_timestamp=max(consumed, 0),
                # Nothing records how far it has pulled beyond that. 5.x tools show the difference as in flight.
                pull_offset=offset,
            )
        return table

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        return self._store.reader.store_time(queue, offset)

    def _tps(self, group: str, topic: TopicConfig) -> float:
        return self._statistics.tps(GROUP_GET_NUMS, f"{topic.topic_name}@{group}")

    def _named(self, topic: TopicConfig, queue_id: int) -> MessageQueue:
        return MessageQueue(broker_name=self._live.config.broker_name, queue_id=queue_id, topic=topic.topic_name)


def time_text(millis: int) -> str:
    """`2026-11-15#10:12:00:685`, in the broker's time zone."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(millis // 1000))}:{millis % 1000:03d}"


def _queue_ids(count: int) -> range:
    return range(min(count, MAX_LISTED_QUEUES))
