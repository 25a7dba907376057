"""Dead letters: messages that groups failed to consume too often, and sending them again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import fan_out
from pyromq.errors import PyroMQError
from pyromq.protocol import properties as props
from pyromq.protocol.message import Message
from pyromq.protocol.names import DLQ_PREFIX, dlq_topic, is_dlq_topic, is_retry_topic

from ..listing import Listing
from ..topics import topic_stats
from .ranges import place_of
from .sending import Pace

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.message import MessageExt


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of one group; None if brokers did not answer."""

    group: str
    messages: int | None
    last_stored: datetime | None
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Redriven:
    """A dead letter that was sent again, or why it was not."""

    id: str
    topic: str | None
    new_id: str | None
    at: str | None
    error: str | None


async def dead_letter_list(admin: AdminClient) -> Listing[DeadLetters]:
    """All groups that have dead letters, those with the most first."""
    topics = [topic for topic in await admin.topics.names() if is_dlq_topic(topic)]
    answers = await fan_out(topics, lambda topic: topic_stats(admin, topic))
    rows = []
    missing = list(answers.missing)
    for topic, stats in answers.results.items():
        missing += stats.missing
        times = [row.last_stored for row in stats.rows if row.last_stored is not None]
        known = [row.messages for row in stats.rows if row.messages is not None]
        rows.append(
            DeadLetters(
                topic.removeprefix(DLQ_PREFIX),
                sum(known) if known else None,
                max(times, default=None),
                tuple(sorted({row.broker for row in stats.rows})),
            )
        )
    rows.sort(key=lambda row: (-(row.messages or 0), row.group))
    total = sum(row.messages or 0 for row in rows)
    return Listing.make(DeadLetters, rows, missing, _summary(total, len(rows)))


def _summary(letters: int, groups: int) -> str:
    return f"{letters} dead letter{'' if letters == 1 else 's'} of {groups} group{'' if groups == 1 else 's'}"


def origin_topic(message: MessageExt) -> str | None:
    """The topic a dead letter was first sent to; None if it does not say."""
    for topic in (message.real_topic, message.properties.get(props.DLQ_ORIGIN_TOPIC)):
        if topic and not is_dlq_topic(topic) and not is_retry_topic(topic):
            return topic
    return None


def origin_id(message: MessageExt) -> str:
    """The id by which its sender knows a dead letter."""
    properties = message.properties
    return (
        properties.get(props.UNIQ_KEY)
        or properties.get(props.DLQ_ORIGIN_MESSAGE_ID)
        or properties.get(props.ORIGIN_MESSAGE_ID)
        or message.offset_msg_id
    )


def sent_again(message: MessageExt, topic: str) -> Message:
    """The message with everything its sender set, and the id of the one it repeats.

    Raises CorruptRecord if its body cannot be decompressed.
    """
    own = {key: value for key, value in message.properties.items() if key not in props.RESERVED}
    for added in (props.ORIGIN_GROUP, props.TRANSACTION_ID, props.TRANSACTION_CHECK_TIMES, props.START_DELIVER_TIME):
        own.pop(added, None)
    shard_key = own.pop(props.SHARDING_KEY, None)
    own[props.REPLAY_OF] = origin_id(message)
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=own,
        flag=message.record.flag,
        shard_key=shard_key,
    )


async def redrive(
    admin: AdminClient,
    messages: AsyncIterable[MessageExt],
    *,
    to: str | None = None,
    rate: float | None = None,
    producer_group: str = "pyromq_redrive",
) -> AsyncGenerator[Redriven, None]:
    """Send messages to the topic they came from, or to `to`, at most `rate` a second.

    A message that fails does not stop the others. The dead letters stay where they are: queues only grow, and
    `REPLAY_OF` in the new message says which one it repeats.
    """
    from pyromq.client.producer.producer import Producer

    pace = Pace(rate)
    async with Producer(producer_group, client=admin.client) as producer:
        async for message in messages:
            await pace.turn()
            topic = to or origin_topic(message)
            name = origin_id(message)
            if topic is None:
                yield Redriven(name, None, None, None, "it does not say where it came from; choose a topic with --to")
                continue
            try:
                result = await producer.send(sent_again(message, topic))
            except PyroMQError as exc:
                yield Redriven(name, topic, None, None, str(exc))
            else:
                yield Redriven(name, topic, result.id, place_of(result.queue, result.offset), None)


def dead_letter_topic(group: str) -> str:
    """The topic of a group's dead letters; the name of such a topic is returned unchanged."""
    return group if is_dlq_topic(group) else dlq_topic(group)
