"""Find messages, newest first, without reading more than a budget allows.

    found = await search(admin, parse_query("topic:orders tag:paid prop.region=eu"))

An id or a key is looked up in the brokers' index. Anything else reads queues from their ends backwards, window by
window, until enough is found or the budget is spent: `scanned` and `total` say how much of it was read. `older` is
where to go on. Changes no offsets.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import Missing, fan_out, partly
from pyromq.client.admin.times import from_millis
from pyromq.client.consumer.subscriptions import ALL, Sql
from pyromq.errors import ConfigError, NoMessage, PyroMQError, RemoteProtocolError
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import is_dlq_topic, is_retry_topic

from ..times import parse_time
from ..topic_kinds import TopicKind, topic_kind
from .bodies import body_of, text_of
from .dead_letters import origin_id, origin_topic
from .ranges import QueueRange, TopicRanges, parse_place, topic_ranges
from .reading import read_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.client.admin import AdminClient
    from pyromq.client.consumer.subscriptions import Expression
    from pyromq.protocol.message import MessageExt

    from .query import Query

BUDGET = 20_000  # messages
BYTES = 64 << 20
SECONDS = 3.0
_WINDOW = 64  # messages of each queue to begin with
_LARGEST_WINDOW = 1024
_PREVIEW = 160  # characters
_EVERYWHERE = 64  # topics in which an id is looked for
_OFFSET_ID = re.compile(r"[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{24})?")


@dataclass(frozen=True, slots=True)
class MessageSummary:
    """A message in a list. `preview` is the beginning of its body, `form` what that is: json, text or binary."""

    id: str
    topic: str
    broker: str
    queue: int
    offset: int
    stored: datetime | None
    tags: str | None
    keys: tuple[str, ...]
    size: int
    form: str
    preview: str
    retries: int
    offset_id: str
    # Of a message in a retry or dead-letter topic: where it was sent first, and the id that its sender knows.
    origin: str | None = None
    origin_id: str | None = None

    @property
    def place(self) -> str:
        return f"{self.broker}:{self.queue}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Found:
    """Messages, newest first. `scanned` of `total` messages were read; `truncated` means more may match.

    `older` is for the next call, None at the beginning of the queues.
    """

    rows: tuple[MessageSummary, ...]
    scanned: int = 0
    total: int = 0
    truncated: bool = False
    older: str | None = None
    missing: tuple[Missing, ...] = ()


def summary_of(message: MessageExt) -> MessageSummary:
    body = body_of(message)
    text = text_of(body[: _PREVIEW * 4]) if len(body) > _PREVIEW * 4 else text_of(body)
    if text is None and len(body) > _PREVIEW * 4:
        # The cut may have split a letter.
        text = text_of(body[: _PREVIEW * 4].decode("utf-8", "ignore").encode())
        text = text if text is not None and len(text.encode()) > _PREVIEW * 4 - 4 else None
    if text is None:
        form, preview = "binary", body[:32].hex(" ")
    else:
        form = "json" if text.lstrip()[:1] in ("{", "[") else "text"
        preview = " ".join(text[: _PREVIEW * 2].split())[:_PREVIEW]
    parked = is_dlq_topic(message.topic) or is_retry_topic(message.topic)
    return MessageSummary(
        message.msg_id,
        message.topic,
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        from_millis(message.store_timestamp),
        message.tags,
        tuple(message.keys),
        len(body),
        form,
        preview,
        message.reconsume_times,
        message.offset_msg_id,
        origin_topic(message) if parked else None,
        origin_id(message) if parked else None,
    )


async def search(
    admin: AdminClient,
    query: Query,
    *,
    limit: int = 50,
    older: str | None = None,
    budget: int = BUDGET,
    seconds: float = SECONDS,
) -> Found:
    """Raises ConfigError for a query that says too little, TopicNotFound, and whatever brokers refuse it with."""
    if query.at is not None:
        return _few([await message_at(admin, *_topic_and_place(query))])
    if query.id or query.key or query.word:
        return await _by_name(admin, query)
    if query.topic is None:
        raise ConfigError("say in which topic: topic:name, or an id or key")
    return await _by_reading(admin, query, limit, older, _Budget(budget, seconds))


# By id, key or place


async def message_at(admin: AdminClient, topic: str, broker: str, queue: int, offset: int) -> MessageExt:
    """Raises NoMessage if it is still to come, or gone."""
    return await admin.messages.at(MessageQueue(topic=topic, broker_name=broker, queue_id=queue), offset)


def _topic_and_place(query: Query) -> tuple[str, str, int, int]:
    try:
        broker, queue, offset = parse_place(query.at or "")
    except ValueError:
        offset = None
    if offset is None:
        raise ConfigError(f"{query.at!r} is not a place; write at:broker:queue:offset")
    if query.topic is None:
        raise ConfigError("say in which topic: topic:name")
    return query.topic, broker, queue, offset


async def _by_name(admin: AdminClient, query: Query) -> Found:
    name = query.id or query.key or query.word or ""
    if query.topic is not None:
        messages, missing = await _named_in(admin, query.topic, name, query)
        if not messages and query.word and not missing:
            await admin.topics.route(query.topic)  # a topic that does not exist is not an empty one
        return _few(messages, missing)
    if _OFFSET_ID.fullmatch(name):
        try:
            return _few([await admin.messages.by_offset_id(name)])
        except PyroMQError:
            pass  # an id that only looks like a place
    topics = [topic for topic in await admin.topics.names() if topic_kind(topic) is TopicKind.NORMAL]
    if len(topics) > _EVERYWHERE:
        raise ConfigError(f"there are {len(topics)} topics; say in which to look: topic:name {name}")
    answers = await fan_out(topics, lambda topic: _named_in(admin, topic, name, query))
    silent = {each.server: each for _, missing in answers.results.values() for each in missing}
    found = [message for messages, _ in answers.results.values() for message in messages]
    return _few(found, silent.values())


async def _named_in(
    admin: AdminClient, topic: str, name: str, query: Query
) -> tuple[list[MessageExt], tuple[Missing, ...]]:
    found: dict[str, MessageExt] = {}
    missing: tuple[Missing, ...] = ()
    if not query.key:
        try:
            message = await admin.messages.get(topic, name)
            found[message.offset_msg_id] = message
        except (NoMessage, RemoteProtocolError):
            pass
    if not query.id:
        try:
            messages, missing = await partly(admin.messages.by_key(topic, name))
            found |= {each.offset_msg_id: each for each in messages}
        except NoMessage:
            pass
    return [each for each in found.values() if query.fits(each)], missing


def _few(messages: Iterable[MessageExt], missing: Iterable[Missing] = ()) -> Found:
    ordered = sorted(messages, key=lambda each: each.store_timestamp, reverse=True)
    return Found(tuple(map(summary_of, ordered)), len(ordered), len(ordered), missing=tuple(missing))


# By reading


@dataclass(slots=True)
class _Budget:
    messages: int
    seconds: float
    bytes: int = BYTES
    scanned: int = 0
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def is_spent(self) -> bool:
        late = asyncio.get_running_loop().time() - self.began > self.seconds
        return late or self.messages <= 0 or self.bytes <= 0


async def _by_reading(admin: AdminClient, query: Query, limit: int, older: str | None, budget: _Budget) -> Found:
    ranges = await ranges_of(admin, query)
    parts = _cut(ranges.queues, older)
    total = sum(part.count for part in parts)
    expression = expression_of(query)
    missing = {each.server: each for each in ranges.missing}
    ends = {part.queue: part.end for part in parts}
    found: list[MessageSummary] = []
    window = max(limit, _WINDOW) if not query.is_filtered and expression == ALL else _WINDOW
    while any(ends[part.queue] > part.begin for part in parts) and len(found) < limit and not budget.is_spent:
        windows = {
            str(part.queue): replace(part, begin=max(part.begin, ends[part.queue] - window), end=ends[part.queue])
            for part in parts
            if ends[part.queue] > part.begin
        }
        answers = await fan_out(windows, lambda part: _read_window(admin, part, expression, query, budget))
        missing |= {each.server: each for each in answers.missing}
        for name, part in windows.items():
            rows, begin = answers.results.get(name, ([], part.begin))
            found += rows
            ends[part.queue] = begin
        window = min(window * 4, _LARGEST_WINDOW)
    found.sort(key=lambda row: (row.stored.timestamp() if row.stored else 0.0, row.queue, row.offset), reverse=True)
    shown, rest = found[:limit], found[limit:]
    for row in rest:  # they come again on the next page
        queue = MessageQueue(topic=row.topic, broker_name=row.broker, queue_id=row.queue)
        ends[queue] = max(ends[queue], row.offset + 1)
    more = any(ends[part.queue] > part.begin for part in parts)
    token = ",".join(f"{part.queue.broker_name}:{part.queue.queue_id}:{ends[part.queue]}" for part in parts)
    truncated = more and len(shown) < limit
    return Found(
        tuple(shown), min(budget.scanned, total), total, truncated, token if more else None, tuple(missing.values())
    )


async def _read_window(
    admin: AdminClient, part: QueueRange, expression: Expression, query: Query, budget: _Budget
) -> tuple[list[MessageSummary], int]:
    """What matches in a part of a queue, and from where on it was read: the end is read first if the budget ends."""
    rows = []
    async with aclosing(read_range(admin, part, expression)) as messages:
        async for message in messages:
            budget.bytes -= len(message.record.body)
            if query.fits(message):
                rows.append(summary_of(message))
    budget.messages -= part.count
    budget.scanned += part.count
    return rows, part.begin


async def ranges_of(admin: AdminClient, query: Query) -> TopicRanges:
    """The queues and times that a query is about."""
    now = datetime.now(UTC)
    broker, queue_id = query.queue, None
    if query.queue is not None and ":" in query.queue:
        try:
            broker, queue_id, offset = parse_place(query.queue)
        except ValueError:
            offset = 0
        if offset is not None:
            raise ConfigError(f"{query.queue!r} is not a queue; write queue:broker:number")
    if query.topic is None:
        raise ConfigError("say in which topic: topic:name")
    return await topic_ranges(
        admin,
        query.topic,
        broker=broker,
        queue_id=queue_id,
        begin=None if query.after is None else parse_time(query.after, now),
        end=None if query.before is None else parse_time(query.before, now),
    )


def expression_of(query: Query) -> Expression:
    """What the brokers filter by."""
    return Sql(query.sql) if query.sql is not None else query.tag or ALL


def _cut(parts: tuple[QueueRange, ...], older: str | None) -> tuple[QueueRange, ...]:
    if not older:
        return parts
    ends = places(older)
    return tuple(
        replace(part, end=max(part.begin, min(part.end, ends.get((part.queue.broker_name, part.queue.queue_id), 0))))
        for part in parts
    )


def places(text: str) -> dict[tuple[str, int], int]:
    """The offsets in `broker:queue:offset,…`. Raises ConfigError."""
    found = {}
    for word in text.split(","):
        try:
            broker, queue, offset = parse_place(word)
        except ValueError:
            offset = None
        if offset is None:
            raise ConfigError(f"{word!r} is not a place in a queue")
        found[broker, queue] = offset
    return found
