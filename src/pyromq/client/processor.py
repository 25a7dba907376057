"""The requests that a client serves: brokers' questions, and which member answers."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import LocalProtocolError, PyroMQError, ServerError
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    PushReplyMessage,
    ResetOffset,
)
from pyromq.protocol.ids import encode_host
from pyromq.protocol.message import MessageExt, MessageRecord, decode_record
from pyromq.remoting import split_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from .members import ConsumerMember, ProducerMember
    from .producer.request_reply import Replies

logger = logging.getLogger(__name__)

_NOWHERE = encode_host("0.0.0.0", 0)


class ClientProcessor:
    """Passes brokers' requests to the member of the group they name. Group names are those on the wire."""

    def __init__(
        self, producers: Mapping[str, ProducerMember], consumers: Mapping[str, ConsumerMember], replies: Replies
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._replies = replies

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.CHECK_TRANSACTION_STATE: self.check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.consumer_ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.push_reply,
        }

    def check_transaction(self, connection: Connection, request: Command) -> None:
        """39: how did a transaction end? The member answers later, with its own request, to the same address."""
        try:
            message = MessageExt(decode_record(request.body_bytes))
        except PyroMQError as exc:
            # One-way, so an error could not be answered.
            logger.warning("%s: cannot read the message of a transaction check: %s", connection.peer, exc)
            return
        group = message.properties.get(props.PGROUP)
        producer = None if group is None else self._producers.get(group)
        if producer is None:
            logger.warning("%s: transaction check for group %s, which has no producer here", connection.peer, group)
            return
        producer.check_transaction(_address(connection), request.header(CheckTransactionState), message)

    def consumer_ids_changed(self, connection: Connection, request: Command) -> None:
        """40: members of a group came or went."""
        consumer = self._consumers.get(request.header(NotifyConsumerIdsChanged).consumer_group)
        if consumer is not None:
            consumer.wake_rebalance()

    def reset_offsets(self, connection: Connection, request: Command) -> None:
        """220: reset offsets."""
        header = request.header(ResetOffset)
        consumer = self._consumers.get(header.group)
        if consumer is None:
            logger.warning("%s: offset reset for group %s, which has no consumer here", connection.peer, header.group)
            return
        try:
            offsets = ResetOffsetBody.decode(request.body_bytes).offset_table
        except PyroMQError as exc:
            logger.warning("%s: cannot read an offset reset: %s", connection.peer, exc)
            return
        logger.info("%s: resetting offsets of %s in %s: %s", connection.peer, header.group, header.topic, offsets)
        consumer.reset_offsets(header.topic, offsets)

    def consumer_status(self, connection: Connection, request: Command) -> Command:
        """221: report a consumer's offsets."""
        header = request.header(GetConsumerStatus)
        consumer = self._consumers.get(header.group)
        offsets = {} if consumer is None else consumer.memory_offsets(header.topic)
        return request.reply(body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    def running_info(self, connection: Connection, request: Command) -> Command:
        """307: report a consumer's running info."""
        header = request.header(GetConsumerRunningInfo)
        info = self._consumer(header.consumer_group).running_info(header.jstack_enable)
        return request.reply(body=info.encode())

    def consume_directly(self, connection: Connection, request: Command) -> Awaitable[Command]:
        """309: give this message to the handler."""
        header = request.header(ConsumeMessageDirectly)
        consumer = self._consumer(header.consumer_group)
        message = MessageExt(decode_record(request.body_bytes), header.broker_name or "")
        return _consumed(consumer, message, request)

    def push_reply(self, connection: Connection, request: Command) -> Command:
        """326: another client answered a request() of this one."""
        header = request.header(PushReplyMessage)
        try:
            message = _reply_message(header, request.body_bytes)
            message.properties[props.ARRIVE_TIME] = str(time.time_ns() // 1_000_000)
            _ = message.body  # decompress it here, since the waiting caller cannot answer the broker
        except PyroMQError as exc:
            logger.warning("%s: cannot read a reply: %s", connection.peer, exc)
            return request.reply(ResponseCode.SYSTEM_ERROR, f"process reply message fail: {exc}")
        if not self._replies.resolve(message):
            # Too late; the broker has done its part.
            logger.warning("%s: no request waits for the reply %s", connection.peer, message)
        return request.reply()

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise ServerError(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


async def _consumed(consumer: ConsumerMember, message: MessageExt, request: Command) -> Command:
    result = await consumer.consume_directly(message, message.broker_name)
    return request.reply(body=result.encode())


def _address(connection: Connection) -> str:
    """The address this client used for the peer; it finds the same connection again."""
    return connection.context or connection.peer


def _reply_message(header: PushReplyMessage, body: bytes) -> MessageExt:
    record = MessageRecord(
        topic=header.topic,
        body=body,
        properties=props.encode(header.properties or ""),
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times,
    )
    return MessageExt(record)


def _host(text: str) -> bytes:
    """`ip:port`, without Java's leading slash. Only shown to people, so an unreadable one is not an error."""
    try:
        return encode_host(*split_address(text.lstrip("/")))
    except (ValueError, LocalProtocolError):
        return _NOWHERE
