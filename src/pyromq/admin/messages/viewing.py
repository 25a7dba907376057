"""One message with everything that is known about it, and sending messages by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta  # noqa: TC003 - fields of rows
from typing import TYPE_CHECKING

from pyromq.client.admin.times import from_millis
from pyromq.errors import ConfigError, NoMessage, PyroMQError, TopicNotFound
from pyromq.protocol import properties as props
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import TRACE_TOPIC

from .bodies import body_of, host
from .dead_letters import origin_id, origin_topic
from .ranges import parse_place, place_of
from .search import message_at
from .sending import send_all
from .traces import trace_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.message import MessageExt

    from ..listing import Listing
    from .traces import TraceEvent

# What a pull adds: where the queue began and ended at that moment.
_OF_THE_PULL = (props.MIN_OFFSET, props.MAX_OFFSET)
# RocketMQ's messageDelayLevel unless a broker says otherwise; the first is level 1.
DELAY_LEVELS = ("1s", "5s", "10s", "30s", *(f"{minutes}m" for minutes in (*range(1, 11), 20, 30)), "1h", "2h")


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message. `own` are the properties that its producer chose, `system` those of clients and brokers."""

    id: str
    topic: str
    broker: str
    queue: int
    offset: int
    tags: str | None
    keys: tuple[str, ...]
    stored: datetime | None
    born: datetime | None
    born_host: str
    store_host: str
    offset_id: str
    log_offset: int
    size: int
    stored_size: int
    crc: int
    retries: int
    flag: int
    sys_flag: int
    own: dict[str, str]
    system: dict[str, str]
    traced: bool
    origin_topic: str | None
    origin_id: str
    body: bytes

    @property
    def place(self) -> str:
        return f"{self.broker}:{self.queue}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one group has done with a message, in RocketMQ's words."""

    group: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to be sent by hand. `at` is `broker:queue` for one certain queue."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    delay_level: int = 0
    delay: timedelta | None = None
    shard_key: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message was stored; `status` is SEND_OK, or what the broker could not confirm."""

    id: str
    status: str
    broker: str
    queue: int
    offset: int


@dataclass(frozen=True, slots=True)
class Traced:
    """A message's trace, or why there is none."""

    events: Listing[TraceEvent] | None
    reason: str = ""


def view_of(message: MessageExt) -> MessageView:
    record = message.record
    body = body_of(message)
    shown = {name: value for name, value in message.properties.items() if name not in _OF_THE_PULL}
    return MessageView(
        message.msg_id,
        message.topic,
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.tags,
        tuple(message.keys),
        from_millis(message.store_timestamp),
        from_millis(message.born_timestamp),
        host(record.born_address),
        host(record.store_address),
        message.offset_msg_id,
        record.physical_offset,
        len(body),
        len(record.body),
        record.body_crc,
        message.reconsume_times,
        record.flag,
        record.sys_flag,
        {name: value for name, value in sorted(shown.items()) if name not in props.RESERVED},
        {name: value for name, value in sorted(shown.items()) if name in props.RESERVED},
        message.properties.get(props.TRACE_ON, "true") == "true",
        origin_topic(message),
        origin_id(message),
        body,
    )


async def message_view(admin: AdminClient, topic: str, message_id: str) -> MessageExt:
    """A message by either of its ids. Raises NoMessage, TopicNotFound."""
    message = await admin.messages.get(topic, message_id)
    if message.topic != topic:
        raise NoMessage(f"no message of topic {topic} has the id {message_id}")
    return message


async def neighbours(admin: AdminClient, message: MessageExt) -> tuple[bool, bool]:
    """Whether there is a message before and after this one in its queue."""
    queue = message.queue
    try:
        first, end = await admin.offsets.minimum(queue), await admin.offsets.maximum(queue)
    except PyroMQError:
        return False, False
    return message.queue_offset > first, message.queue_offset + 1 < end


async def deliveries(admin: AdminClient, message: MessageExt) -> list[Delivery]:
    """What each group of its topic has done with a message."""
    return [Delivery(each.group, each.state.value, each.reason) for each in await admin.messages.track(message)]


async def traced(admin: AdminClient, name: str, *, message: MessageView | None = None) -> Traced:
    """The trace of a message, or whether tracing is off at the producer, at the broker, or cannot be asked."""
    try:
        return Traced(await trace_of(admin, name))
    except TopicNotFound:
        return Traced(None, f"no broker has the topic {TRACE_TOPIC}: set traceTopicEnable=true at the brokers")
    except NoMessage:
        if message is not None and not message.traced:
            return Traced(None, "the broker told its producer not to trace this message (TRACE_ON=false)")
        return Traced(None, "nobody traced it: tracing is off at its producer and its consumers, or the trace is gone")
    except PyroMQError as exc:
        return Traced(None, f"the trace could not be looked up: {exc}")


async def publish(
    admin: AdminClient, draft: Draft, *, count: int = 1, rate: float | None = None, group: str
) -> list[Sent]:
    """Send a message `count` times. Raises ConfigError for a malformed place, SendFailed and what brokers refuse."""
    queue = None
    if draft.at:
        try:
            broker, number, offset = parse_place(draft.at)
        except ValueError:
            offset = 0
        if offset is not None:
            raise ConfigError(f"{draft.at!r} is not a queue; write broker:number")
        queue = MessageQueue(topic=draft.topic, broker_name=broker, queue_id=number)

    async def copies() -> AsyncIterator[Message]:
        for _ in range(count):
            yield Message(
                draft.topic,
                draft.body,
                tags=draft.tags,
                keys=draft.keys,
                properties=dict(draft.properties or {}),
                delay_level=draft.delay_level,
                delay=draft.delay,
                shard_key=draft.shard_key,
            )

    return [
        Sent(each.id, each.status.value, each.queue.broker_name, each.queue.queue_id, each.offset)
        async for each in send_all(admin.client, group, copies(), queue=queue, rate=rate)
    ]


__all__ = [
    "DELAY_LEVELS",
    "Delivery",
    "Draft",
    "MessageView",
    "Sent",
    "Traced",
    "deliveries",
    "message_at",
    "message_view",
    "neighbours",
    "place_of",
    "publish",
    "traced",
    "view_of",
]
