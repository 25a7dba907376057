"""Message traces: what producers and consumers did with each message, as messages in a topic of their own.

    Pub             time, region, group, topic, id, tags, keys, broker, body length, cost, type, offset id, success
    SubBefore       time, region, group, request id, id, retries, keys
    SubAfter        request id, id, cost, success, keys, how it ended, time, group
    EndTransaction  time, region, group, topic, id, tags, keys, broker, type, transaction id, state, from a check
    Recall          time, region, group, topic, id, success

A record is its fields, type first, separated by U+0001 and ended by U+0002; a missing field is `null`. A trace message
has the ids and keys of its records as its own keys, so that a query by key finds it.

Traces never delay what they describe: records wait in a bounded queue and are dropped and counted when it is full.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import PyroMQError
from pyromq.protocol import properties as props
from pyromq.protocol.names import TRACE_TOPIC

from .hooks import Hook, MessageType
from .identity import make_uniq_key
from .producer.producer_settings import ProducerSettings
from .producer.send_result import DEFAULT_REGION, SendStatus
from .producer.sender import HiddenProducer, Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .client import Client
    from .hooks import ConsumeContext, EndTransactionContext, SendContext
    from .tasks import Periodic

logger = logging.getLogger(__name__)

PRODUCE = "PRODUCE"
CONSUME = "CONSUME"

_MAX_WAITING = 1024  # records
_SEGMENT = 118_000  # characters of one message, of the 128,000 bytes that it may have
_MAX_KEYS = 30_000  # characters; all properties together may take 32,767 bytes
_PERIOD = 0.5
_TIMEOUT = 5.0
_CLOSING = 3.0

_numbers = itertools.count()


class Record(NamedTuple):
    """One trace record, and the keys to find it by."""

    text: str
    keys: tuple[str, ...]


def record(kind: str, fields: Iterable[object], keys: Iterable[str | None]) -> Record:
    text = "\x01".join([kind, *map(_text, fields)]) + "\x02"
    return Record(text, tuple(key for joined in keys if joined for key in joined.replace(",", " ").split()))


def pub(context: SendContext) -> Record:
    """A message was sent."""
    result = context.result
    assert result is not None
    # As in RocketMQ, the record of a batch names none of its messages.
    message = context.messages[0] if len(context.messages) == 1 else None
    tags = None if message is None else message.tags or None
    keys = None if message is None else _joined(message.keys)
    fields = (
        context.started_ms,
        result.region,
        context.group,
        context.queue.topic,
        result.id,
        tags,
        keys,
        context.address,
        context.body_length,
        context.cost_ms,
        int(context.message_type),
        result.offset_id,
        result.status is SendStatus.SEND_OK,
    )
    return record("Pub", fields, (result.id, keys))


def ended(context: EndTransactionContext, now_ms: int) -> Record:
    """A half message was decided on."""
    fields = (
        now_ms,
        context.region,
        context.group,
        context.topic,
        context.message_id,
        context.tags,
        context.keys,
        context.address,
        int(MessageType.COMMIT),
        context.transaction_id,
        context.state.wire_name,
        context.from_check,
    )
    return record("EndTransaction", fields, (context.message_id, context.keys))


def recalled(now_ms: int, region: str, group: str, topic: str, message_id: str, success: bool) -> Record:
    return record("Recall", (now_ms, region, group, topic, message_id, success), (message_id,))


def segments(records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """The bodies and keys of the trace messages for `records`, each as full as allowed."""
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = keys_size = 0
    for text, found in records:
        found_size = sum(len(key) + 1 for key in found)
        if texts and (size + len(text) > _SEGMENT or keys_size + found_size > _MAX_KEYS):
            yield "".join(texts), props.KEY_SEPARATOR.join(keys)
            texts, keys, size, keys_size = [], {}, 0, 0
        texts.append(text)
        keys.update(dict.fromkeys(found))
        size += len(text)
        keys_size += found_size
    if texts:
        yield "".join(texts), props.KEY_SEPARATOR.join(keys)


class TraceHook(Hook):
    """Traces one producer or consumer. `start` and `close` it with them.

    A record is sent within half a second, or as soon as there are enough to fill a message.
    """

    def __init__(self, client: Client, group: str, direction: str) -> None:
        """`group` is the user's name of it, `direction` PRODUCE or CONSUME."""
        self._client = client
        self._topic = client.trace if isinstance(client.trace, str) else TRACE_TOPIC
        self._group = group
        self._sender_group = f"_INNER_TRACE_PRODUCER-{group}-{direction}-{next(_numbers)}"
        self._waiting: deque[Record] = deque()
        self._size = 0
        self._sending: Periodic | None = None
        self._producer: HiddenProducer | None = None
        self.dropped = 0

    def start(self) -> None:
        settings = ProducerSettings(timeout=_TIMEOUT)
        sender = Sender(self._client, self._sender_group, settings, vip=False)
        self._producer = HiddenProducer(self._client, sender)
        self._sending = self._client.tasks.every(f"trace of {self._group}", _PERIOD, _PERIOD, self.flush)

    async def close(self) -> None:
        """Send waiting records, if possible within a few seconds, and end."""
        if self._sending is None:
            return
        await self._sending.stop()
        self._sending = None
        await self.flush(_CLOSING)

    def offer(self, record: Record) -> None:
        """Queue a record, unless too many are waiting."""
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(record)
        self._size += len(record.text)
        if self._size >= _SEGMENT and self._sending is not None:
            self._sending.wake()

    async def flush(self, timeout: float = _TIMEOUT) -> None:
        """Send all waiting records. Those that cannot be sent are dropped and logged."""
        assert self._producer is not None
        records, self._size = list(self._waiting), 0
        self._waiting.clear()
        deadline = time.monotonic() + timeout
        for body, keys in segments(records):
            left = deadline - time.monotonic()
            try:
                properties = {props.KEYS: keys, props.WAIT: "true"}
                await self._producer.send(self._topic, body.encode("utf-8", "replace"), 0, properties, timeout=left)
            except PyroMQError as exc:
                lost = body.count("\x02")
                self.dropped += lost
                logger.warning("trace of %s: %d records lost: %s", self._group, lost, exc)

    # What is traced

    def after_send(self, context: SendContext) -> None:
        if context.result is not None and context.trace_on and not self._is_trace(context.queue.topic):
            self.offer(pub(context))

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.offer(ended(context, _now_ms()))

    def recall(self, topic: str, message_id: str, success: bool) -> None:
        self.offer(recalled(_now_ms(), DEFAULT_REGION, self._group, topic, message_id, success))

    def before_consume(self, context: ConsumeContext) -> None:
        traced = [
            message
            for message in context.messages
            if message.properties.get(props.TRACE_ON) != "false" and not self._is_trace(message.topic)
        ]
        request_id, now = make_uniq_key(), _now_ms()
        context.notes[self] = (request_id, now, traced)
        for message in traced:
            region, keys = message.properties.get(props.MSG_REGION), _joined(message.keys)
            fields = (now, region, context.group, request_id, message.msg_id, message.reconsume_times, keys)
            self.offer(record("SubBefore", fields, (message.msg_id, keys)))

    def after_consume(self, context: ConsumeContext) -> None:
        if self not in context.notes:
            return
        request_id, began, traced = context.notes.pop(self)
        now = _now_ms()
        cost = (now - began) // max(len(context.messages), 1)
        for message in traced:
            keys = _joined(message.keys)
            fields = (
                request_id,
                message.msg_id,
                cost,
                context.success,
                keys,
                int(context.returned),
                now,
                context.group,
            )
            self.offer(record("SubAfter", fields, (message.msg_id, keys)))

    def _is_trace(self, topic: str) -> bool:
        return topic in (self._topic, TRACE_TOPIC)


def _joined(keys: str | Sequence[str]) -> str | None:
    return (keys if isinstance(keys, str) else props.KEY_SEPARATOR.join(keys)) or None


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
