"""`pyromq producer`: producers that are connected to brokers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pyromq.admin.groups.members import ClientRow, client_row, producer_list
from pyromq.admin.listing import Listing

from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("List producers that are connected to brokers.")


def main(arguments: list[str]) -> int:
    return run_app(app, "producer", arguments)


@reading(app, "list")
async def list_producers(
    session: Session,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="NAME", help="Only producers on this broker.")
    ] = None,
) -> Listing[Any]:
    """List all producers.

    Example: pyromq producer list -b broker-a
    """
    return await producer_list(session.admin, broker)


@reading(app, "clients")
async def clients(
    session: Session,
    producer_group: Annotated[str, typer.Argument(metavar="GROUP", help="The producer group.")],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="A topic it sends to.")],
) -> Listing[ClientRow]:
    """List the members of a producer group connected to a topic's brokers.

    Example: pyromq producer clients shop -t orders
    """
    members = await session.admin.groups.producers(producer_group, topic)
    return Listing.make(ClientRow, map(client_row, members))
