"""The app of `pyromq message`, and the options that choose messages of a topic."""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.messages.ranges import parse_place, topic_ranges
from pyromq.admin.messages.reading import read_ranges

from ...failures import CommandFailed, Exit
from ...parameters import pairs_of
from ...times import FORMS, parse_time
from ...verbs import new_app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pyromq.admin.messages.ranges import TopicRanges
    from pyromq.client.consumer.subscriptions import Expression
    from pyromq.protocol.message import MessageExt

    from ...session import Session

app = new_app("Find, read, follow, send, export and import messages.")

Begin = Annotated[str | None, typer.Option("--begin", "--since", metavar="TIME", help=f"Stored at or after: {FORMS}.")]
End = Annotated[str | None, typer.Option("--end", "--until", metavar="TIME", help="Stored at or before this time.")]
Queue = Annotated[
    str | None,
    typer.Option("-q", "--queue", metavar="BROKER:N", help="Only this queue; BROKER alone means all its queues."),
]
Tag = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with this tag; repeatable.")]
SqlOption = Annotated[
    str | None, typer.Option("--sql", metavar="EXPR", help="Only messages that this SQL92 expression selects.")
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="PROP=VALUE", help="Only with this property; repeatable.")
]
Grep = Annotated[str | None, typer.Option("--grep", metavar="REGEX", help="Only if the body matches this pattern.")]
Offset = Annotated[int | None, typer.Option("--offset", min=0, help="Start at this offset in each queue.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.01, help="At most N messages a second.")]
LimitOption = typer.Option("--limit", min=0, help="At most N messages; 0 is all.")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a topic."""

    begin: Begin = None
    end: End = None
    queue: Queue = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages of that part to choose."""

    tag: Tag = None
    sql: SqlOption = None
    where: Where = None
    grep: Grep = None

    def __bool__(self) -> bool:
        """Whether any filter is set."""
        return bool(self.tag or self.sql or self.where or self.grep)


ALL = Part()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages to choose: by the brokers' filter, then by ours."""

    expression: Expression
    fits: Callable[[MessageExt], bool]


def wanted(given: Filter) -> Wanted:
    """Raises CommandFailed for malformed options."""
    if given.tag and given.sql:
        raise CommandFailed("use --tag or --sql, not both", Exit.USAGE)
    expression: Expression = "*"
    if given.tag:
        expression = " || ".join(given.tag)
    elif given.sql is not None:
        from pyromq.client import Sql

        expression = Sql(given.sql)
    pairs = pairs_of([_pair(word) for word in given.where]) if given.where else {}
    try:
        pattern = re.compile(given.grep.encode()) if given.grep is not None else None
    except re.error as exc:
        raise CommandFailed(f"{given.grep!r} is not a regular expression: {exc}", Exit.USAGE) from exc
    return Wanted(expression, lambda message: _fits(message, pairs, pattern))


def _pair(word: str) -> str:
    if "=" not in word:
        raise CommandFailed(f"{word!r} is not PROP=VALUE", Exit.USAGE)
    return word


def _fits(message: MessageExt, pairs: dict[str, str], pattern: re.Pattern[bytes] | None) -> bool:
    from .rows import body_of

    properties = message.properties
    if any(properties.get(name) != value for name, value in pairs.items()):
        return False
    return pattern is None or pattern.search(body_of(message)) is not None


def queue_of(text: str) -> tuple[str, int]:
    """The broker and queue in `BROKER:N`."""
    try:
        broker, queue, offset = parse_place(text)
    except ValueError:
        offset = -1
    if offset is not None:
        raise CommandFailed(f"{text!r} is not a queue; use BROKER:N", Exit.USAGE) from None
    return broker, queue


def moment(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text, datetime.now().astimezone())


async def chosen(session: Session, topic: str, part: Part = ALL, offset: int | None = None) -> TopicRanges:
    """The part of a topic that the options choose; reports brokers that are missing."""
    broker: str | None = part.queue
    queue_id = None
    if part.queue is not None and ":" in part.queue:
        broker, queue_id = queue_of(part.queue)
    ranges = await topic_ranges(
        session.admin,
        topic,
        broker=broker,
        queue_id=queue_id,
        begin=moment(part.begin),
        end=moment(part.end),
        offset=offset,
    )
    session.incomplete(ranges.missing)
    return ranges


async def matching(session: Session, ranges: TopicRanges, want: Wanted) -> AsyncGenerator[MessageExt, None]:
    """The chosen messages, in the order they were stored."""
    async with aclosing(read_ranges(session.admin, ranges, want.expression)) as messages:
        async for message in messages:
            if want.fits(message):
                yield message
