"""`pyromq dlq`: dead letters, the messages a group failed to consume too often."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.dead_letters import (
    DeadLetters,
    Redriven,
    dead_letter_list,
    dead_letter_topic,
    origin_id,
    origin_topic,
    redrive,
)
from pyromq.admin.messages.ranges import last_messages
from pyromq.admin.topics import topic_route
from pyromq.client.admin.times import from_millis
from pyromq.errors import NoPermission, TopicNotFound

from ..failures import CommandFailed, Exit, nearest
from ..output import Output
from ..parameters import Group
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, changes
from .message.files import AsForm, ToFile, write_messages
from .message.options import ALL, Filter, LimitOption, Part, Rate, chosen, matching, wanted
from .message.rows import body_of, cell_of, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pyromq.admin.messages.ranges import TopicRanges
    from pyromq.protocol.message import MessageExt

    from .message.options import Wanted

app = new_app("List dead letters and send them again.")

_PROGRESS = 2.0


def main(arguments: list[str]) -> int:
    return run_app(app, "dlq", arguments)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. `id` is the one its sender knows, `at` its place in the dead-letter topic."""

    id: str
    stored: datetime | None
    origin: str | None
    retries: int
    at: str
    tags: str | None
    keys: tuple[str, ...]
    body: str
    encoding: str = field(metadata={"hidden": True})
    size: int = field(metadata={"hidden": True})
    offset_id: str = field(metadata={"hidden": True})
    properties: dict[str, str] = field(metadata={"hidden": True})


@reading(app, "list", timeout=10.0)
async def list_dead_letters(
    session: Session,
    every: Annotated[bool, typer.Option("--all", help="Include groups that have none left.")] = False,
) -> Listing[DeadLetters]:
    """List the groups that have dead letters, and how many.

    Example: pyromq dlq list
    """
    found = await dead_letter_list(session.admin)
    return found if every else found.with_rows(row for row in found.rows if row.messages != 0)


@reading(app, "show", timeout=60.0)
async def show(
    session: Session,
    group: Group,
    part: Part,
    which: Filter,
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="The last N of each queue.")] = None,
    limit: Annotated[int, LimitOption] = 50,
) -> AsyncIterator[DeadLetter]:
    """Show the dead letters of a group and where they came from.

    Example: pyromq dlq show billing
    """
    want = wanted(which)
    ranges = await _letters(session, group, part)
    if last is not None:
        ranges = last_messages(ranges, last)
    count = 0
    async with aclosing(_reading(session, ranges, want)) as messages:
        async for message in messages:
            if limit and count == limit:
                session.note(f"stopped at {limit}; --limit 0 shows all, --last the newest")
                return
            count += 1
            yield _row(message, session.printer.output)


@changing(app, "redrive", timeout=None)
async def redrive_letters(
    session: Session,
    group: Group,
    part: Part,
    which: Filter,
    *,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; repeatable.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Send them to this topic instead.")] = None,
    rate: Rate = None,
    limit: Annotated[int, LimitOption] = 0,
) -> AsyncIterator[Redriven]:
    """Send dead letters again, to the topics they came from.

    Each new message carries the id of the old one in the property REPLAY_OF. The dead letters stay where they are: use
    --begin, --id or other options to skip those you have sent before.

    Example: pyromq dlq redrive billing --yes
    """
    want = wanted(which)
    ranges = await _letters(session, group, part)
    chosen_ids = set(ids or ())
    async with aclosing(_reading(session, ranges, want)) as messages:
        total = 0
        async for message in messages:
            total += not chosen_ids or bool(chosen_ids & _names(message))
            if limit and total == limit:
                break
    if not total:
        raise CommandFailed(f"group {group} has no matching dead letters", Exit.NOT_FOUND)
    where_to = f"topic {to}" if to else "where they came from"
    if not session.agreed(f"send {total} dead letters of group {group} to {where_to}", dangerous=True):
        return
    done = failed = 0
    spoke = time.monotonic()
    async with (
        aclosing(_chosen_letters(session, ranges, want, chosen_ids, total)) as letters,
        aclosing(redrive(session.admin, letters, to=to, rate=rate)) as outcomes,
    ):
        async for outcome in outcomes:
            done += 1
            failed += outcome.error is not None
            yield outcome
            if time.monotonic() - spoke > _PROGRESS:
                spoke = time.monotonic()
                session.note(f"{done} of {total}, {failed} failed")
    session.note(f"sent {done - failed} of {total}" + (f"; {failed} failed" if failed else ""))
    if failed:
        session.exit_code = Exit.REFUSED


