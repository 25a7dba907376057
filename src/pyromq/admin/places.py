"""Which brokers to ask, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import RouteNotFound, TopicNotFound
from pyromq.protocol.names import retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import BrokerData, ClusterInfo

MASTER = 0


def readable(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Who answers questions: of each broker the master, or, while it is down, the slave with the smallest id."""
    return {
        data.broker_name: data.broker_addrs[min(data.broker_addrs)]
        for data in sorted(brokers, key=lambda data: data.broker_name)
        if data.broker_addrs
    }


def brokers_in(info: ClusterInfo, cluster: str | None = None) -> dict[str, str]:
    """Who answers questions for a cluster, or for all of them. Raises RouteNotFound for an unknown cluster."""
    if cluster is not None and cluster not in info.cluster_addr_table:
        raise RouteNotFound(
            f"there is no cluster {cluster}; there are: {', '.join(sorted(info.cluster_addr_table)) or 'none'}"
        )
    names = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
    return readable(info.broker_addr_table[name] for name in names if name in info.broker_addr_table)


async def brokers_of_topic(admin: AdminClient, topic: str) -> dict[str, str]:
    """Raises TopicNotFound."""
    return readable((await admin.topics.route(topic)).broker_datas)


async def brokers_of_group(admin: AdminClient, group: str) -> dict[str, str]:
    """The brokers that may know a group: all where its retry topic is, or, before it has one, all there are."""
    try:
        return await brokers_of_topic(admin, retry_topic(group))
    except TopicNotFound:
        return brokers_in(await admin.brokers.cluster_info())
