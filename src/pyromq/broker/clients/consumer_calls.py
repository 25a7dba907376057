"""Requests from the broker to consumers: rebalance (40), take new offsets (220), report status (221, 307, 309).

The broker sends the first on its own. The others come from an admin tool, which reaches consumers only through
the broker that they are connected to (docs/spec/broker.md 9, 12.3).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import (
    ConsumeMessageTimeout,
    ConsumerNotOnline,
    MissingField,
    OffsetOutOfRange,
    PyroMQError,
    RequestTimeout,
    ServerError,
)
from pyromq.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command, Language
from pyromq.protocol.headers import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    ResetOffset,
)
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import decode_record
from pyromq.protocol.rights import Action, on_topic
from pyromq.protocol.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name

from ..needs import topic_of

if TYPE_CHECKING:
    from pyromq.protocol.command import Body
    from pyromq.remoting import Connection, Processor

    from ..config import LiveConfig
    from ..context import Context, Tables
    from .connected import ClientInfo

logger = logging.getLogger(__name__)

# Seconds for a consumer to take a request, and to answer it.
NOTIFY_TIMEOUT = 0.01
RESET_TIMEOUT = 5.0
STATUS_TIMEOUT = 5.0
RELAY_TIMEOUT = 10.0

# Consumers told per turn of the event loop, which has other work to do, too. Telling one costs about
# 30 µs (CPython 3.11), followed by a rest ten times as long: a thousand members that restart one by one, each of them
# news for all the others, take a tenth of the processor at most.
_AT_ONCE = 256
_REST = 0.0003

_READS = frozenset((Action.SUB, Action.GET))
_LATEST = -1  # instead of a time: the end of the queue


class RebalanceNotices:
    """Tells consumers that the members or topics of their group changed (40). `post` never waits; `run` tells.

    Changes that come while a group is still being told become one more notice: members ask for the list anyway.
    """

    def __init__(self, live: LiveConfig) -> None:
        self._live = live
        self._waiting: dict[str, list[Connection]] = {}
        self._posted = asyncio.Event()

    def post(self, group: str, connections: list[Connection]) -> None:
        """Queue a notice for a group, unless notices are switched off. `connections` are all its connections."""
        if self._live.config.notify_ids_changed:
            self._waiting[group] = connections
            self._posted.set()

    async def run(self) -> None:
        """Send notices as soon as they are posted, until cancelled."""
        while True:
            await self._posted.wait()
            self._posted.clear()
            waiting, self._waiting = self._waiting, {}
            told = [(connection, group) for group, connections in waiting.items() for connection in connections]
            for start in range(0, len(told), _AT_ONCE):
                await asyncio.gather(*(_notify(*news) for news in told[start : start + _AT_ONCE]))
            await asyncio.sleep(len(told) * _REST)


async def _notify(connection: Connection, group: str) -> None:
    if connection.closed:
        return
    request = Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged(group), oneway=True)
    try:
        await connection.oneway(request, NOTIFY_TIMEOUT)
    except PyroMQError as exc:
        # Consumers rebalance every 20 seconds anyway; this only makes it faster.
        logger.info("cannot tell a consumer of group %s to rebalance: %s", group, exc)


class ConsumerCallProcessors:
    """Serves requests of admin tools to consumers."""

    def __init__(self, context: Context, tables: Tables) -> None:
        self._clients = tables.clients
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._store = context.store
        self._live = context.live
        self._guard = context.access.guard

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # Offsets

    async def reset_offset(self, connection: Connection, request: Command) -> Command:
        """222. The consumers stop, take the new offsets and commit them: no offset is changed here."""
        header = request.header(ResetOffset)
        table = self._reset_targets(header)
        members = self._members(header.group)
        if not members:
            raise ConsumerNotOnline(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
        # All or none: check everything before telling anyone.
        for info in members:
            _check_version(info)
        body = ResetOffsetBody(table)
        encoded, for_cpp = body.encode(), body.encode_for_cpp()
        await asyncio.gather(
            *(_push_reset(info, header, for_cpp if info.language is Language.CPP else encoded) for info in members)
        )
        logger.info(
            "offsets of group %s in topic %s reset by %s to %d consumers=%d",
            header.group,
            header.topic,
            connection.peer,
            header.timestamp,
            len(members),
        )
        return request.reply(body=encoded)

    def _reset_targets(self, header: ResetOffset) -> dict[MessageQueue, int]:
        """The new offset of each queue. Without force, offsets only move back."""
        topic, group, force = header.topic, header.group, header.is_force
        config = self._topics.get(topic)
        if config is None:
            raise ServerError(f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}")
        table = {}
        for queue_id in range(config.write_queue_nums):
            stored = self._offsets.get(group, topic, queue_id)
            if stored is None:
                raise ServerError(f"THe consumer group <{group}> not exist")
            target = self._offset_at(topic, queue_id, header.timestamp)
            queue = MessageQueue(broker_name=self._live.config.broker_name, queue_id=queue_id, topic=topic)
            table[queue] = target if force else min(target, stored)
        return table

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_offset if timestamp == _LATEST else self._store.reader.offset_by_time(queue, timestamp)

    async def consumer_status(self, connection: Connection, request: Command) -> Command:
        """223: the offsets that consumers have in memory. Consumers that do not answer are left out."""
        header = request.header(GetConsumerStatus)
        # The field is called an address, but tools put a client id into it.
        wanted = (header.client_addr or "").strip()
        members = self._members(header.group)
        if not members:
            raise ServerError(f"No Any Consumer online in the consumer group: [{header.group}]")
        asked = [info for info in members if not wanted or info.client_id == wanted]
        for info in asked:
            _check_version(info)
        answers = await asyncio.gather(*(_ask_status(info, header.topic, header.group) for info in asked))
        table = {info.client_id: answer for info, answer in zip(asked, answers, strict=True) if answer is not None}
        return request.reply(body=GetConsumerStatusBody(consumer_table=table).encode())

    def _members(self, group: str) -> list[ClientInfo]:
        live = self._clients.consumer_group(group)
        return [] if live is None else list(live.connections.values())

    # Passing on

    async def running_info(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetConsumerRunningInfo)
        return await self._relay(request.code, request.ext, request.body, header.consumer_group, header.client_id)

    async def consume_directly(self, connection: Connection, request: Command) -> Command:
        """309: pass the message named by the tool to the consumer."""
        header = request.header(ConsumeMessageDirectly)
        ext = {**(request.ext or {}), "brokerName": self._live.config.broker_name}
        message = self._message(header.msg_id)
        if not self._guard.is_open:
            # Otherwise somebody could have any message of this broker given to a consumer of their own.
            topic = topic_of(decode_record(message, check_crc=False))
            self._guard.require(connection, request, [on_topic(topic, _READS)])
        return await self._relay(request.code, ext, message, header.consumer_group, header.client_id)

    def _message(self, msg_id: str | None) -> bytes:
        if msg_id is None:
            raise MissingField("ConsumeMessageDirectly", "msgId")
        offset = decode_offset_message_id(msg_id).physical_offset
        try:
            # A copy: the consumer may take its time to read it, and the log's files must be free to go.
            return bytes(self._store.message_at(offset))
        except OffsetOutOfRange as exc:
            raise ServerError(f"can not find message by the offset, {offset}") from exc

    async def _relay(
        self, code: int, ext: dict[str, str] | None, body: Body | None, group: str, client_id: str | None
    ) -> Command:
        """Pass a request on to a consumer and return its answer unchanged."""
        info = self._clients.find_consumer(group, client_id) if client_id is not None else None
        if info is None:
            raise ServerError(f"The Consumer <{group}> <{client_id}> not online")
        if info.version < V3_1_8_SNAPSHOT:
            raise ServerError(
                f"The Consumer <{client_id}> Version <{version_name(info.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
        passed_on = Command.request(code, body=body)
        passed_on.ext = ext
        try:
            return await info.connection.invoke(passed_on, RELAY_TIMEOUT)
        except RequestTimeout as exc:
            raise ConsumeMessageTimeout(f"consumer <{group}> <{client_id}> Timeout: {exc}") from exc
        except PyroMQError as exc:
            raise ServerError(f"invoke consumer <{group}> <{client_id}> Exception: {exc}") from exc


def _check_version(info: ClientInfo) -> None:
    if info.version < V3_0_7_SNAPSHOT:
        raise ServerError(f"the client does not support this feature. version={version_name(info.version)}")


async def _push_reset(info: ClientInfo, header: ResetOffset, body: bytes) -> None:
    # Force was decided above; as in 4.9, consumers never see the flag.
    push = ResetOffset(topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=False)
    request = Command.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push, body, oneway=True)
    try:
        await info.connection.oneway(request, RESET_TIMEOUT)
    except PyroMQError as exc:
        logger.warning("cannot tell consumer %s of group %s its new offsets: %s", info.client_id, header.group, exc)


async def _ask_status(info: ClientInfo, topic: str, group: str) -> dict[MessageQueue, int] | None:
    request = Command.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic=topic, group=group))
    try:
        response = await info.connection.invoke(request, STATUS_TIMEOUT)
        if response.code == ResponseCode.SUCCESS and response.body is not None:
            return GetConsumerStatusBody.decode(response.body_bytes).message_queue_table
    except PyroMQError as exc:
        logger.warning("cannot get the offsets of consumer %s of group %s: %s", info.client_id, group, exc)
    return None
