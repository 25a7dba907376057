"""Signs of trouble in consumer groups: backlog, stuck members, differing subscriptions.

Checks all groups once; call it repeatedly to watch them. RocketMQ's startMonitoring looks for the same signs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import brokers_in
from pyromq.client.admin.fan_out import fan_out, partly
from pyromq.client.admin.progress import progress_of_groups
from pyromq.client.admin.times import from_millis
from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import ConsumeType
from pyromq.protocol.names import is_system_group

from ..listing import Listing
from .members import inspected, subscription_mismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.progress import QueueProgress
    from pyromq.protocol.bodies import ConsumerRunningInfo, ConsumeStatsList
    from pyromq.protocol.message_queue import MessageQueue

STUCK_MS = 60_000  # a member that holds messages but consumed none for this long counts as stuck

_CONSUME_TYPE, _ORDERLY = "PROP_CONSUME_TYPE", "PROP_CONSUMEORDERLY"


class Sign(StrEnum):
    LAG = "lag"
    STUCK = "stuck"
    NOT_LOCKED = "not locked"
    NOT_UNLOCKED = "not unlocked"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Backlog:
    """A group's backlog in a topic: in all queues, in the worst one, and since when that one has not moved."""

    group: str
    topic: str
    messages: int
    worst_queue: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class StuckQueue:
    """A queue where a member is stuck: for this many milliseconds, or after this many tries to unlock it."""

    queue: MessageQueue
    sign: Sign
    millis: int = 0
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """One sign of trouble. `messages` are waiting; `since` is when the last one before them was consumed."""

    time: datetime | None
    group: str
    sign: Sign
    topic: str | None
    client: str | None
    messages: int | None
    since: datetime | None
    detail: str


async def observe(admin: AdminClient, groups: Collection[str] = (), *, min_lag: int = 1) -> Listing[Observation]:
    """Check these groups, or all user groups, once; ignores backlogs smaller than `min_lag`."""
    now = int(time.time() * 1000)
    brokers = brokers_in(await admin.brokers.cluster_info())
    answers = await fan_out(brokers, admin.brokers.consume_stats)
    names = await fan_out(brokers, admin.groups.configs)
    wanted = set(groups) or {name for table in names.results.values() for name in table if not is_system_group(name)}
    when = from_millis(now)
    rows = [
        Observation(
            when,
            each.group,
            Sign.LAG,
            each.topic,
            None,
            each.messages,
            each.since,
            f"{each.worst_queue} in the worst queue",
        )
        for each in backlogs(answers.some().values(), wanted)
        if each.messages >= min_lag
    ]

    members = await fan_out(sorted(wanted), lambda group: online_infos(admin, group))
    for group, infos in members.results.items():
        rows += _of_members(infos, group, now)
    rows.sort(key=lambda row: (row.group, row.sign, row.topic or "", row.client or ""))
    return Listing.make(Observation, rows, (*answers.missing, *members.missing))


async def online_infos(admin: AdminClient, group: str) -> dict[str, ConsumerRunningInfo]:
    """The reports of a group's members that answer; empty if nobody is online."""
    try:
        infos, _ = await partly(admin.groups.running_infos(group))
    except PyroMQError:
        # A group that never consumed has no retry topic and no members to ask.
        return {}
    return dict(sorted(infos.items()))


def backlogs(found: Iterable[ConsumeStatsList], groups: Collection[str]) -> list[Backlog]:
    """What these groups have not consumed yet, by group and topic, as brokers report it; only where there is some."""
    queues: dict[tuple[str, str], list[QueueProgress]] = {}
    for group, progress in progress_of_groups(found).items():
        for row in progress.rows if group in groups else ():
            if row.lag > 0:
                queues.setdefault((group, row.queue.topic), []).append(row)
    rows = []
    for (group, topic), behind in sorted(queues.items()):
        worst = max(behind, key=lambda row: (row.lag, row.last_time is not None, row.last_time))
        rows.append(Backlog(group, topic, sum(row.lag for row in behind), worst.lag, worst.last_time))
    return rows


def stuck_queues(info: ConsumerRunningInfo, now: int) -> list[StuckQueue]:
    """Where a push consumer is stuck, at the time `now` in milliseconds."""
    if info.properties.get(_CONSUME_TYPE) != ConsumeType.CONSUME_PASSIVELY.value:
        return []
    ordered = info.properties.get(_ORDERLY, "").lower() == "true"
    found = []
    for queue, held in sorted(info.mq_table.items()):
        if not ordered:
            idle = now - held.last_consume_timestamp
            if idle > STUCK_MS and held.cached_msg_count > 0:
                found.append(StuckQueue(queue, Sign.STUCK, millis=idle))
        elif not held.locked:
            found.append(StuckQueue(queue, Sign.NOT_LOCKED, millis=now - held.last_lock_timestamp))
        elif held.dropped and held.try_unlock_times > 0:
            found.append(StuckQueue(queue, Sign.NOT_UNLOCKED, tries=held.try_unlock_times))
    return found


def _of_members(infos: dict[str, ConsumerRunningInfo], group: str, now: int) -> list[Observation]:
    when = from_millis(now)
    rows = []
    for client, info in infos.items():
        for each in stuck_queues(info, now):
            held = info.mq_table[each.queue]
            spent = f"{each.tries} tries" if each.sign is Sign.NOT_UNLOCKED else f"{each.millis / 1000:.0f} s"
            rows.append(
                Observation(
                    when,
                    group,
                    each.sign,
                    each.queue.topic,
                    client,
                    held.cached_msg_count,
                    from_millis(held.last_consume_timestamp),
                    f"queue {each.queue.broker_name}:{each.queue.queue_id}, {spent}",
                )
            )
    if mismatch := subscription_mismatch([inspected(client, "", info) for client, info in infos.items()]):
        rows.append(Observation(when, group, Sign.MISMATCH, None, None, None, None, mismatch))
    return rows
