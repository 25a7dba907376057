"""Move a group: first plan it queue by queue, then do it.

The consumers of an online group keep its offsets, so they have to be told, and they understand only a time. An offline
group goes exactly where the plan says.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import Missing, fan_out, partly
from pyromq.errors import ConsumerNotOnline, PyroMQError, StateError, SubscriptionGroupNotExist
from pyromq.protocol.message_queue import MessageQueue

from ..listing import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import TopicOffset

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


class Move(StrEnum):
    """The ways to state a goal."""

    TIME = "time"
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a group should continue: at a time, at either end, at an offset, N messages further, or by a table."""

    move: Move
    when: datetime | None = None
    number: int = 0
    offsets: Mapping[MessageQueue, int] | None = None

    @property
    def is_a_time(self) -> bool:
        return self.move in (Move.TIME, Move.EARLIEST, Move.LATEST)


@dataclass(frozen=True, slots=True)
class QueueMove:
    """One queue of a plan. `current` is None if the group has no offset there, `target` if it stays where it is."""

    topic: str
    broker: str
    queue: int
    current: int | None
    target: int | None
    replays: int | None
    skips: int | None


@dataclass(frozen=True, slots=True)
class ResetPlan(Listing[QueueMove]):
    """Where a group would continue. `online` are the clients to be told."""

    group: str = ""
    topic: str = ""
    goal: Goal = Goal(Move.LATEST)
    online: tuple[str, ...] = ()

    @property
    def replays(self) -> int:
        return sum(row.replays or 0 for row in self.rows)

    @property
    def skips(self) -> int:
        return sum(row.skips or 0 for row in self.rows)

    @property
    def targets(self) -> dict[MessageQueue, int]:
        """The queues that move, or get an offset for the first time."""
        return {
            MessageQueue(topic=row.topic, broker_name=row.broker, queue_id=row.queue): row.target
            for row in self.rows
            if row.target is not None and row.target != row.current
        }


async def reset_plan(admin: AdminClient, group: str, topic: str, goal: Goal) -> ResetPlan:
    """What a reset would do. Changes nothing. Raises TopicNotFound.

    The queues of a silent broker are not in it; such a plan cannot be applied.
    """
    brokers = await admin.brokers.of_topic(topic)
    # All at the same time, or a hanging broker would use up the time of the later ones.
    (ends, missing), stats, (online, unknown) = await asyncio.gather(
        partly(admin.topics.stats(topic)),
        # Without the topic: when asked for one, brokers answer 0 for queues where the group never was.
        fan_out(brokers, lambda address: admin.groups.stats_at(address, group)),
        _online(admin, group),
    )
    current = {
        queue: offsets.consumer_offset
        for answer in stats.results.values()
        for queue, offsets in answer.offset_table.items()
        if queue.topic == topic
    }
    missing = _each_once(missing + stats.missing + unknown)
    silent = {each.server for each in missing}
    ends = {queue: end for queue, end in ends.items() if queue.broker_name not in silent}
    found: Mapping[MessageQueue, int] = {}
    if goal.move is Move.TIME and goal.when is not None:
        when = goal.when
        by_name = {f"{queue.broker_name}:{queue.queue_id}": queue for queue in ends}
        times = await fan_out(by_name, lambda queue: admin.offsets.at_time(queue, when))
        missing = _each_once(missing + times.missing)
        found = {by_name[name]: offset for name, offset in times.results.items()}
    rows = [
        _move(queue, current.get(queue), _target(goal, end, current.get(queue), found.get(queue), queue))
        for queue, end in sorted(ends.items())
    ]
    plan = ResetPlan(QueueMove, tuple(rows), missing, "", group, topic, goal, online)
    return ResetPlan(QueueMove, plan.rows, missing, _summary(plan), group, topic, goal, online)


async def apply_plan(admin: AdminClient, plan: ResetPlan) -> bool:
    """Move the group as planned. Online consumers take a moment and may get messages twice.

    True if the group had to be created first: 5.x brokers keep no offsets of unknown groups. Raises StateError, with
    nothing changed, if the plan is incomplete, or if the group is online and the goal is not a time. PartialFailure if
    a broker failed.
    """
    if plan.missing:
        raise StateError(f"the plan is incomplete: {plan.missing[0]}")
    if not plan.online:
        return await _set(admin, plan)
    if not plan.goal.is_a_time:
        raise StateError(
            f"group {plan.group} is online ({', '.join(plan.online)}), and consumers can only be moved to a time; "
            "stop them first, or move the group to a time, the earliest or the latest message"
        )
    when = {Move.EARLIEST: _FIRST, Move.LATEST: None}.get(plan.goal.move, plan.goal.when)
    await admin.offsets.reset(plan.group, plan.topic, when)
    return False


async def _set(admin: AdminClient, plan: ResetPlan) -> bool:
    try:
        await admin.offsets.set(plan.group, plan.targets)
    except PyroMQError as exc:
        if exc.code != SubscriptionGroupNotExist.code:
            raise
    else:
        return False
    await admin.groups.create(plan.group, brokers=sorted({row.broker for row in plan.rows}))
    await admin.offsets.set(plan.group, plan.targets)
    return True


def _target(goal: Goal, ends: TopicOffset, current: int | None, found: int | None, queue: MessageQueue) -> int | None:
    wanted: int | None
    match goal.move:
        case Move.EARLIEST:
            wanted = ends.min_offset
        case Move.LATEST:
            wanted = ends.max_offset
        case Move.OFFSET:
            wanted = goal.number
        case Move.SHIFT:
            wanted = None if current is None else current + goal.number
        case Move.EXACT:
            wanted = (goal.offsets or {}).get(queue)
        case Move.TIME:
            wanted = found
    return None if wanted is None else max(ends.min_offset, min(wanted, ends.max_offset))


def _move(queue: MessageQueue, current: int | None, target: int | None) -> QueueMove:
    known = current is not None and target is not None
    change = target - current if current is not None and target is not None else 0
    return QueueMove(
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        current,
        target,
        max(-change, 0) if known else None,
        max(change, 0) if known else None,
    )


async def _online(admin: AdminClient, group: str) -> tuple[tuple[str, ...], tuple[Missing, ...]]:
    """Who is online, or why that is unknown: a plan for an offline group does nothing to an online one."""
    try:
        members = (await admin.groups.connections(group)).connection_set
    except ConsumerNotOnline:
        return (), ()
    except PyroMQError as exc:
        return (), (Missing(f"members of {group}", exc),)
    return tuple(member.client_id for member in members), ()


def _each_once(missing: tuple[Missing, ...]) -> tuple[Missing, ...]:
    return tuple({each.server: each for each in missing}.values())


def _summary(plan: ResetPlan) -> str:
    parts = []
    if plan.replays:
        parts.append(f"replays {plan.replays} messages")
    if plan.skips:
        parts.append(f"skips {plan.skips} messages")
    if new := sum(row.current is None and row.target is not None for row in plan.rows):
        parts.append(f"gives {new} queues their first offset")
    what = ", ".join(parts) or "changes nothing"
    who = f"online: {', '.join(plan.online)}" if plan.online else "offline"
    return f"{what}; group {plan.group} is {who}"
