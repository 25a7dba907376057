"""`pyromq doctor`: find out what is wrong with a cluster, and how to fix it.

The exit code is 0 if all is well, 6 if something is wrong, 5 if no name server can be reached.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.cluster.doctor import examine
from pyromq.admin.cluster.doctor_rules import Finding, Health
from pyromq.admin.listing import Listing

from ..failures import Exit
from ..session import Session
from ..verbs import new_app, reading, run_app

if TYPE_CHECKING:
    from pyromq.client import Client

app = new_app("Find out what is wrong with a cluster, and how to fix it.", alone=True)


def main(arguments: list[str]) -> int:
    return run_app(app, "doctor", arguments)


@reading(app, "doctor", timeout=10.0)
async def doctor(
    session: Session,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show problems only.")] = False,
) -> Listing[Finding]:
    """Check a cluster as a client sees it: names, addresses, clocks, disks, subscriptions. Changes nothing.

    Each finding says what to do. The exit code is 0 if all is well, 6 if something is wrong, 5 if no name server can be
    reached.

    Example: pyromq doctor
    """

    def client(address: str) -> Client:
        return dataclasses.replace(session.target, namesrv=address).client()

    found = await examine(session.target.addresses, client)
    if any(row.status is not Health.OK for row in found.rows):
        session.exit_code = Exit.THRESHOLD
    if all(row.status is Health.FAIL for row in found.rows) and len(found.rows) == len(session.target.addresses):
        session.exit_code = Exit.UNREACHABLE
    return found.with_rows(row for row in found.rows if row.status is not Health.OK) if quiet else found
