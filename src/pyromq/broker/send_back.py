"""Send-back (36): a consumer failed to process a message and wants it again later, or never."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import (
    CorruptRecord,
    NoPermission,
    OffsetOutOfRange,
    ServerError,
    SubscriptionGroupNotExist,
)
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import ConsumerSendMessageBack
from pyromq.protocol.names import DLQ_PREFIX, SCHEDULE_TOPIC, retry_topic
from pyromq.protocol.permissions import PERM_WRITE
from pyromq.protocol.record import decode_record
from pyromq.protocol.rights import Action, on_topic
from pyromq.store import PutStatus

from .needs import topic_of
from .send import FAQ, V3_4_9
from .timers.delay_levels import parked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
    from pyromq.protocol.command import Command
    from pyromq.protocol.record import MessageRecord
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult

    from .context import Context, Tables

# The first retry waits for delay level 3, each further one for the next level.
_FIRST_RETRY_LEVEL = 3
_CONSUMES = frozenset((Action.SUB,))


class SendBackProcessor:
    """Puts a message into the retry topic of its group, through the delay levels, or among the dead letters."""

    def __init__(self, context: Context, tables: Tables, *, delay_levels: int) -> None:
        self._store = context.store
        self._appends = context.appends
        self._gate = context.gate
        self._topics = tables.topics
        self._groups = tables.groups
        self._stats = context.stats
        self._live = context.live
        self._delay_levels = delay_levels
        self._guard = context.access.guard

    def table(self) -> dict[int, Processor]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, connection: Connection, request: Command
    ) -> Command | Coroutine[None, None, Command | None] | None:
        header = request.header(ConsumerSendMessageBack)
        group = self._groups.get(header.group)
        if group is None:
            raise SubscriptionGroupNotExist(f"subscription group not exist, {header.group} {FAQ}")
        config = self._live.config
        if not config.broker_permission & PERM_WRITE:
            raise NoPermission(f"the broker[{config.broker_ip1}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return request.reply()
        # A group may have a name that no topic can have; then nothing can be sent back to it.
        self._topics.check_name(retry_topic(header.group))
        retry = self._topics.ensure_retry(header.group, group.retry_queue_nums, header.unit_mode)
        if not retry.perm & PERM_WRITE:
            raise NoPermission(f"the topic[{retry.topic_name}] sending message is forbidden")
        try:
            original = decode_record(self._store.message_at(header.offset), check_crc=False)
        except (OffsetOutOfRange, CorruptRecord):
            raise ServerError(f"look message by offset failed, {header.offset}") from None
        if not self._guard.is_open:
            # Otherwise a group could have any message of this broker sent to itself.
            self._guard.require(connection, request, [on_topic(topic_of(original), _CONSUMES)])
        record = self._next_try(original, header, group, retry.topic_name, request.version)
        origin = original.find_property(props.RETRY_TOPIC) or original.topic
        new = [topic for topic in (retry.topic_name, record.topic) if self._gate.holds(topic)]
        if new or self._groups.is_new(header.group):
            return self._when_settled(connection, request)

        def stored(results: Sequence[PutResult]) -> None:
            status = results[0].status
            if status is PutStatus.PUT_OK:
                self._count(record, results[0].size, f"{origin}@{header.group}")
                connection.reply(request, request.reply())
            else:
                connection.reply(request, request.reply(1, status.value))

        self._appends.put(self._store.queue(record.topic, record.queue_id), (record,), stored)
        return None

    async def _when_settled(self, connection: Connection, request: Command) -> Command | None:
        """Start over once the topics and the group that this request created are saved."""
        await self._gate.groups_saved()
        await self._gate.topics_settled()
        answer = self.send_back(connection, request)
        return await answer if isinstance(answer, Coroutine) else answer

    def _count(self, record: MessageRecord, size: int, origin: str) -> None:
        """A retry topic counts a message on delivery; the dead-letter topic counts it now."""
        stats = self._stats
        stats.add("SNDBCK_PUT_NUMS", origin)
        if record.topic.startswith(DLQ_PREFIX):
            topic, _, group = origin.partition("@")
            stats.events.dead_letter(group, topic)
        stats.add("TOPIC_PUT_NUMS", record.topic)
        stats.add("TOPIC_PUT_SIZE", record.topic, size)
        stats.add("BROKER_PUT_NUMS", self._live.config.cluster_name)
        if record.topic == SCHEDULE_TOPIC:
            stats.add("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@{record.queue_id}")
            stats.add("QUEUE_PUT_SIZE", f"{SCHEDULE_TOPIC}@{record.queue_id}", size)

    def _next_try(
        self,
        original: MessageRecord,
        header: ConsumerSendMessageBack,
        group: SubscriptionGroupConfig,
        retry_topic: str,
        version: int,
    ) -> MessageRecord:
        """The message as it is stored next: delayed for the retry topic, or a dead letter."""
        properties = props.parse(props.decode(original.properties))
        properties.setdefault(props.RETRY_TOPIC, original.topic)
        properties.setdefault(props.ORIGIN_MESSAGE_ID, original.offset_msg_id)
        # Its earlier delay no longer matters.
        for name in (props.WAIT, props.DELAY, props.REAL_TOPIC, props.REAL_QID):
            properties.pop(name, None)
        limit = group.retry_max_times
        if header.max_reconsume_times is not None and version >= V3_4_9:
            limit = header.max_reconsume_times
        again = replace(
            original,
            properties=props.encode(props.render(properties)),
            reconsume_times=original.reconsume_times + 1,
            prepared_transaction_offset=0,
        )
        if original.reconsume_times >= limit or header.delay_level < 0:
            return replace(again, topic=self._topics.ensure_dlq(header.group).topic_name, queue_id=0)
        again = replace(again, topic=retry_topic, queue_id=random.randrange(group.retry_queue_nums))
        level = header.delay_level or _FIRST_RETRY_LEVEL + original.reconsume_times
        return parked(again, properties, level, self._delay_levels)
