"""Requests about offsets: progress of groups, and where queues begin and end (docs/spec/broker.md 9)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import QueryNotFound, SubscriptionGroupNotExist, TopicNotFound
from pyromq.protocol.bodies import DataVersion, QueryCorrectionOffsetBody
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    CloneGroupOffset,
    GetEarliestStoreTime,
    GetEarliestStoreTimeReply,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    QueryCorrectionOffset,
    SearchOffset,
    UpdateConsumerOffset,
)

if TYPE_CHECKING:
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import MessageStore

    from ..context import Tables
    from .room import OffsetRoom

logger = logging.getLogger(__name__)

_NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_NOT_FOUND_NOR_ZERO = "Not found, do not set to zero, maybe this group boot first"


class OffsetProcessors:
    """What groups committed. Nothing here waits for the disk: offsets are saved every few seconds."""

    def __init__(self, store: MessageStore, tables: Tables, room: OffsetRoom) -> None:
        self._room = room
        self._offsets = tables.offsets
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = tables.clients
        self._store = store

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def query(self, connection: Connection, request: Command) -> Command:
        header = request.header(QueryConsumerOffset)
        offset = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False:
                raise QueryNotFound(_NOT_FOUND_NOR_ZERO)
            if not self._is_whole_and_recent(header.topic, header.queue_id):
                raise QueryNotFound(_NOT_FOUND)
            offset = 0
        return request.reply(header=OffsetReply(offset))

    def _is_whole_and_recent(self, topic: str, queue_id: int) -> bool:
        """Whether a new group starts with the first message, whatever its consumers ask for.

        So it misses no message sent to a new queue shortly before the group started. True for an empty queue, too.
        """
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return True
        return queue.min_offset <= 0 and not self._store.get(queue, 0, 1).suggest_slave

    def update(self, connection: Connection, request: Command) -> Command:
        """15. As in 5.5, topic and group must exist, and any offset is taken: a consumer may know more than a queue
        that lost its end. A pull from there is told where the queue ends (21), and a negative offset counts as none.

        Unlike 5.5, the first commit creates a group, just as the first pull does.
        """
        header = request.header(UpdateConsumerOffset)
        if self._groups.get(header.consumer_group) is None:
            raise SubscriptionGroupNotExist(f"Group {header.consumer_group} not exist!")
        if header.topic not in self._topics:
            raise TopicNotFound(f"Topic {header.topic} not exist!")
        self._room.check(header.consumer_group, header.topic, header.queue_id)
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return request.reply()

    async def all_offsets(self, connection: Connection, request: Command) -> Command:
        # Each slave asks every few seconds, and a hundred thousand offsets take a while to write down.
        table = self._offsets.snapshot()
        if table.data_version is None:
            # A slave of 5.5.0 fails over a missing one, before it has saved the offsets.
            table = replace(table, data_version=DataVersion())
        return request.reply(body=await asyncio.to_thread(table.encode))

    def correction(self, connection: Connection, request: Command) -> Command:
        header = request.header(QueryCorrectionOffset)
        find = self._store.queues.find

        def min_offset(queue_id: int) -> int:
            queue = find(header.topic, queue_id)
            return 0 if queue is None else queue.min_offset

        ignored = set((header.filter_groups or "").split(","))
        offsets = self._offsets.correction(header.topic, header.compare_group, ignored, min_offset)
        return request.reply(body=QueryCorrectionOffsetBody(offsets).encode())

    def clone(self, connection: Connection, request: Command) -> Command:
        header = request.header(CloneGroupOffset)
        source, target = header.src_group, header.dest_group
        topic = (header.topic or "").strip()
        online = None if header.offline else self._clients.consumer_group(source)
        for each in [topic] if topic else self._offsets.topics_of(source):
            if each not in self._topics or (online is not None and each not in online.subscriptions):
                logger.warning(
                    "offsets of group %s in %s not copied to %s: the source does not consume it", source, each, target
                )
                continue
            self._offsets.clone(source, target, each)
            logger.info("offsets of group %s in %s copied to %s by %s", source, each, target, connection.peer)
        return request.reply()


class QueueProcessors:
    """Where queues begin and end. A queue that does not exist counts as empty."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
        }

    def search(self, connection: Connection, request: Command) -> Command:
        header = request.header(SearchOffset)
        timestamp = header.timestamp
        queue = self._store.queues.find(header.topic, header.queue_id)
        offset = 0
        if queue is not None:
            upper = (header.boundary_type or "").upper() == "UPPER"
            offset = self._store.reader.offset_by_time(queue, timestamp, upper=upper)
        return request.reply(header=OffsetReply(offset))

    def max_offset(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetMaxOffset)
        queue = self._store.queues.find(header.topic, header.queue_id)
        if queue is None:
            return request.reply(header=OffsetReply(0))
        # As in RocketMQ 5: with what is stored, and hidden from readers until the slaves have it.
        counts_hidden = header.committed is False
        return request.reply(header=OffsetReply(queue.next_offset if counts_hidden else queue.max_offset))

    def min_offset(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetMinOffset)
        queue = self._store.queues.find(header.topic, header.queue_id)
        return request.reply(header=OffsetReply(0 if queue is None else queue.min_offset))

    def earliest_store_time(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetEarliestStoreTime)
        queue = self._store.queues.find(header.topic, header.queue_id)
        timestamp = -1 if queue is None else self._store.reader.store_time(queue, queue.min_offset)
        return request.reply(header=GetEarliestStoreTimeReply(timestamp))
