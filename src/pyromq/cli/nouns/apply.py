"""`pyromq apply -f FILE`: make topics and groups match a file, after showing the plan."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.manifest.apply import Action, Step, carry_out_step, parse_wishes, plan_wishes

from ..failures import CommandFailed, Exit
from ..session import Session
from ..verbs import changing, new_app, run_app

app = new_app("Make topics and groups match a file.", alone=True)


def main(arguments: list[str]) -> int:
    return run_app(app, "apply", arguments)


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan."""

    action: Action
    kind: str
    name: str
    broker: str
    changes: dict[str, str]


@changing(app, "apply", timeout=30.0)
async def apply(
    session: Session,
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="YAML or JSON; - is stdin.")],
    every: Annotated[bool, typer.Option("--all", help="Also show what stays unchanged.")] = False,
) -> Listing[Planned] | None:
    """Make topics and groups match a file; anything it does not mention stays. Prints the plan.

    Changing existing settings asks first, or needs --yes. Nothing is ever deleted.

    Example: pyromq apply -f shop.yaml --dry-run
    """
    steps = await plan_wishes(
        session.admin, parse_wishes(_read(file), "standard input" if _is_stdin(file) else str(file))
    )
    to_do = [step for step in steps if step.action is not Action.KEEP]
    rows = [
        Planned(step.action, step.kind, step.name, step.broker, step.changes) for step in (steps if every else to_do)
    ]
    listing = Listing.make(Planned, rows, summary=_summary(steps))
    if not to_do:
        return listing
    session.show(listing)
    updates = any(step.action is Action.UPDATE for step in to_do)
    if not session.agreed(_what(to_do), dangerous=updates):
        return None
    for done, step in enumerate(to_do):
        session.note(f"{done + 1}/{len(to_do)} {step.action} {step.kind} {step.name} on {step.broker}")
        await carry_out_step(session.admin, step)
    return None


def _is_stdin(file: Path) -> bool:
    return str(file) == "-"


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if _is_stdin(file) else file.read_bytes()
    except OSError as exc:
        raise CommandFailed(f"{file} cannot be read: {exc.strerror}", Exit.USAGE) from exc


def _summary(steps: list[Step]) -> str:
    counts = {action: sum(step.action is action for step in steps) for action in Action}
    return f"{counts[Action.CREATE]} to create, {counts[Action.UPDATE]} to update, {counts[Action.KEEP]} unchanged"


def _what(steps: list[Step]) -> str:
    lost = sorted({step.name for step in steps if step.loses_queues})
    warning = f" ({', '.join(lost)} with fewer queues: messages in the removed ones become unreadable)" if lost else ""
    return f"carry out these {len(steps)} steps{warning}"
