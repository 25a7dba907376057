"""Replies (324, 325): a consumer answers a request, and the broker passes the reply to the waiting producer.

The reply is a message to the cluster's reply topic. It names the client that asked, which is one of the producers
connected here: a client that asks sends heartbeats to all brokers. docs/spec/broker.md 11.3.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from pyromq.errors import BrokerError, MessageIllegal, NoPermission, PyroMQError, ServerError, TopicNotFound
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import PushReplyMessage, SendMessage, SendMessageReply, SendMessageV2
from pyromq.protocol.ids import encode_offset_message_id
from pyromq.protocol.permissions import PERM_WRITE
from pyromq.protocol.record import MessageRecord
from pyromq.store import PutStatus

from .send import FAQ, born_host
from .stats.incoming import NORMAL
from .stats.statistics import BROKER_PUT_NUMS, TOPIC_PUT_NUMS, TOPIC_PUT_SIZE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from pyromq.protocol.bodies import TopicConfig
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult

    from .context import Context, Tables

logger = logging.getLogger(__name__)

# Seconds for the asking client to take the reply.
PUSH_TIMEOUT = 10.0

_NOT_STORED = "0"  # instead of an id, for a reply that was only passed on


class ReplyProcessor:
    """Serves replies. `address` is this broker's address for clients, `clock` gives epoch milliseconds."""

    def __init__(self, context: Context, tables: Tables) -> None:
        self._store = context.store
        self._gate = context.gate
        self._appends = context.appends
        self._topics = tables.topics
        self._clients = tables.clients
        self._stats = context.stats
        self._live = context.live
        self._clock = context.clock
        self._address = context.address
        self._store_host = context.store_host

    def table(self) -> dict[int, Processor]:
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply}

    def reply(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        try:
            return self._checked(connection, request)
        except BrokerError as exc:
            # Clients look for these fields even in a refusal.
            config = self._live.config
            response = request.reply(exc.code, exc.remark)
            response.ext = {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}
            return response

    def _checked(self, connection: Connection, request: Command) -> Awaitable[Command]:
        header: SendMessage | SendMessageV2
        if request.code == RequestCode.SEND_REPLY_MESSAGE:
            header = request.header(SendMessage)
        else:
            header = request.header(SendMessageV2)
        topic = self._checked_topic(header)
        queue_id = header.queue_id
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise ServerError(f"request queueId[{queue_id}] is illegal, topic:[{topic.topic_name}]")
        if queue_id < 0:
            queue_id = random.randrange(max(topic.write_queue_nums, 1))
        return self._passed_on(connection, request, header, queue_id)

    def _checked_topic(self, header: SendMessage | SendMessageV2) -> TopicConfig:
        """The checks of every send (3.1) in their order."""
        config = self._live.config
        if self._clock() < config.start_accept_send:
            until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(config.start_accept_send // 1000))
            raise ServerError(f"broker unable to service, until {until},{config.start_accept_send % 1000:03d}")
        known = self._topics.get(header.topic)
        if not config.broker_permission & PERM_WRITE and known is not None and known.order:
            raise NoPermission(f"the broker[{config.broker_ip1}] sending message is forbidden")
        self._topics.check_name(header.topic)
        if not self._topics.may_send(header.topic):
            raise NoPermission(f"Sending message to topic[{header.topic}] is forbidden.")
        if known is None:
            known = self._topics.for_send(
                header.topic, header.default_topic, header.default_topic_queue_nums, header.unit_mode
            )
        if known is None:
            raise TopicNotFound(f"topic[{header.topic}] not exist, apply first please!{FAQ}")
        if "\0" in (header.properties or ""):
            # As in a send: zeros in properties are what a power failure leaves of them.
            raise MessageIllegal("the properties contain U+0000")
        return known

    async def _passed_on(
        self, connection: Connection, request: Command, header: SendMessage | SendMessageV2, queue_id: int
    ) -> Command:
        config = self._live.config
        # Read settings and request before anything is awaited.
        store_it = config.store_reply_message
        trace = (config.region_id, config.trace_on)
        if store_it and self._gate.holds(header.topic):
            await self._gate.topics_settled()
        problem = await self._push(connection, request, header, queue_id)
        stored = await self._stored(connection, request, header, queue_id) if store_it else None
        if stored is None:
            place = SendMessageReply(_NOT_STORED, queue_id, 0, region=trace[0], trace_on=trace[1])
        else:
            msg_id = encode_offset_message_id(self._store_host, stored.physical_offset)
            place = SendMessageReply(msg_id, queue_id, stored.queue_offset, region=trace[0], trace_on=trace[1])
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return request.reply(code, problem, header=place)

    async def _push(
        self, connection: Connection, request: Command, header: SendMessage | SendMessageV2, queue_id: int
    ) -> str | None:
        """Pass the reply to the client that asked; returns why that failed, if it did."""
        properties = props.parse(header.properties or "")
        client_id = properties.get(props.REPLY_TO_CLIENT)
        if not client_id:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        asking = self._clients.producer_connection(client_id)
        if asking is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock()
        push = PushReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=connection.peer,
            store_host=self._address,
            store_timestamp=now,
            properties=props.render(properties | {props.PUSH_REPLY_TIME: str(now)}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        failed = f"push reply message to <{client_id}>fail."
        pushed = Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, request.body_bytes)
        try:
            answer = await asking.invoke(pushed, PUSH_TIMEOUT)
        except PyroMQError as exc:
            logger.warning("cannot pass a reply to %s: %s", client_id, exc)
            return failed
        if answer.code != ResponseCode.SUCCESS:
            logger.warning("%s refused a reply: code %d %s", client_id, answer.code, answer.remark)
            return failed
        return None

    async def _stored(
        self, connection: Connection, request: Command, header: SendMessage | SendMessageV2, queue_id: int
    ) -> PutResult | None:
        """Store the reply as well, for tracing; None if the store refused it."""
        record = MessageRecord(
            header.topic,
            request.body_bytes,
            props.encode(header.properties or ""),
            queue_id,
            header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=born_host(connection),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times,
        )
        put: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()

        def stored(results: Sequence[PutResult]) -> None:
            if not put.done():
                put.set_result(results[0])

        self._appends.put(self._store.queue(header.topic, queue_id), (record,), stored, wait=False)
        result = await put
        if result.status is not PutStatus.PUT_OK:
            logger.warning("reply of %s not stored: %s", connection.peer, result.error)
            return None
        self._stats.add(TOPIC_PUT_NUMS, header.topic)
        self._stats.add(TOPIC_PUT_SIZE, header.topic, result.size)
        self._stats.incoming.note(header.topic, NORMAL, result.size)
        self._stats.add(BROKER_PUT_NUMS, self._live.config.cluster_name)
        return result
