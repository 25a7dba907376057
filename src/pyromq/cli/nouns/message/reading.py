"""`pyromq message list|count|tail|consume`: read many messages of a topic."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.ranges import last_messages
from pyromq.admin.messages.reading import read_last, read_ranges
from pyromq.admin.messages.tail import Tail
from pyromq.client.admin.times import from_millis

from ...failures import CommandFailed, Exit
from ...parameters import Topic
from ...session import Session
from ...times import show_time
from ...verbs import reading
from .options import Begin, Filter, LimitOption, Offset, Part, Queue, SqlOption, Tag, app, chosen, matching, wanted
from .rows import MessageRow, message_row

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pyromq.client.consumer.subscriptions import Expression
    from pyromq.protocol.message import MessageExt


Last = Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="The last N.")]


@reading(app, "list", timeout=60.0)
async def list_messages(
    session: Session,
    topic: Topic,
    part: Part,
    which: Filter,
    *,
    offset: Offset = None,
    last: Last = None,
    limit: Annotated[int, LimitOption] = 50,
) -> AsyncIterator[MessageRow]:
    """List messages of a topic, in the order they were stored.

    From the first on, or the last N with --last. Changes no offsets.

    Example: pyromq message list orders --begin -15m --tag paid
    """
    want = wanted(which)
    ranges = await chosen(session, topic, part, offset)
    output = session.printer.output
    if last is not None:
        for message in await read_last(session.admin, ranges, last, want.expression, want.fits):
            yield message_row(message, output)
        return
    count = 0
    async with aclosing(matching(session, ranges, want)) as messages:
        async for message in messages:
            if limit and count == limit:
                session.note(f"stopped at {limit}; --limit 0 shows all, --last the newest")
                return
            count += 1
            yield message_row(message, output)


class By(StrEnum):
    tag = "tag"
    key = "key"
    queue = "queue"
    hour = "hour"
    minute = "minute"


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages share a value."""

    what: str
    messages: int


@reading(app, "count", timeout=60.0)
async def count_messages(
    session: Session,
    topic: Topic,
    part: Part,
    which: Filter,
    by: Annotated[By | None, typer.Option("--by", help="Count by this; reads all messages.")] = None,
) -> Listing[Count]:
    """Count the messages of a topic.

    Computed from offsets, or by reading the messages if filters or --by need it.

    Example: pyromq message count orders --by tag
    """
    want = wanted(which)
    ranges = await chosen(session, topic, part)
    if by in (None, By.queue) and not (which or part.begin or part.end):
        if by is None:
            return Listing.make(Count, [Count(topic, ranges.count)])
        rows = [Count(f"{each.queue.broker_name}:{each.queue.queue_id}", each.count) for each in ranges.queues]
        return Listing.make(Count, rows, summary=f"{ranges.count} messages")
    counts: Counter[str] = Counter()
    async with aclosing(matching(session, ranges, want)) as messages:
        async for message in messages:
            counts.update(_what(message, by, topic))
    if by is None:
        return Listing.make(Count, [Count(topic, counts[topic])])
    ordered = sorted(counts.items()) if by in (By.hour, By.minute, By.queue) else counts.most_common()
    return Listing.make(Count, [Count(*each) for each in ordered], summary=f"{sum(counts.values())} messages")


def _what(message: MessageExt, by: By | None, topic: str) -> list[str]:
    match by:
        case None:
            return [topic]
        case By.tag:
            return [message.tags or ""]
        case By.key:
            return message.keys or [""]
        case By.queue:
            return [f"{message.broker_name}:{message.queue_id}"]
        case By.hour | By.minute:
            when = from_millis(message.store_timestamp)
            if when is None:
                return [""]
            start = when.replace(microsecond=0, second=0)
            return [show_time(start.replace(minute=0) if by is By.hour else start)]


@reading(app, "tail", timeout=None)
async def tail(
    session: Session,
    topic: Topic,
    which: Filter,
    *,
    queue: Queue = None,
    begin: Begin = None,
    last: Last = None,
    count: Annotated[int, typer.Option("--count", min=0, help="Stop after N messages; 0 is never.")] = 0,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SEC", min=0.1, help="Stop after this time.")
    ] = None,
) -> AsyncIterator[MessageRow]:
    """Follow a topic: print every message as it arrives.

    Runs until Ctrl-C, or as long as --count and --for allow. Changes no offsets.

    Example: pyromq message tail orders --grep 4711
    """
    want = wanted(which)
    ranges = await chosen(session, topic, Part(begin, None, queue))
    if last is not None:
        ranges = last_messages(ranges, last)
    elif begin is None:
        ranges = replace(ranges, queues=tuple(replace(part, begin=part.end) for part in ranges.queues))
    ends_at = None if seconds is None else asyncio.get_running_loop().time() + seconds
    shown = 0
    async with Tail(session.admin, ranges, want.expression, session.note, new_queues=queue is None) as messages:
        while not count or shown < count:
            try:
                async with asyncio.timeout_at(ends_at):
                    message = await anext(messages)
            except TimeoutError:
                return
            if want.fits(message):
                shown += 1
                yield message_row(message, session.printer.output)


@reading(app, "consume", timeout=None)
async def consume(
    session: Session,
    topic: Topic,
    part: Part,
    *,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="GROUP", help="Consume as a member of this group; moves its offsets."),
    ] = None,
    offset: Offset = None,
    tag: Tag = None,
    sql: SqlOption = None,
    count: Annotated[int, typer.Option("-c", "--count", min=0, help="Stop after N messages; 0 is all.")] = 0,
    idle: Annotated[
        float,
        typer.Option("--idle", metavar="SEC", min=0.1, help="With a group: stop when nothing arrives for this long."),
    ] = 5.0,
) -> AsyncIterator[MessageRow]:
    """Read a topic to its end, or consume as a member of a group.

    With a group it gets the messages the group has not consumed yet, and moves the group's offsets.

    Example: pyromq message consume orders --group billing --count 10
    """
    want = wanted(Filter(tag, sql))
    ranges = await chosen(session, topic, part, offset)
    output = session.printer.output
    if group is not None:
        if part != Part() or offset is not None:
            raise CommandFailed(
                "a group continues at its own offsets; `pyromq group offsets reset` moves them", Exit.USAGE
            )
        async with aclosing(_as_member(session, group, topic, want.expression, count, idle)) as consumed:
            async for message in consumed:
                yield message_row(message, output)
        return
    shown = 0
    async with aclosing(read_ranges(session.admin, ranges, want.expression)) as messages:
        async for message in messages:
            yield message_row(message, output)
            shown += 1
            if shown == count:
                return


async def _as_member(
    session: Session, group: str, topic: str, expression: Expression, count: int, idle: float
) -> AsyncGenerator[MessageExt, None]:
    """Consume and acknowledge one message at a time."""
    from pyromq.client import Consumer, StartAt

    done = 0
    async with Consumer(
        group, {topic: expression}, client=session.admin.client, start_at=StartAt.FIRST, max_concurrency=1
    ) as consumer:
        messages = aiter(consumer)
        while not count or done < count:
            try:
                async with asyncio.timeout(idle):
                    message = await anext(messages)
            except (TimeoutError, StopAsyncIteration):
                return
            yield message.raw
            message.ack()
            done += 1
