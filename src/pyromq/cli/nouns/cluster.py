"""`pyromq cluster`: all brokers in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pyromq.admin.cluster.brokers import Ping, cluster_table, ping_brokers
from pyromq.admin.listing import Listing
from pyromq.client.admin.addresses import replicas

from ..parameters import ClusterName
from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("Show clusters and their brokers, with rates and disk use.")


def main(arguments: list[str]) -> int:
    return run_app(app, "cluster", arguments)


@dataclass(frozen=True, slots=True)
class DayRow:
    """Messages in and out."""

    cluster: str
    broker: str
    id: int
    in_today: int | None
    out_today: int | None
    in_yesterday: int | None
    out_yesterday: int | None


@reading(app, "list")
async def list_clusters(
    session: Session,
    cluster: ClusterName = None,
    totals: Annotated[
        bool, typer.Option("-m", "--totals", help="Show message totals of today and yesterday instead.")
    ] = False,
) -> Listing[Any]:
    """List all brokers: version, rates, waiting requests, age of the oldest message, disk use.

    Example: pyromq cluster list --totals
    """
    found = await cluster_table(session.admin, cluster)
    if not totals:
        return found
    rows = (
        DayRow(row.cluster, row.broker, row.id, row.in_today, row.out_today, row.in_yesterday, row.out_yesterday)
        for row in found.rows
    )
    return Listing.make(DayRow, rows, found.missing)


@reading(app, "ping")
async def ping(
    session: Session,
    cluster: ClusterName = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Requests per broker.")] = 5,
) -> Listing[Ping]:
    """Measure how fast brokers answer. Sends no messages.

    Example: pyromq cluster ping --count 20
    """
    found = replicas(await session.admin.brokers.cluster_info(), cluster)
    return await ping_brokers(session.admin, {each.address: each.broker for each in found}, count)
