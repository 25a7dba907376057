"""Which broker serves which topic, and which brokers are alive: five tables and the rules that change them.

    topics      topic -> broker name -> QueueData       what producers and consumers ask for
    brokers     broker name -> BrokerGroup              a master (id 0) and its slaves, each with its address
    clusters    cluster -> broker names
    live        address -> LiveBroker                   when we last heard from it, and over which connection
    filters     address -> filter server addresses

No clock, no loop, no socket: the time in milliseconds is an argument, a connection is any hashable object, and what
must happen outside (connections to close, brokers to notify) is returned. Every method is one synchronous stretch, so
a reader never sees half of a change. docs/spec/namesrv.md 4 numbers the steps; `views` has the functions that only
read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyromq.protocol.bodies import DataVersion, QueueData
from pyromq.protocol.permissions import PERM_READ_WRITE, PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from pyromq.protocol.bodies import TopicConfig

MASTER_ID = 0

# A broker that is silent for this long is gone, unless its registration named another time.
BROKER_EXPIRES_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A broker's registration (REGISTER_BROKER)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    filter_servers: list[str] | None = None  # None keeps what is known, an empty list removes it
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool | None = None  # None: a broker older than 5.0
    zone: str | None = None


@dataclass(slots=True)
class BrokerGroup:
    """A master and its slaves: one broker name, an address for each id. `cluster` never changes once it is set."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone: str | None = None

    @property
    def has_master(self) -> bool:
        return MASTER_ID in self.addresses


@dataclass(slots=True)
class LiveBroker:
    """When and how we last heard from a broker. `connection` carried its registration."""

    last_update: int
    timeout: int
    data_version: DataVersion
    connection: Hashable
    ha_address: str


class MinBrokerChange(NamedTuple):
    """News for the brokers of a group: another one now has the smallest id and may act for a missing master."""

    recipients: list[str]
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None = None  # who left
    ha_address: str | None = None  # where the new one serves replication


class Registered(NamedTuple):
    """The result of a registration. The addresses are set for a slave whose master is alive."""

    master_address: str | None = None
    master_ha_address: str | None = None
    news: MinBrokerChange | None = None


class Departed(NamedTuple):
    """Brokers that are gone: their addresses, the connections to close, and whom to notify."""

    addresses: list[str]
    connections: list[Hashable]
    news: list[MinBrokerChange]


