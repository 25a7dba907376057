"""The addresses an admin client asks, looked up every time: a change may have made old ones wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import RouteNotFound, TopicNotFound
from pyromq.protocol.bodies import ClusterInfo, TopicRouteData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import GetRouteInfo
from pyromq.protocol.names import retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.bodies import BrokerData
    from pyromq.protocol.message_queue import MessageQueue

    from .requests import Requests

MASTER = 0
_BROKER_NOT_FOUND = 10003


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker process: the master of its name, or a slave."""

    cluster: str
    broker: str
    id: int
    address: str


class Addresses:
    """Finds the addresses of brokers.

    If an operation takes `brokers`, each is an address (`host:port`) or a broker name, which means its master. Without
    `brokers` and `cluster` the operation covers every cluster.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def cluster_info(self) -> ClusterInfo:
        reply = await self._requests.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(reply.body_bytes)

    async def route(self, topic: str) -> TopicRouteData:
        """Raises TopicNotFound."""
        reply = await self._requests.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic))
        return TopicRouteData.decode(reply.body_bytes)

    async def address(self, broker: str) -> str:
        """The address of `broker`; for a name, that of its master."""
        [address] = await self.masters(brokers=[broker])
        return address

    async def masters(self, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """The addresses for a change."""
        return await self._chosen(cluster, brokers, everyone=False)

    async def everyone(self, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """The same, including slaves: for things that each broker keeps on its own."""
        return await self._chosen(cluster, brokers, everyone=True)

    async def names(self, addresses: Iterable[str]) -> dict[str, str]:
        """The broker names of these addresses. Raises RouteNotFound for one that no name server knows."""
        known = await self.broker_names()
        wanted = list(addresses)
        if unknown := [address for address in wanted if address not in known]:
            raise _nowhere(f"no broker is registered at {', '.join(unknown)}")
        return {address: known[address] for address in wanted}

    async def broker_names(self) -> dict[str, str]:
        """The name of every broker, by its address."""
        return {each.address: each.broker for each in replicas(await self.cluster_info())}

    async def serving(self, topic: str) -> dict[str, str]:
        """The brokers of a topic, by name: the master, or a slave while it is down. Raises TopicNotFound."""
        return _some(readable((await self.route(topic)).broker_datas), f"the brokers of {topic}")

    async def serving_group(self, group: str) -> dict[str, str]:
        """The brokers that may know a group: those of its retry topic.

        A group that no one has joined yet has no such topic but may have offsets: then all brokers.
        """
        try:
            return await self.serving(retry_topic(group))
        except TopicNotFound:
            return _some(brokers_in(await self.cluster_info()), "the brokers")

    async def masters_of(self, topic: str) -> dict[str, str]:
        """The masters of a topic's brokers, by name. Raises RouteNotFound if one of them is down."""
        route = await self.route(topic)
        found = {data.broker_name: data.broker_addrs.get(MASTER) for data in route.broker_datas}
        if missing := sorted(name for name, address in found.items() if address is None):
            raise _nowhere(f"topic {topic}: no master of {', '.join(missing)} is known")
        return {name: address for name, address in found.items() if address is not None}

    async def master_of(self, queue: MessageQueue) -> str:
        masters = await self.masters_of(queue.topic)
        if queue.broker_name not in masters:
            raise _nowhere(f"topic {queue.topic} is not on broker {queue.broker_name}")
        return masters[queue.broker_name]

    async def _chosen(self, cluster: str | None, brokers: str | Iterable[str] | None, *, everyone: bool) -> list[str]:
        if brokers is not None:
            named = [brokers] if isinstance(brokers, str) else list(brokers)
            return await self._named(named)
        info = await self.cluster_info()
        return addresses_in(info, cluster, everyone=everyone)

    async def _named(self, brokers: list[str]) -> list[str]:
        if all(":" in broker for broker in brokers):
            return list(dict.fromkeys(brokers))
        table = (await self.cluster_info()).broker_addr_table
        found = []
        for broker in brokers:
            if ":" in broker:
                found.append(broker)
            elif broker in table and MASTER in table[broker].broker_addrs:
                found.append(table[broker].broker_addrs[MASTER])
            else:
                raise _nowhere(f"no master of broker {broker} is known")
        return list(dict.fromkeys(found))


def addresses_in(info: ClusterInfo, cluster: str | None, *, everyone: bool) -> list[str]:
    """The masters, or all brokers, of one cluster or all. Raises RouteNotFound if there are none."""
    addresses = [each.address for each in replicas(info, cluster) if everyone or each.id == MASTER]
    if not addresses:
        raise _nowhere(f"no {'broker' if everyone else 'master'} of {cluster or 'any cluster'} is known")
    return addresses


def replicas(info: ClusterInfo, cluster: str | None = None) -> list[Replica]:
    """All brokers of one cluster or all, in order. Raises RouteNotFound for an unknown cluster."""
    clusters = {broker: name for name, brokers in info.cluster_addr_table.items() for broker in brokers}
    found = [
        Replica(cluster or clusters.get(data.broker_name, data.cluster), data.broker_name, broker_id, address)
        for data in _brokers_in(info, cluster)
        for broker_id, address in data.broker_addrs.items()
    ]
    return sorted(found, key=lambda each: (each.cluster, each.broker, each.id))


def masters_in(info: ClusterInfo, cluster: str | None = None) -> dict[str, str]:
    """The masters of one cluster or all, by name. Raises RouteNotFound for an unknown cluster."""
    return {each.broker: each.address for each in replicas(info, cluster) if each.id == MASTER}


def brokers_in(info: ClusterInfo, cluster: str | None = None) -> dict[str, str]:
    """The brokers to query for one cluster or all. Raises RouteNotFound for an unknown cluster."""
    return readable(_brokers_in(info, cluster))


def readable(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """The brokers to query: for each name the master, or, while it is down, the slave with the smallest id."""
    return {
        data.broker_name: data.broker_addrs[min(data.broker_addrs)]
        for data in sorted(brokers, key=lambda data: data.broker_name)
        if data.broker_addrs
    }


def _brokers_in(info: ClusterInfo, cluster: str | None) -> list[BrokerData]:
    clusters = info.cluster_addr_table
    if cluster is not None and cluster not in clusters:
        raise _nowhere(f"there is no cluster {cluster}; known clusters: {', '.join(sorted(clusters)) or 'none'}")
    names = info.broker_addr_table if cluster is None else clusters[cluster]
    return [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]


def _some(brokers: dict[str, str], what: str) -> dict[str, str]:
    if not brokers:
        raise _nowhere(f"no address of {what} is known")
    return brokers


def _nowhere(reason: str) -> RouteNotFound:
    error = RouteNotFound(reason)
    error.code = _BROKER_NOT_FOUND
    return error