@reading(app, "export", timeout=None)
async def export(session: Session, group: Group, file: ToFile, part: Part, to: AsForm = None) -> None:
    """Write the dead letters of a group to a file for `message import`.

    Example: pyromq dlq export billing -f dead.ndjson
    """
    ranges = await _letters(session, group, part)
    try:
        await write_messages(session, ranges, wanted(Filter()), file, to)
    except NoPermission as exc:
        raise _unreadable(ranges.topic) from exc


@changing(app, "purge", timeout=10.0)
async def purge(session: Session, group: Group) -> Listing[Change] | None:
    """Delete all dead letters of a group by deleting their topic; the next dead letter recreates it.

    Example: pyromq dlq purge billing --yes
    """
    ranges = await _letters(session, group)
    places = [row.broker for row in (await topic_route(session.admin, ranges.topic)).rows]
    what = f"delete {ranges.count} dead letters of group {group} on {', '.join(places)}"
    if not session.agreed(what, dangerous=True):
        return None
    await session.admin.topics.delete(ranges.topic)
    return changes(ranges.topic, "deleted", places)


async def _letters(session: Session, group: str, part: Part = ALL) -> TopicRanges:
    topic = dead_letter_topic(group)
    try:
        return await chosen(session, topic, part)
    except TopicNotFound as exc:
        listing = await dead_letter_list(session.admin)
        near = nearest(group, [row.group for row in listing.rows])
        hint = f"did you mean {' or '.join(near)}?" if near else "`pyromq dlq list` shows groups that have some"
        raise CommandFailed(
            f"group {group} has no dead letters at {session.target.namesrv}; {hint}", Exit.NOT_FOUND
        ) from exc


async def _reading(session: Session, ranges: TopicRanges, want: Wanted) -> AsyncGenerator[MessageExt, None]:
    try:
        async with aclosing(matching(session, ranges, want)) as messages:
            async for message in messages:
                yield message
    except NoPermission as exc:
        raise _unreadable(ranges.topic) from exc


async def _chosen_letters(
    session: Session, ranges: TopicRanges, want: Wanted, ids: set[str], count: int
) -> AsyncGenerator[MessageExt, None]:
    left = count
    async with aclosing(_reading(session, ranges, want)) as messages:
        async for message in messages:
            if ids and not ids & _names(message):
                continue
            yield message
            left -= 1
            if not left:
                return


def _names(message: MessageExt) -> set[str]:
    return {origin_id(message), message.msg_id, message.offset_msg_id}


def _unreadable(topic: str) -> CommandFailed:
    """4.x brokers create dead-letter topics write-only."""
    return CommandFailed(
        f"topic {topic} is not readable; `pyromq topic perm {topic} rw` makes it so", Exit.NOT_AUTHORISED
    )


def _row(message: MessageExt, output: Output) -> DeadLetter:
    body = body_of(message)
    shown, encoding = (cell_of(body), "shown") if output is Output.table else encoded(body)
    return DeadLetter(
        origin_id(message),
        from_millis(message.store_timestamp),
        origin_topic(message),
        message.reconsume_times,
        f"{message.broker_name}:{message.queue_id}:{message.queue_offset}",
        message.tags,
        tuple(message.keys),
        shown,
        encoding,
        len(body),
        message.offset_msg_id,
        message.properties,
    )
