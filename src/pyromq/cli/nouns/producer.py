"""`pyromq producer`: who sends."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pyromq.admin.groups.members import ClientRow, client_row, producer_list
from pyromq.admin.listing import Listing

from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("Producers that brokers know.")


def main(arguments: list[str]) -> int:
    return run_app(app, "producer", arguments)


@reading(app, "list")
async def list_producers(
    session: Session,
    broker: Annotated[str | None, typer.Option("-b", "--broker", metavar="NAME", help="Only those it knows.")] = None,
) -> Listing[Any]:
    """All producers.

    Example: pyromq producer list -b broker-a
    """
    return await producer_list(session.admin, broker)


@reading(app, "clients")
async def clients(
    session: Session,
    producer_group: Annotated[str, typer.Argument(metavar="GROUP", help="The producer group.")],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="A topic that it sends to.")],
) -> Listing[ClientRow]:
    """The members of a producer group that the brokers of a topic know.

    Example: pyromq producer clients shop -t orders
    """
    members = await session.admin.groups.producers(producer_group, topic)
    return Listing.make(ClientRow, map(client_row, members))