class RouteTables:
    """The state of a name server. `revision` changes whenever a route may have changed."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerGroup] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[str, LiveBroker] = {}
        self.filters: dict[str, list[str]] = {}
        self.revision = 0

    # Registration (4.2)

    def register(
        self, registration: Registration, connection: Hashable, now: int, *, drop_absent_topics: bool = False
    ) -> Registered:
        """Apply a broker's registration. The numbered steps are those of the specification."""
        address, broker_id = registration.address, registration.broker_id
        group, first = self._join_group(registration)  # 1, 2
        previous_min = min(group.addresses, default=MASTER_ID)
        self._forget_other_ids(group, address, broker_id)  # 3
        if self._is_outdated(group, registration):  # 4
            self._depart([address])
            return Registered()
        if group.addresses.get(broker_id) != address:  # 6; step 5 is a habit of 5.x that we do not share
            first = first or broker_id not in group.addresses
            group.addresses[broker_id] = address
            self.revision += 1
        if self._may_set_topics(group, registration):  # 7
            if drop_absent_topics:
                self._drop_absent_topics(registration)
            if first or self.data_version(address) != registration.data_version:
                self._set_topics(group, registration)
        timeout = registration.heartbeat_timeout_ms
        if timeout is None or timeout <= 0:
            timeout = BROKER_EXPIRES_MS
        self.live[address] = LiveBroker(  # 8
            now, timeout, registration.data_version, connection, registration.ha_address
        )
        self._set_filters(registration)  # 9
        news = None
        if broker_id < previous_min:
            others = [other for other_id, other in group.addresses.items() if other_id != broker_id]
            news = MinBrokerChange(others, broker_id, address, ha_address=registration.ha_address)
        return self._registered(group, registration, news)  # 10

    def _join_group(self, registration: Registration) -> tuple[BrokerGroup, bool]:
        self.clusters.setdefault(registration.cluster, set()).add(registration.broker_name)
        group = self.brokers.get(registration.broker_name)
        first = group is None
        if group is None:
            group = self.brokers[registration.broker_name] = BrokerGroup(registration.cluster, registration.broker_name)
        acting, zone = bool(registration.enable_acting_master), registration.zone
        if (group.enable_acting_master, group.zone) != (acting, zone):
            group.enable_acting_master, group.zone = acting, zone
            self.revision += 1
        return group, first

    def _forget_other_ids(self, group: BrokerGroup, address: str, broker_id: int) -> None:
        # A promoted slave comes back with id 0 and must not stay in the route as a slave too.
        for other_id in [key for key, value in group.addresses.items() if value == address and key != broker_id]:
            del group.addresses[other_id]
            self.revision += 1

    def _is_outdated(self, group: BrokerGroup, registration: Registration) -> bool:
        # Two brokers claim one id. The one elected later has the larger state version and wins.
        holder = group.addresses.get(registration.broker_id)
        if holder is None or holder == registration.address:
            return False
        version = self.data_version(holder)
        return version is not None and version.state_version > registration.data_version.state_version

    def _may_set_topics(self, group: BrokerGroup, registration: Registration) -> bool:
        return registration.broker_id == MASTER_ID or self._is_prime_slave(group, registration)

    @staticmethod
    def _is_prime_slave(group: BrokerGroup, registration: Registration) -> bool:
        return (
            registration.enable_acting_master is not None
            and registration.broker_id != MASTER_ID
            and registration.broker_id == min(group.addresses)
        )

    def _set_topics(self, group: BrokerGroup, registration: Registration) -> None:
        # Topics that the body does not name stay: a broker may announce a single new topic.
        mask = ~0
        if self._is_prime_slave(group, registration) and group.enable_acting_master:
            mask = ~PERM_WRITE
        for topic, config in registration.topics.items():
            queues = QueueData(
                broker_name=group.name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm & mask,
                topic_sys_flag=config.topic_sys_flag,
            )
            self._set_queues(topic, queues)

    def _set_queues(self, topic: str, queues: QueueData) -> None:
        by_broker = self.topics.setdefault(topic, {})
        if by_broker.get(queues.broker_name) != queues:
            by_broker[queues.broker_name] = queues
            self.revision += 1

    def _drop_absent_topics(self, registration: Registration) -> None:
        name = registration.broker_name
        for topic in [topic for topic, by_broker in self.topics.items() if name in by_broker]:
            if topic not in registration.topics:
                self._drop_queues(topic, name)

    def _set_filters(self, registration: Registration) -> None:
        address, servers = registration.address, registration.filter_servers
        if servers is None or servers == self.filters.get(address, []):
            return
        if servers:
            self.filters[address] = servers
        else:
            del self.filters[address]
        self.revision += 1

    def _registered(self, group: BrokerGroup, registration: Registration, news: MinBrokerChange | None) -> Registered:
        if registration.broker_id != MASTER_ID:
            master_address = group.addresses.get(MASTER_ID)
            master = self.live.get(master_address) if master_address is not None else None
            if master is not None:
                return Registered(master_address, master.ha_address, news)
        return Registered(news=news)

    # Signs of life (4.4)

    def data_version(self, address: str) -> DataVersion | None:
        """The last registration of the broker at `address`, or None if it is not alive."""
        live = self.live.get(address)
        return live.data_version if live is not None else None

    def heard_of(self, address: str, now: int) -> None:
        """A broker sent something other than a registration: it is alive, if it was known."""
        if (live := self.live.get(address)) is not None:
            live.last_update = now

    def expire(self, now: int) -> Departed:
        """Drop every broker that was silent for too long; the caller must close their connections."""
        silent = [address for address, live in self.live.items() if live.last_update + live.timeout < now]
        connections = list(dict.fromkeys(self.live[address].connection for address in silent))
        return Departed(silent, connections, self._depart(silent))

    # Departures (4.3, 4.5)

    def connection_closed(self, connection: Hashable) -> Departed:
        """Drop the brokers that registered over this very connection.

        A broker that has since registered over another one stays.
        """
        addresses = [address for address, live in self.live.items() if live.connection is connection]
        return Departed(addresses, [], self._depart(addresses))

    def unregister(self, broker_name: str, address: str) -> Departed:
        """A broker unregisters. Its connection stays open.

        An address that another broker name holds stays alive, or nothing would ever remove it from the routes.
        """
        group = self.brokers.get(broker_name)
        news = self._leave_group(group, address) if group is not None else None
        if not any(address in other.addresses.values() for other in self.brokers.values()):
            self._forget_life(address)
        return Departed([address], [], [news] if news is not None else [])

    def _depart(self, addresses: Iterable[str]) -> list[MinBrokerChange]:
        changes: list[MinBrokerChange] = []
        for address in addresses:
            self._forget_life(address)
            left = [self._leave_group(group, address) for group in list(self.brokers.values())]
            changes += [news for news in left if news is not None]
        return changes

    def _forget_life(self, address: str) -> None:
        self.live.pop(address, None)
        if self.filters.pop(address, None) is not None:
            self.revision += 1

    def _leave_group(self, group: BrokerGroup, address: str) -> MinBrokerChange | None:
        left = [broker_id for broker_id, value in group.addresses.items() if value == address]
        if not left:
            return None
        previous_min = min(group.addresses)
        for broker_id in left:
            del group.addresses[broker_id]
        self.revision += 1
        if not group.addresses:
            self._drop_group(group)
            return None
        if group.enable_acting_master and not group.has_master:
            # Nobody accepts writes until a master is back, and routes must say so.
            self._change_perms(group.name, lambda perm: perm & ~PERM_WRITE)
        new_min = min(group.addresses)
        if new_min == previous_min:
            return None
        return MinBrokerChange(
            list(group.addresses.values()), new_min, group.addresses[new_min], offline_address=address
        )

    def _drop_group(self, group: BrokerGroup) -> None:
        del self.brokers[group.name]
        for cluster, names in list(self.clusters.items()):
            names.discard(group.name)
            if not names:
                del self.clusters[cluster]
        for topic in list(self.topics):
            self._drop_queues(topic, group.name)

    # What an operator changes

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write bit from all topics of a broker; returns how many there are.

        It stays removed until the broker's DataVersion changes: registering the same version again sets no topics.
        """
        return self._change_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a broker readable and writable again; returns how many there are."""
        return self._change_perms(broker_name, lambda _: PERM_READ_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or one cluster's part of it. A changed DataVersion brings it back."""
        if cluster is None:
            if self.topics.pop(topic, None) is not None:
                self.revision += 1
            return
        for broker_name in self.clusters.get(cluster, ()):
            self._drop_queues(topic, broker_name)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Add the brokers of a topic. If one of them is unknown, nothing changes and the result is False."""
        queues = list(queues)
        if any(data.broker_name not in self.brokers for data in queues):
            return False
        for data in queues:
            self._set_queues(topic, data)
        return True

    def _change_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        served = [by_broker for by_broker in self.topics.values() if broker_name in by_broker]
        for by_broker in served:
            queues = by_broker[broker_name]
            by_broker[broker_name] = msgspec.structs.replace(queues, perm=change(queues.perm))
        self.revision += 1
        return len(served)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        by_broker = self.topics.get(topic, {})
        if by_broker.pop(broker_name, None) is None:
            return
        self.revision += 1
        if not by_broker:
            del self.topics[topic]
