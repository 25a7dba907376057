"""Subcommands that move groups."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyromq.admin.groups.reset import Goal, Move, apply_plan, reset_plan
from pyromq.client.admin.addresses import replicas
from pyromq.client.admin.times import EPOCH, to_millis
from pyromq.errors import ConsumerNotOnline, StateError
from pyromq.protocol.message_queue import MessageQueue

from ..failures import CommandFailed, Exit
from ..times import parse_time
from .commands import TOPIC, Opt, classic
from .java_text import bool_text, front, is_true

if TYPE_CHECKING:
    import argparse

    from ..session import Session

GROUP = Opt("g", "group", "The consumer group.", required=True)
FORCE = Opt("f", "force", "false: only backward, never forward.")
PLACE = Opt("c", "cluster", "A cluster.")

_TOLD = "{:<40}  {:<40}  {:<40}"
_SET = "{:<20}  {:<20}  {:<20}  {:<20}  {:<20}  {:<20}"


@classic(
    "resetOffsetByTime",
    GROUP,
    TOPIC,
    Opt("s", "timestamp", "now, ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.", required=True),
    FORCE,
    Opt("b", "broker", "With -q: only this broker."),
    Opt("q", "queue", "With -b: only this queue.", kind=int),
    Opt("o", "offset", "With -b and -q: the new offset.", kind=int),
    PLACE,
)
async def reset_offset_by_time(session: Session, args: argparse.Namespace) -> None:
    force = is_true(args.f, default=True)
    when = EPOCH if args.s == "-1" else parse_time(args.s, datetime.now().astimezone())
    millis = -1 if args.s == "-1" else to_millis(when)
    if args.b and args.q is not None:
        await _one_queue(session, args, when, millis)
        return
    start = f"topic[{args.t}], force[{bool_text(force)}], timestamp(string)[{args.s}], timestamp(long)[{millis}]"
    online = f"start reset consumer offset by specified, group[{args.g}], {start}"
    offline = f"reset consumer offset by specified consumerGroup[{args.g}], {start}"
    await _move(session, args, None if millis == -1 else when, (online, offline), "#resetOffset", force=force)


@classic("skipAccumulatedMessage", GROUP, TOPIC, FORCE, PLACE)
async def skip_accumulated_message(session: Session, args: argparse.Namespace) -> None:
    await _move(session, args, None, ("", ""), "#rollbackOffset", force=is_true(args.f, default=True))


async def _move(
    session: Session,
    args: argparse.Namespace,
    when: datetime | None,
    lines: tuple[str, str],
    heading: str,
    *,
    force: bool,
) -> None:
    """Move the group, online or not, and print its old and new place as mqadmin does."""
    goal = Goal(Move.LATEST) if when is None else Goal(Move.TIME, when)
    plan = await reset_plan(session.admin, args.g, args.t, goal)
    if plan.missing:
        raise CommandFailed(f"nothing was changed: {plan.missing[0]}")
    ends = {queue: each.max_offset for queue, each in (await session.admin.topics.stats(args.t)).items()}
    result = await session.admin.offsets.reset(args.g, args.t, when, force=force)
    if result.online:
        _say(lines[0])
        print(_TOLD.format("#brokerName", "#queueId", "#offset"))
        for queue, offset in result.offsets.items():
            print(_TOLD.format(front(queue.broker_name, 32), queue.queue_id, offset))
        return
    _say(lines[1])
    print(_SET.format("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", heading))
    before = {(row.broker, row.queue): row for row in plan.rows}
    for queue, offset in result.offsets.items():
        row = before.get((queue.broker_name, queue.queue_id))
        was = row.current if row is not None and row.current is not None else -1
        found = row.target if row is not None and row.target is not None else offset
        print(_SET.format(front(queue.broker_name, 32), queue.queue_id, ends.get(queue, -1), was, found, offset))


def _say(line: str) -> None:
    if line:
        print(line)


async def _one_queue(session: Session, args: argparse.Namespace, when: datetime, millis: int) -> None:
    info = await session.admin.brokers.cluster_info()
    names = {each.address: each.broker for each in replicas(info)}
    if args.b not in names:
        raise CommandFailed(f"no broker is registered at {args.b}", Exit.NOT_FOUND)
    queue = MessageQueue(topic=args.t, broker_name=names[args.b], queue_id=args.q)
    print(
        f"start reset consumer offset by specified, group[{args.g}], topic[{args.t}], queueId[{args.q}], "
        f"broker[{args.b}], timestamp(string)[{args.s}], timestamp(long)[{millis}]"
    )
    offset = args.o if args.o is not None else await session.admin.offsets.at_time(queue, when)
    plan = await reset_plan(session.admin, args.g, args.t, Goal(Move.EXACT, offsets={queue: offset}))
    print(f"reset consumer offset to {offset}")
    try:
        await apply_plan(session.admin, plan)
    except StateError as exc:
        raise CommandFailed(str(exc)) from exc


@classic(
    "cloneGroupOffset",
    Opt("s", "srcGroup", "Group to copy from.", required=True),
    Opt("d", "destGroup", "Group to copy to.", required=True),
    Opt("t", "topic", "The topic.", required=True),
    Opt("o", "offline", "true: the group or topic is offline."),
)
async def clone_group_offset(session: Session, args: argparse.Namespace) -> None:
    topics = await session.admin.offsets.clone(args.s, args.d, args.t, offline=is_true(args.o))
    if args.t not in topics:
        raise ConsumerNotOnline(f"group {args.s} has no offset in topic {args.t}")
    print(f"clone group offset success. srcGroup[{args.s}], destGroup=[{args.d}], topic[{args.t}]")
