"""Recall (370): a producer takes back a timer message that is not due yet (docs/spec/broker.md 4.2).

A recall is itself a message in the timer topic, due together with the one it names. So it survives whatever that one
survives, and need not search for it: when their step comes, both vanish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import (
    BrokerError,
    IllegalOperation,
    NoPermission,
    RemoteProtocolError,
    ServerError,
    ServiceNotAvailable,
    SlaveNotAvailable,
    TopicNotFound,
)
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import RecallMessage, RecallMessageReply
from pyromq.protocol.permissions import PERM_WRITE
from pyromq.protocol.recall_handle import RecallHandle, decode_handle
from pyromq.protocol.record import MessageRecord
from pyromq.store import PutStatus

from ..send import born_host
from .parking import recall_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult

    from ..context import Context
    from ..topics import TopicTable
    from .parking import TimerParking

_TAG = "_RECALL_TAG_"
_BODY = b"0"
_UNAVAILABLE = "recall failed, broker service not available"
_FAILED = "recall failed, execute error"
_STORED = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)


class RecallProcessor:
    """Serves recalls. `clock` gives epoch milliseconds."""

    def __init__(self, context: Context, topics: TopicTable, timers: TimerParking) -> None:
        self._store = context.store
        self._appends = context.appends
        self._topics = topics
        self._timers = timers
        self._stats = context.stats
        self._live = context.live
        self._clock = context.clock
        self._store_host = context.store_host

    def table(self) -> dict[int, Processor]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, request: Command) -> Command | None:
        header = request.header(RecallMessage)
        try:
            handle = self._checked(header)
            record = self._marker(handle, header.producer_group, connection)
        except BrokerError as exc:
            return self._with_region(request.reply(exc.code, exc.remark))

        def stored(results: Sequence[PutResult]) -> None:
            result = results[0]
            if result.status in _STORED:
                self._stats.add("TOPIC_PUT_NUMS", record.topic)
                self._stats.add("TOPIC_PUT_SIZE", record.topic, result.size)
                self._stats.add("BROKER_PUT_NUMS", self._live.config.cluster_name)
                reply = request.reply(header=RecallMessageReply(handle.message_id))
            else:
                reply = request.reply(ServerError.code, _FAILED)
            connection.reply(request, self._with_region(reply))

        self._appends.put(self._store.queue(record.topic, record.queue_id), (record,), stored)
        return None

    def _checked(self, header: RecallMessage) -> RecallHandle:
        """The handle, if recalling is allowed; the checks follow RocketMQ's order."""
        config = self._live.config
        now = self._clock()
        if not config.recall:
            raise NoPermission("recall failed, operation is forbidden")
        if config.is_slave:
            raise SlaveNotAvailable(_UNAVAILABLE)
        if now < config.start_accept_send:
            raise ServiceNotAvailable(_UNAVAILABLE)
        if not config.broker_permission & PERM_WRITE and not config.recall_when_not_writable:
            raise ServiceNotAvailable(_UNAVAILABLE)
        if self._topics.get(header.topic) is None:
            raise TopicNotFound(f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = decode_handle(header.recall_handle)
        except RemoteProtocolError:
            raise IllegalOperation("recall handle is invalid") from None
        if handle.topic != header.topic:
            raise IllegalOperation("recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise IllegalOperation(_UNAVAILABLE)
        if not 0 < handle.deliver_ms - now < 1000 * config.timer_max_delay:
            raise IllegalOperation("recall failed, timestamp invalid")
        return handle

    def _marker(self, handle: RecallHandle, group: str, connection: Connection) -> MessageRecord:
        now = self._clock()
        with_topic = self._live.config.recall_with_topic
        key = recall_key(handle.topic, handle.message_id) if with_topic else handle.message_id
        properties = {
            props.TAGS: _TAG,
            props.TIMER_DEL_UNIQKEY: key,
            props.UNIQ_KEY: handle.message_id,
            props.TIMER_DELIVER_MS: str(handle.deliver_ms),
            props.BORN_TIMESTAMP: str(now),
            props.PGROUP: group,
        }
        record = MessageRecord(
            handle.topic, _BODY, born_timestamp=now, born_host=born_host(connection), store_host=self._store_host
        )
        try:
            return self._timers.parked(record, properties, now)
        except BrokerError:
            raise ServerError(_FAILED) from None

    def _with_region(self, response: Command) -> Command:
        response.ext = {"MSG_REGION": self._live.config.region_id, **(response.ext or {})}
        return response
