"""Options by which verbs choose messages of a topic, and what they stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.messages.ranges import parse_place, topic_spans

from ...failures import CommandFailed, Exit
from ...parameters import pairs_of
from ...times import FORMS, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.admin.messages.ranges import Spans
    from pyromq.client.consumer.subscriptions import Expression
    from pyromq.protocol.message import MessageExt

    from ...session import Session

Begin = Annotated[str | None, typer.Option("--begin", "--since", metavar="TIME", help=f"Stored since: {FORMS}.")]
End = Annotated[str | None, typer.Option("--end", "--until", metavar="TIME", help="Stored until then.")]
Queue = Annotated[
    str | None, typer.Option("-q", "--queue", metavar="BROKER:N", help="Only this queue; BROKER: all of a broker.")
]
Tag = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with this tag; may be repeated.")]
SqlOption = Annotated[str | None, typer.Option("--sql", metavar="EXPR", help="Only what this SQL92 selects.")]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="PROP=VALUE", help="Only with this property; may be repeated.")
]
Grep = Annotated[str | None, typer.Option("--grep", metavar="REGEX", help="Only where it is found in the body.")]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages are wanted: what brokers select, and what is looked at here."""

    expression: Expression
    fits: Callable[[MessageExt], bool]


def wanted(tag: list[str] | None, sql: str | None, where: list[str] | None, grep: str | None) -> Wanted:
    """Raises CommandFailed for what cannot be understood."""
    if tag and sql:
        raise CommandFailed("say --tag or --sql, not both", Exit.USAGE)
    expression: Expression = "*"
    if tag:
        expression = " || ".join(tag)
    elif sql is not None:
        from pyromq.client import Sql

        expression = Sql(sql)
    pairs = pairs_of([_pair(word) for word in where or ()]) if where else {}
    try:
        pattern = re.compile(grep.encode()) if grep is not None else None
    except re.error as exc:
        raise CommandFailed(f"{grep!r} is no regular expression: {exc}", Exit.USAGE) from exc
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


def place(text: str | None) -> tuple[str | None, int | None]:
    """The broker and queue that `--queue` means."""
    if text is None:
        return None, None
    if ":" not in text:
        return text, None
    try:
        broker, queue, offset = parse_place(text)
    except ValueError:
        offset = -1
    if offset is not None:
        raise CommandFailed(f"{text!r} is no queue; write BROKER:N", Exit.USAGE) from None
    return broker, queue


def moment(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text, datetime.now().astimezone())


async def chosen(
    session: Session,
    topic: str,
    begin: str | None = None,
    end: str | None = None,
    queue: str | None = None,
    offset: int | None = None,
) -> Spans:
    """The part of a topic that the options mean; says which brokers are missing."""
    broker, queue_id = place(queue)
    spans = await topic_spans(
        session.admin,
        topic,
        broker=broker,
        queue_id=queue_id,
        begin=moment(begin),
        end=moment(end),
        offset=offset,
    )
    session.incomplete(spans.missing)
    return spans
