"""Message lookups: by key, by place in the log, and by queue entry (docs/spec/broker.md 11.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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
from pyromq.protocol.record import decode_record
from pyromq.protocol.rights import Action, on_topic
from pyromq.store.format import ENTRY, MAX_EXT_ADDRESS
from pyromq.store.metadata.json_text import pretty

from ..filters.consumer_filters import is_tag_type
from ..needs import topic_of
from ..pull import tags_of_subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.auth import RequestGuard
    from pyromq.protocol.bodies import SubscriptionData
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue
    from pyromq.store.queues.consume_queue_ext import ExtUnit

    from ..clients.connected import Clients
    from ..filters.consumer_filters import Filters

# Maximum queue entries per answer; to get more, ask again after the last one.
MAX_ENTRIES = 10_000

_READS = frozenset((Action.SUB, Action.GET))
_NO_MESSAGE = "can not find message, maybe time range not correct"
_NO_FILTER = "null"  # the expression of a subscription that has none


class LookupProcessors:
    """Finds messages, and the subscriptions of a group."""

    def __init__(self, store: MessageStore, clients: Clients, filters: Filters, guard: RequestGuard) -> None:
        self._store = store
        self._guard = guard
        self._clients = clients
        self._filters = filters

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
        if not self._guard.is_open:
            # Which topic a client names says nothing about the message that it gets.
            self._guard.require(
                connection, request, [on_topic(topic_of(decode_record(record, check_crc=False)), _READS)]
            )
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
        filter_data = matches = None
        if group is not None:
            filter_data = self._filter_data(group, topic, subscription)
            matches = self._test(group, subscription)
        body = QueryConsumeQueueResponseBody(
            filter_data=filter_data,
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
            queue_data=[
                _entry(queue, physical, size, tags_code, matches)
                for physical, size, tags_code in ENTRY.iter_unpack(entries)
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

    def _filter_data(self, group: str, topic: str, subscription: SubscriptionData | None) -> str:
        if subscription is None:
            return f"{group}@{topic} is not online!"
        entry = self._filters.entry(group, topic)
        return _NO_FILTER if entry is None else pretty(msgspec.json.decode(entry.encode())).decode()

    def _test(self, group: str, subscription: SubscriptionData | None) -> Callable[[ExtUnit], bool] | None:
        """Whether a pull of the group would go on to read the message behind this unit."""
        if subscription is None:
            return None
        if is_tag_type(subscription.expression_type):
            tags = tags_of_subscription(subscription)
            return lambda unit: tags is None or tags(unit.tags_code)
        data = self._filters.get(subscription.topic, group)
        units = None if data is None else data.selection[2]
        return lambda unit: units is None or units(unit)


def _entry(
    queue: ConsumeQueue, physical: int, size: int, tags_code: int, matches: Callable[[ExtUnit], bool] | None
) -> ConsumeQueueData:
    """An entry to show. With bitmaps its tags code may be the address of the real one."""
    plain = ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=tags_code)
    if tags_code > MAX_EXT_ADDRESS:
        return plain
    unit = None if queue.ext is None else queue.ext.unit(tags_code)
    if unit is None:
        return msgspec.structs.replace(plain, msg=f"Cq extend not exist!addr: {tags_code}")
    return msgspec.structs.replace(
        plain,
        bit_map=_bits(unit.bitmap) if unit.bitmap else None,
        eval=matches is not None and matches(unit),
        extend_data_json=_unit_json(unit),
    )


def _unit_json(unit: ExtUnit) -> str:
    """As 5.5 writes it; 4.9 has the bitmap in Base64."""
    members: dict[str, object] = {
        "filterBitMap": [byte - 256 if byte > 127 else byte for byte in unit.bitmap],
        "msgStoreTime": unit.store_time,
        "size": unit.size,
        "tagsCode": unit.tags_code,
    }
    if not unit.bitmap:
        del members["filterBitMap"]
    return msgspec.json.encode(members).decode()


def _bits(bitmap: bytes) -> str:
    """The last bit first, eight bytes to a line as counted from the end."""
    lines = (bitmap[at : at + 8] for at in range(0, len(bitmap), 8))
    return "".join("".join(f"{byte:08b}" for byte in reversed(line)) + "\n" for line in reversed(list(lines)))
