"""Looking for messages: by key, by their place in the log, and in the queues themselves (docs/spec/broker.md 11.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import OffsetOutOfRange, ServerError
from pyromq.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody, QuerySubscriptionResponseBody
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    QueryConsumeQueue,
    QueryMessage,
    QueryMessageReply,
    QuerySubscriptionByConsumer,
    ViewMessage,
)
from pyromq.store.format import ENTRY, MAX_EXT_ADDRESS

if TYPE_CHECKING:
    from pyromq.protocol.bodies import SubscriptionData
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import MessageStore
    from pyromq.store.consume_queue import ConsumeQueue

    from .clients import Clients

# Entries of a queue that one answer may hold; whoever wants more goes on behind the last one.
MAX_ENTRIES = 10_000

_NO_MESSAGE = "can not find message, maybe time range not correct"
_NO_FILTER = "null"  # the text of a filter that a subscription does not have


class LookupProcessors:
    """Finds messages, and what a group subscribes."""

    def __init__(self, store: MessageStore, clients: Clients) -> None:
        self._store = store
        self._clients = clients

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue_entries,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def by_key(self, connection: Connection, request: Command) -> Command:
        header = request.header(QueryMessage)
        wanted = self._store.config.default_query if header.unique_key_query else header.max_num
        records = self._store.query(header.topic, header.key, wanted, header.begin_timestamp, header.end_timestamp)
        if not records or self._store.index is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, _NO_MESSAGE, header=QueryMessageReply(0, 0))
        return request.reply(header=QueryMessageReply(*self._store.index.last_update), body=records)

    def by_offset(self, connection: Connection, request: Command) -> Command:
        offset = request.header(ViewMessage).offset
        try:
            record = self._store.message_at(offset)
        except OffsetOutOfRange:
            raise ServerError(f"can not find message by the offset, {offset}") from None
        return request.reply(body=record)

    def queue_entries(self, connection: Connection, request: Command) -> Command:
        header = request.header(QueryConsumeQueue)
        queue_id, topic, index = header.queue_id, header.topic, header.index
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            raise ServerError(f"{queue_id}@{topic} is not exist!")
        entries = queue.entries(index, max(1, min(header.count, MAX_ENTRIES)))
        if not entries:
            return request.reply(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        if header.count <= 0:
            entries = b""
        group = header.consumer_group
        subscription = None if group is None else self._subscription(group, topic)
        filter_data = None
        if group is not None:
            filter_data = f"{group}@{topic} is not online!" if subscription is None else _NO_FILTER
        body = QueryConsumeQueueResponseBody(
            filter_data=filter_data,
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
            queue_data=[
                _entry(queue, physical, size, tags_code) for physical, size, tags_code in ENTRY.iter_unpack(entries)
            ],
            subscription_data=subscription,
        )
        return request.reply(body=body.encode())

    def subscription(self, connection: Connection, request: Command) -> Command:
        header = request.header(QuerySubscriptionByConsumer)
        body = QuerySubscriptionResponseBody(
            group=header.group, topic=header.topic, subscription_data=self._subscription(header.group, header.topic)
        )
        return request.reply(body=body.encode())

    def _subscription(self, group: str, topic: str) -> SubscriptionData | None:
        online = self._clients.consumer_group(group)
        return None if online is None else online.subscriptions.get(topic)


def _entry(queue: ConsumeQueue, physical: int, size: int, tags_code: int) -> ConsumeQueueData:
    """An entry to show. With bitmaps, which RocketMQ can write, its tags code may be the address of the real one."""
    extended = missing = None
    if tags_code <= MAX_EXT_ADDRESS:
        real = None if queue.ext is None else queue.ext.tags_code(tags_code)
        if real is None:
            missing = f"Cq extend not exist!addr: {tags_code}"
        else:
            extended = f'{{"tagsCode":{real}}}'
    return ConsumeQueueData(
        physic_offset=physical, physic_size=size, tags_code=tags_code, extend_data_json=extended, msg=missing
    )
