"""`pyromq group offsets`: move a group. Every move is planned first and needs --yes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.groups.lag import group_lag
from pyromq.admin.groups.reset import Goal, Move, apply_plan, reset_plan
from pyromq.admin.listing import Listing
from pyromq.admin.topic_kinds import TopicKind, topic_kind
from pyromq.errors import ConfigError, StateError
from pyromq.protocol.message_queue import MessageQueue

from ..failures import CommandFailed, Exit
from ..parameters import Group, TopicOption
from ..session import Session
from ..times import FORMS, parse_time
from ..verbs import changing, new_app, reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.admin.groups.reset import ResetPlan

app = new_app("Reset, skip, clone and export a group's offsets.")

Topics = Annotated[
    list[str] | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic; repeatable.")
]


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A group's next offset in one queue."""

    topic: str
    broker: str
    queue: int
    offset: int | None


@changing(app, "reset", timeout=10.0)
async def reset(
    session: Session,
    group: Group,
    *,
    topics: Topics = None,
    to_time: Annotated[str | None, typer.Option("--to-time", metavar="TIME", help=f"To this time: {FORMS}.")] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first message still stored.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: only new messages.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset in every queue.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="Forward by N messages; negative is back.")] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="From a file of `group offsets export`.")
    ] = None,
) -> None:
    """Move a group's offsets: prints the plan, and carries it out with --yes.

    It works in both directions, whether consumers are online or not. Online consumers can only go to a time, the
    earliest or the latest message. Without -t it covers all topics that the group consumes.

    Example: pyromq group offsets reset billing -t orders --to-time -1h
    """
    goals = _goals(
        to_time, from_file, to_earliest=to_earliest, to_latest=to_latest, to_offset=to_offset, shift_by=shift_by
    )
    if len(goals) != 1:
        raise CommandFailed(
            "use exactly one of --to-time, --to-earliest, --to-latest, --to-offset, --shift-by, --from-file", Exit.USAGE
        )
    [goal] = goals
    if goal.offsets is not None and not topics:
        topics = sorted({queue.topic for queue in goal.offsets})
    await _move(session, group, topics, goal)


@changing(app, "skip", timeout=10.0)
async def skip(session: Session, group: Group, topics: Topics = None) -> None:
    """Skip everything a group has not consumed yet: prints the plan, and carries it out with --yes.

    Example: pyromq group offsets skip billing -t orders --yes
    """
    await _move(session, group, topics, Goal(Move.LATEST))


async def _move(session: Session, group: str, topics: list[str] | None, goal: Goal) -> None:
    chosen = topics or await _topics_of(session, group)
    plans = [await reset_plan(session.admin, group, topic, goal) for topic in chosen]
    session.show(_joined(plans))
    if any(plan.missing for plan in plans):
        raise CommandFailed("nothing was changed: the plan is incomplete; try again when all brokers answer")
    moving = [plan for plan in plans if plan.targets or plan.online]
    if not moving:
        return
    skips, replays = sum(plan.skips for plan in plans), sum(plan.replays for plan in plans)
    what = f"move group {group} in {', '.join(plan.topic for plan in moving)} (replays {replays}, skips {skips})"
    if not session.agreed(what, dangerous=True):
        return
    for plan in moving:
        try:
            if await apply_plan(session.admin, plan):
                session.note(f"created group {group}, which did not exist")
        except StateError as exc:
            raise CommandFailed(str(exc)) from exc
    told = sorted({client for plan in moving for client in plan.online})
    session.note(f"moved group {group}" + (f"; notified {', '.join(told)}" if told else ""))


async def _topics_of(session: Session, group: str) -> list[str]:
    """The topics a group consumes, without its retry topic, which nobody would rewind."""
    found = await group_lag(session.admin, group)
    if found.missing:
        raise CommandFailed(f"cannot tell which topics group {group} consumes: {found.missing[0]}; name them with -t")
    return sorted({row.topic for row in found.rows if topic_kind(row.topic) is not TopicKind.RETRY})


def _joined(plans: list[ResetPlan]) -> Listing[Any]:
    first = plans[0]
    rows = [row for plan in plans for row in plan.rows]
    missing = {each.server: each for plan in plans for each in plan.missing}
    if len(plans) == 1:
        return first
    summary = "\n".join(f"{plan.topic}: {plan.summary}" for plan in plans)
    return Listing.make(first.of, rows, missing.values(), summary)


@changing(app, "clone", timeout=10.0)
async def clone(
    session: Session,
    group: Annotated[str, typer.Argument(metavar="FROM", help="Group to copy from.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="Group to copy to.")],
    topic: TopicOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Include topics that FROM no longer subscribes to.")
    ] = False,
) -> None:
    """Copy the offsets of one group to another: prints them, and copies with --yes.

    Example: pyromq group offsets clone billing billing-test --yes
    """
    found = await group_lag(session.admin, group, topic)
    session.show(_offsets(found))
    if found.missing:
        raise CommandFailed("nothing was changed: not all brokers answer")
    if session.agreed(f"copy the offsets of group {group} to group {to}", dangerous=True):
        topics = await session.admin.offsets.clone(group, to, topic, offline=offline)
        session.note(f"group {to} now has the offsets of {group} in {', '.join(topics)}")


@reading(app, "export")
async def export(session: Session, group: Group, topic: TopicOption = None) -> Listing[OffsetRow]:
    """Export the offsets of a group for `reset --from-file`: -o json, ndjson or csv.

    Example: pyromq group offsets export billing -o json
    """
    return _offsets(await group_lag(session.admin, group, topic))


def _offsets(found: Listing[Any]) -> Listing[OffsetRow]:
    rows = (OffsetRow(row.topic, row.broker, row.queue, row.consumer_offset) for row in found.rows)
    return Listing.make(OffsetRow, rows, found.missing)


def _goals(
    to_time: str | None,
    from_file: Path | None,
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
) -> list[Goal]:
    goals = []
    if to_time is not None:
        goals.append(Goal(Move.TIME, parse_time(to_time, datetime.now().astimezone())))
    if to_earliest:
        goals.append(Goal(Move.EARLIEST))
    if to_latest:
        goals.append(Goal(Move.LATEST))
    if to_offset is not None:
        goals.append(Goal(Move.OFFSET, number=to_offset))
    if shift_by is not None:
        goals.append(Goal(Move.SHIFT, number=shift_by))
    if from_file is not None:
        goals.append(Goal(Move.EXACT, offsets=read_offsets(from_file)))
    return goals


def read_offsets(file: Path) -> Mapping[MessageQueue, int]:
    """Read what `export` wrote as json, ndjson or csv. Raises ConfigError."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot be read: {exc}", str(file)) from exc
    try:
        rows = _rows_of(text)
        return {
            MessageQueue(topic=str(row["topic"]), broker_name=str(row["broker"]), queue_id=int(row["queue"])): int(
                row["offset"]
            )
            for row in rows
            if row["offset"] not in (None, "")
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as exc:
        raise ConfigError("not a json, ndjson or csv file of `group offsets export`", str(file)) from exc


def _rows_of(text: str) -> list[dict[str, Any]]:
    begin = text.lstrip()[:1]
    if begin == "[":
        rows: list[dict[str, Any]] = json.loads(text)
        return rows
    if begin == "{":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(csv.DictReader(io.StringIO(text)))
