"""Topics: their names, routes, settings and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import MASTER, brokers_in
from pyromq.client.admin.fan_out import Missing, fan_out, partly
from pyromq.client.admin.times import from_millis
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.permissions import PERM_READ, PERM_WRITE

from .listing import Listing
from .topic_kinds import TopicKind, names_of_servers, topic_kind

if TYPE_CHECKING:
    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicRow:
    topic: str
    kind: TopicKind


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic on all its brokers: the sum of their queues, the union of their permissions."""

    topic: str
    kind: TopicKind
    clusters: tuple[str, ...]
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: tuple[str, ...]
    order: bool


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A topic on one broker, as name servers report it to clients. Without a master, sends to it fail."""

    broker: str
    cluster: str
    master: str | None
    slaves: tuple[str, ...]
    read_queues: int | None
    write_queues: int | None
    perm: str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic on one broker, as the broker itself reports it."""

    broker: str
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    filter_type: str
    sys_flag: int
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue. `last_stored` is None if it never had a message."""

    broker: str
    queue: int
    min_offset: int | None
    max_offset: int | None
    messages: int | None
    last_stored: datetime | None


def perm_text(perm: int) -> str:
    """`rw` for 6: what the bits of a permission allow."""
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "none"


async def topic_list(admin: AdminClient, cluster: str | None = None) -> Listing[TopicRow]:
    """All topics, or those of a cluster. Asks only name servers, so no broker can slow it down."""
    info = await admin.brokers.cluster_info()
    brokers_in(info, cluster)
    system = names_of_servers(info)
    return Listing.make(
        TopicRow, (TopicRow(topic, topic_kind(topic, system)) for topic in await admin.topics.names(cluster))
    )


async def topic_details(admin: AdminClient, cluster: str | None = None) -> Listing[TopicDetail]:
    """The same, with each broker's settings of each topic: one request per broker."""
    info = await admin.brokers.cluster_info()
    system = names_of_servers(info)
    answers = await fan_out(brokers_in(info, cluster), admin.topics.configs)
    places: dict[str, dict[str, TopicConfig]] = {}
    for broker, configs in answers.some().items():
        for topic, config in configs.items():
            places.setdefault(topic, {})[broker] = config
    clusters = {name: data.cluster for name, data in info.broker_addr_table.items()}
    rows = [
        TopicDetail(
            topic,
            topic_kind(topic, system),
            tuple(sorted({clusters[broker] for broker in found})),
            tuple(sorted(found)),
            sum(config.read_queue_nums for config in found.values()),
            sum(config.write_queue_nums for config in found.values()),
            tuple(sorted({perm_text(config.perm) for config in found.values()})),
            any(config.order for config in found.values()),
        )
        for topic, found in sorted(places.items())
    ]
    return Listing.make(TopicDetail, rows, answers.missing)


async def topic_route(admin: AdminClient, topic: str) -> Listing[TopicPlace]:
    """The route that clients get. Raises TopicNotFound."""
    route = await admin.topics.route(topic)
    queues = {data.broker_name: data for data in route.queue_datas}
    rows = []
    for data in sorted(route.broker_datas, key=lambda data: data.broker_name):
        queue = queues.get(data.broker_name)
        rows.append(
            TopicPlace(
                data.broker_name,
                data.cluster,
                data.broker_addrs.get(MASTER),
                tuple(address for broker_id, address in sorted(data.broker_addrs.items()) if broker_id != MASTER),
                queue.read_queue_nums if queue else None,
                queue.write_queue_nums if queue else None,
                perm_text(queue.perm) if queue else "none",
            )
        )
    return Listing.make(TopicPlace, rows)


async def topic_settings(admin: AdminClient, topic: str) -> Listing[TopicSettings]:
    """The settings of a topic on each of its brokers. Raises TopicNotFound."""
    configs, missing = await partly(admin.topics.config(topic))
    rows = [
        TopicSettings(
            broker,
            config.read_queue_nums,
            config.write_queue_nums,
            perm_text(config.perm),
            config.order,
            config.topic_filter_type.value,
            config.topic_sys_flag,
            config.attributes,
        )
        for broker, config in sorted(configs.items())
    ]
    return Listing.make(TopicSettings, rows, missing)


async def topic_stats(admin: AdminClient, topic: str) -> Listing[QueueStats]:
    """Where the queues of a topic begin and end; None for those of a silent broker.

    Raises TopicNotFound.
    """
    route = await admin.topics.route(topic)
    table, missing = await partly(admin.topics.stats(topic))
    rows = {
        queue: QueueStats(
            queue.broker_name,
            queue.queue_id,
            ends.min_offset,
            ends.max_offset,
            ends.max_offset - ends.min_offset,
            from_millis(ends.last_update_timestamp),
        )
        for queue, ends in table.items()
    }
    silent = {each.server for each in missing}
    for data in route.queue_datas:
        if data.broker_name in silent:
            for queue_id in range(data.write_queue_nums):
                queue = MessageQueue(broker_name=data.broker_name, queue_id=queue_id, topic=topic)
                rows[queue] = QueueStats(data.broker_name, queue_id, None, None, None, None)
    known = [row.messages for row in rows.values() if row.messages is not None]
    summary = f"{sum(known)} messages in {len(known)} queues" + _not_counted(missing)
    return Listing.make(QueueStats, (rows[queue] for queue in sorted(rows)), missing, summary)


def _not_counted(missing: tuple[Missing, ...]) -> str:
    return f"; those of {', '.join(each.server for each in missing)} are not counted" if missing else ""
