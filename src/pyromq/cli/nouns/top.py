"""`pyromq top`: watch the rates and lag of topics and groups on one screen."""

from __future__ import annotations

import asyncio
import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.live import LiveRow, Pulse, look
from pyromq.client.admin.fan_out import within
from pyromq.errors import PyroMQError

from ..output import Output
from ..session import Session
from ..verbs import new_app, reading, run_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.admin.live import Look

app = new_app("Watch the rates and lag of topics and groups.", alone=True)

_ANSWER_WITHIN = 3.0
_OTHER_LINES = 4  # headings, a blank line, the summary, and the cursor's line
_HOME = "\x1b[H\x1b[J"
_SCREEN, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class SortBy(StrEnum):
    lag = "lag"
    inward = "in"
    outward = "out"
    name = "name"


_KEYS: dict[SortBy, Callable[[LiveRow], float]] = {
    SortBy.lag: lambda row: -(row.lag or 0),
    SortBy.inward: lambda row: -(row.in_tps or 0),
    SortBy.outward: lambda row: -(row.out_tps or 0),
    SortBy.name: lambda row: 0,
}


def main(arguments: list[str]) -> int:
    return run_app(app, "top", arguments)


@reading(app, "top", timeout=None)
async def top(
    session: Session,
    interval: Annotated[
        float, typer.Option("-i", "--interval", metavar="SEC", min=0.1, help="Seconds between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Measure once, print, and exit.")] = False,
    sort: Annotated[SortBy, typer.Option("-s", "--sort", help="Sort by this column.")] = SortBy.lag,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Show only the first N rows.")
    ] = None,
    system: Annotated[bool, typer.Option("--system", help="Include RocketMQ's own topics and groups.")] = False,
) -> None:
    """Watch topics and the groups that read them: messages a second in and out, lag, and how fast the lag grows.

    Runs until Ctrl-C; use --once in scripts.

    Example: pyromq top
    """
    if once:
        pulse = Pulse()
        pulse.add(await _looked(session, system=system))
        await asyncio.sleep(interval)
        latest = await _looked(session, system=system)
        pulse.add(latest)
        session.show(_shown(pulse, latest, sort, limit))
        return
    on_screen = sys.stdout.isatty() and session.printer.output is Output.table
    if on_screen:
        limit = min(limit or sys.maxsize, shutil.get_terminal_size().lines - _OTHER_LINES)
        sys.stdout.write(_SCREEN)
    try:
        await _go_on(session, interval, _HOME if on_screen else "", sort, limit, system=system)
    finally:
        if on_screen:
            sys.stdout.write(_LEAVE)


async def _go_on(
    session: Session, interval: float, before: str, sort: SortBy, limit: int | None, *, system: bool
) -> None:
    pulse = Pulse()
    while True:
        try:
            latest = await _looked(session, system=system)
        except (PyroMQError, TimeoutError) as exc:
            # Keep going: the user wants to see the cluster come back.
            session.note(str(exc) or f"no answer within {_ANSWER_WITHIN:g} s")
        else:
            pulse.add(latest)
            sys.stdout.write(before)
            session.show(_shown(pulse, latest, sort, limit))
        await asyncio.sleep(interval)


async def _looked(session: Session, *, system: bool) -> Look:
    async with within(_ANSWER_WITHIN):
        return await look(session.admin, system=system)


def _shown(pulse: Pulse, latest: Look, sort: SortBy, limit: int | None) -> Listing[LiveRow]:
    rows = sorted(pulse.rows(), key=_KEYS[sort])[:limit]
    return Listing.make(LiveRow, rows, latest.missing, pulse.summary())
