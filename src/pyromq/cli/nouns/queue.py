"""`pyromq queue`: what consume queues have, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.ranges import parse_place
from pyromq.protocol.message_queue import MessageQueue

from ..failures import CommandFailed, Exit
from ..parameters import Topic
from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("Consume queues, entry by entry.")


def main(arguments: list[str]) -> int:
    return run_app(app, "queue", arguments)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a message lies in the commit log. `matches` is for the group that was named."""

    offset: int
    commit_log_offset: int
    size: int
    tags_code: int
    matches: bool | None
    note: str | None


@reading(app, "dump")
async def dump(
    session: Session,
    topic: Topic,
    place: Annotated[str, typer.Argument(metavar="BROKER:QUEUE", help="Which queue.")],
    begin: Annotated[int | None, typer.Option("--from", metavar="OFFSET", min=0, help="The first entry.")] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, max=1000, help="How many.")] = 20,
    group: Annotated[
        str | None, typer.Option("-g", "--group", metavar="GROUP", help="Say what this group's filter lets through.")
    ] = None,
) -> Listing[Entry]:
    """Entries of a consume queue; without --from the last ones.

    Example: pyromq queue dump orders broker-a:0 --from 100 --count 5
    """
    try:
        broker, number, offset = parse_place(place)
    except ValueError:
        raise CommandFailed(f"{place!r} is no queue; write BROKER:N", Exit.USAGE) from None
    queue = MessageQueue(topic=topic, broker_name=broker, queue_id=number)
    start = begin if begin is not None else offset
    if start is None:
        start = max(await session.admin.offsets.maximum(queue) - count, await session.admin.offsets.minimum(queue))
    found = await session.admin.messages.consume_queue(queue, start, count, group)
    rows = [
        Entry(
            start + index,
            entry.physic_offset,
            entry.physic_size,
            entry.tags_code,
            entry.eval if group else None,
            entry.msg,
        )
        for index, entry in enumerate(found.queue_data)
    ]
    parts = [f"the queue begins at {found.min_queue_index} and ends before {found.max_queue_index}"]
    if group:
        subscribed = found.subscription_data
        parts.append(f"group {group} wants {subscribed.sub_string if subscribed else 'nothing that is known'}")
    return Listing.make(Entry, rows, summary="; ".join(parts))
