"""`pyromq check lag|broker|disk`: check figures against limits, for monitoring. Exit code 6 if one is exceeded.

STATUS  WHAT     VALUE  WARN   CRIT
crit    billing  12043  1000  10000
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.cluster.brokers import cluster_table, ping_brokers
from pyromq.admin.groups.lag import group_lag, group_list, people_groups
from pyromq.admin.listing import Listing
from pyromq.client.admin.addresses import replicas

from ..failures import CommandFailed, Exit
from ..parameters import ClusterName, TopicOption
from ..session import Session
from ..verbs import new_app, reading, run_app

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.client.admin.fan_out import Missing

app = new_app(
    "Check figures against limits, for monitoring; exit code 6 if one is exceeded. `pyromq check DIR` checks files."
)

Warn = Annotated[float, typer.Option("--warn", "-w", metavar="N", help="Warn from this value on.")]
Crit = Annotated[float, typer.Option("--crit", metavar="N", help="Critical from this value on.")]


def main(arguments: list[str]) -> int:
    return run_app(app, "check", arguments)


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    CRIT = "crit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Checked:
    """One figure and its limits; `unknown` if it could not be read."""

    status: Status
    what: str
    value: float | None
    warn: float | None
    crit: float | None


@reading(app, "lag", timeout=5.0)
async def lag(
    session: Session,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="All groups if omitted.")] = None,
    topic: TopicOption = None,
    warn: Warn = 1000,
    crit: Crit = 10000,
) -> Listing[Checked]:
    """Check how many messages groups lag behind.

    Example: pyromq check lag billing --warn 1000 --crit 10000
    """
    if group is None and topic is not None:
        raise CommandFailed("--topic needs a group; name one", Exit.USAGE)
    if group is not None:
        one = await group_lag(session.admin, group, topic)
        return _judged(session, [(group, one.lag)], warn, crit, one.missing)
    every = await group_list(session.admin)
    figures: list[tuple[str, float | None]] = [(row.group, row.lag) for row in people_groups(every.rows)]
    return _judged(session, figures, warn, crit, every.missing)


@reading(app, "broker", timeout=5.0)
async def broker(
    session: Session, cluster: ClusterName = None, warn: Warn = 500, crit: Crit = 2000
) -> Listing[Checked]:
    """Check that all brokers answer, and how many milliseconds they take.

    Example: pyromq check broker --crit 500
    """
    brokers = {each.address: each.broker for each in replicas(await session.admin.brokers.cluster_info(), cluster)}
    if not brokers:
        raise CommandFailed("no broker is registered", Exit.THRESHOLD)
    times = await ping_brokers(session.admin, brokers, 1)
    figures = [(f"{row.broker} {row.address}", row.mean_ms) for row in times.rows]
    found = _judged(session, figures, warn, crit, times.missing)
    if found.missing:
        session.exit_code = Exit.THRESHOLD
    return found


@reading(app, "disk", timeout=5.0)
async def disk(session: Session, cluster: ClusterName = None, warn: Warn = 75, crit: Crit = 85) -> Listing[Checked]:
    """Check how full the commit logs' disks are, in percent.

    Example: pyromq check disk --warn 70
    """
    table = await cluster_table(session.admin, cluster)
    figures = [
        (f"{row.broker} {row.address}", None if row.disk is None else round(row.disk * 100, 1)) for row in table.rows
    ]
    return _judged(session, figures, warn, crit, table.missing)


def judge(value: float | None, warn: float, crit: float) -> Status:
    if value is None:
        return Status.UNKNOWN
    if value >= crit:
        return Status.CRIT
    return Status.WARN if value >= warn else Status.OK


def _judged(
    session: Session,
    figures: Iterable[tuple[str, float | None]],
    warn: float,
    crit: float,
    missing: tuple[Missing, ...],
) -> Listing[Checked]:
    rows = [
        Checked(judge(value, warn, crit), what, _short(value), _short(warn), _short(crit)) for what, value in figures
    ]
    crossed = [row for row in rows if row.status in (Status.WARN, Status.CRIT)]
    if crossed:
        session.exit_code = Exit.THRESHOLD
    return Listing.make(Checked, rows, missing)


def _short(value: float | None) -> float | None:
    """A whole number without decimals."""
    return int(value) if value is not None and value == int(value) else value
