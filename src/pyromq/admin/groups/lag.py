"""The lag of groups: one group queue by queue, or all groups with one request per broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import brokers_in
from pyromq.client.admin.fan_out import fan_out, partly
from pyromq.client.admin.progress import progress_of_groups
from pyromq.errors import TopicNotFound
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import is_system_group
from pyromq.protocol.versions import version_name

from ..listing import Listing
from .members import connections

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.fan_out import Missing
    from pyromq.client.admin.progress import GroupProgress, QueueProgress
    from pyromq.protocol.bodies import ConsumeStatsList


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A group in one queue. Offsets are those of the next message; None if the broker did not answer."""

    topic: str
    broker: str
    queue: int
    broker_offset: int | None
    consumer_offset: int | None
    lag: int | None
    last_consumed: datetime | None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class GroupLag(Listing[QueueLag]):
    """A group in all its queues. `lag` and `tps` cover only brokers that answered: see `missing`."""

    group: str = ""
    tps: float = 0.0

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.rows if row.lag is not None)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group. Its lag is unknown if it has no offset anywhere."""

    group: str
    lag: int | None
    tps: float | None
    topics: int | None
    brokers: tuple[str, ...] = field(metadata={"hidden": True})


@dataclass(frozen=True, slots=True)
class GroupWithClients:
    group: str
    lag: int | None
    tps: float | None
    topics: int | None
    clients: int | None
    version: str | None
    type: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class BrokerLag:
    """A group in one queue of one broker."""

    group: str
    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed: datetime | None


async def group_lag(admin: AdminClient, group: str, topic: str | None = None, *, clients: bool = False) -> GroupLag:
    """The lag of a group in one topic or all; `clients` adds who has each queue, which asks every member.

    Raises TopicNotFound, and ConsumerNotOnline if the group has no offset anywhere.
    """
    progress, missing = await partly(admin.groups.progress(group, topic, clients=clients))
    rows = {each.queue: QueueLag(*_columns(each), each.client_id) for each in progress.rows}
    topics = {queue.topic for queue in rows} | ({topic} if topic else set())
    rows |= {queue: _unknown(queue) for queue in await _silent_queues(admin, topics, missing)}
    ordered = [rows[queue] for queue in sorted(rows, key=lambda queue: (queue.topic, queue))]
    return GroupLag(QueueLag, tuple(ordered), missing, _summary(ordered, progress.tps), group, progress.tps)


async def group_list(admin: AdminClient, cluster: str | None = None) -> Listing[GroupRow]:
    """All groups with their lag: two requests per broker, however many groups there are."""
    brokers = brokers_in(await admin.brokers.cluster_info(), cluster)

    async def ask(address: str) -> tuple[Iterable[str], ConsumeStatsList]:
        return await admin.groups.configs(address), await admin.brokers.consume_stats(address)

    answers = await fan_out(brokers, ask)
    where: dict[str, list[str]] = {}
    for broker, (names, _) in answers.some().items():
        for name in names:
            where.setdefault(name, []).append(broker)
    progress = progress_of_groups(stats for _, stats in answers.results.values())
    rows = [_group_row(name, progress.get(name), tuple(where.get(name, ()))) for name in sorted({*where, *progress})]
    return Listing.make(GroupRow, rows, answers.missing)


async def with_clients(admin: AdminClient, groups: Listing[GroupRow]) -> Listing[GroupWithClients]:
    """Who is online in each group: at least one request per group."""
    answers = await fan_out([row.group for row in groups.rows], lambda group: connections(admin, group))
    rows = []
    for row in groups.rows:
        found = answers.results.get(row.group)
        members = found.connection_set if found else []
        versions = sorted({member.version for member in members})
        rows.append(
            GroupWithClients(
                row.group,
                row.lag,
                row.tps,
                row.topics,
                len(members) if row.group in answers.results else None,
                ", ".join(map(version_name, versions)) or None,
                found.consume_type.value if found and found.consume_type else None,
                found.message_model.value if found and found.message_model else None,
            )
        )
    return Listing.make(GroupWithClients, rows, groups.missing + answers.missing)


async def broker_lag(admin: AdminClient, brokers: Mapping[str, str], *, ordered: bool = False) -> Listing[BrokerLag]:
    """The lag of all groups on these brokers, queue by queue: one request per broker."""
    answers = await fan_out(brokers, lambda address: admin.brokers.consume_stats(address, ordered=ordered))
    rows = [
        BrokerLag(group, *_columns(each))
        for group, progress in progress_of_groups(answers.some().values()).items()
        for each in progress.rows
    ]
    rows.sort(key=lambda row: (row.group, row.topic, row.broker, row.queue))
    return Listing.make(BrokerLag, rows, answers.missing)


def people_groups(rows: Iterable[GroupRow]) -> list[GroupRow]:
    """The groups without RocketMQ's own."""
    return [row for row in rows if not is_system_group(row.group)]


def _group_row(name: str, progress: GroupProgress | None, brokers: tuple[str, ...]) -> GroupRow:
    if progress is None or not progress.rows:
        return GroupRow(name, None, None, None, brokers)
    return GroupRow(name, progress.lag, progress.tps, len({each.queue.topic for each in progress.rows}), brokers)


def _columns(each: QueueProgress) -> tuple[str, str, int, int, int, int, datetime | None]:
    queue = each.queue
    offsets = each.broker_offset, each.consumer_offset, each.lag
    return queue.topic, queue.broker_name, queue.queue_id, *offsets, each.last_time


async def _silent_queues(admin: AdminClient, topics: set[str], missing: tuple[Missing, ...]) -> list[MessageQueue]:
    """The queues of silent brokers, according to routes."""
    silent = {each.server for each in missing}
    queues: list[MessageQueue] = []
    for topic in topics if silent else ():
        try:
            route = await admin.topics.route(topic)
        except TopicNotFound:
            continue
        queues += [
            MessageQueue(broker_name=data.broker_name, queue_id=number, topic=topic)
            for data in route.queue_datas
            if data.broker_name in silent
            for number in range(data.read_queue_nums)
        ]
    return queues


def _unknown(queue: MessageQueue) -> QueueLag:
    return QueueLag(queue.topic, queue.broker_name, queue.queue_id, None, None, None, None)


def _summary(rows: list[QueueLag], tps: float) -> str:
    known = [row.lag for row in rows if row.lag is not None]
    unknown = len(rows) - len(known)
    rest = f"; {unknown} more are unknown" if unknown else ""
    return f"lag {sum(known)} in {len(known)} queues{rest}; {tps:.2f} messages/s"
