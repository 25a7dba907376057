"""`pyromq queue`: the entries of a consume queue."""

from __future__ import annotations

from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.queue_entries import QueueEntry, queue_entries
from pyromq.admin.messages.ranges import parse_place
from pyromq.protocol.message_queue import MessageQueue

from ..failures import CommandFailed, Exit
from ..parameters import Topic
from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("Show the entries of a consume queue.")


def main(arguments: list[str]) -> int:
    return run_app(app, "queue", arguments)


@reading(app, "dump")
async def dump(
    session: Session,
    topic: Topic,
    place: Annotated[str, typer.Argument(metavar="BROKER:QUEUE", help="The queue.")],
    begin: Annotated[int | None, typer.Option("--from", metavar="OFFSET", min=0, help="First entry.")] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, max=1000, help="Number of entries.")] = 20,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="GROUP", help="Show which entries this group's filter accepts."),
    ] = None,
) -> Listing[QueueEntry]:
    """Show entries of a consume queue; without --from, the last ones.

    Example: pyromq queue dump orders broker-a:0 --from 100 --count 5
    """
    try:
        broker, number, offset = parse_place(place)
    except ValueError:
        raise CommandFailed(f"{place!r} is not a queue; use BROKER:N", Exit.USAGE) from None
    queue = MessageQueue(topic=topic, broker_name=broker, queue_id=number)
    return await queue_entries(session.admin, queue, begin if begin is not None else offset, count, group)
