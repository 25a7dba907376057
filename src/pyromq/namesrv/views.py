"""What the name server reads from its tables: routes, clusters, topic lists. `routes` has the rules of change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    TopicList,
    TopicRouteData,
)
from pyromq.protocol.permissions import PERM_WRITE
from pyromq.protocol.sysflag import TOPIC_UNIT, TOPIC_UNIT_SUBSCRIBED

from .routes import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.protocol.bodies import QueueData

    from .routes import BrokerGroup, RouteTables


def route(
    tables: RouteTables,
    topic: str,
    *,
    order_conf: str | None = None,
    acting_masters: bool = False,
    zone: str | None = None,
) -> TopicRouteData | None:
    """The route of `topic`, or None if nobody serves it.

    `acting_masters` shows the smallest id of a group without a master as its master, once the group accepts no
    writes. `zone` leaves out the brokers of other zones, even if none remain.
    """
    by_broker = tables.topics.get(topic)
    if not by_broker:
        return None
    groups = [tables.brokers[name] for name in by_broker if name in tables.brokers]
    if not groups:
        return None
    queues = list(by_broker.values())
    if zone is not None:
        groups = [group for group in groups if not group.has_master or (group.zone or "").lower() == zone.lower()]
        names = {group.name for group in groups}
        queues = [data for data in queues if data.broker_name in names]
    brokers = [_broker_data(group, by_broker[group.name], acting_masters) for group in groups]
    filters = {
        address: tables.filters[address]
        for group in groups
        for address in group.addresses.values()
        if address in tables.filters
    }
    return TopicRouteData(
        broker_datas=brokers, queue_datas=queues, filter_server_table=filters, order_topic_conf=order_conf
    )


def _broker_data(group: BrokerGroup, queues: QueueData | None = None, acting_masters: bool = False) -> BrokerData:
    addresses = dict(group.addresses)
    if (
        acting_masters
        and queues is not None
        and group.enable_acting_master
        and not group.has_master
        and not queues.perm & PERM_WRITE
    ):
        addresses[MASTER_ID] = addresses.pop(min(addresses))
    return BrokerData(
        cluster=group.cluster,
        broker_name=group.name,
        broker_addrs=addresses,
        zone_name=group.zone,
        enable_acting_master=group.enable_acting_master,
    )


def cluster_info(tables: RouteTables) -> ClusterInfo:
    """All brokers and clusters."""
    return ClusterInfo(
        broker_addr_table={name: _broker_data(group) for name, group in tables.brokers.items()},
        cluster_addr_table={cluster: sorted(names) for cluster, names in tables.clusters.items()},
    )


def member_group(tables: RouteTables, cluster: str, broker_name: str) -> BrokerMemberGroupBody:
    """The master and slaves of one broker name; no addresses if it is unknown."""
    group = tables.brokers.get(broker_name)
    addresses = dict(group.addresses) if group is not None else {}
    return BrokerMemberGroupBody(BrokerMemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addresses))


def all_topics(tables: RouteTables) -> TopicList:
    return TopicList(topic_list=list(tables.topics))


def topics_of_cluster(tables: RouteTables, cluster: str) -> TopicList:
    names = tables.clusters.get(cluster, set())
    topics = [topic for topic, by_broker in tables.topics.items() if not names.isdisjoint(by_broker)]
    return TopicList(topic_list=topics)


def system_topics(tables: RouteTables) -> TopicList:
    """Each cluster and broker has a topic of its own name. The address lets an admin ask a broker for more."""
    names = dict.fromkeys(name for cluster, brokers in tables.clusters.items() for name in (cluster, *sorted(brokers)))
    addresses = (address for group in tables.brokers.values() for address in group.addresses.values())
    return TopicList(topic_list=list(names), broker_addr=next(addresses, None))


def unit_topics(tables: RouteTables) -> TopicList:
    return _flagged(tables, lambda flag: bool(flag & TOPIC_UNIT))


def unit_sub_topics(tables: RouteTables) -> TopicList:
    return _flagged(tables, lambda flag: bool(flag & TOPIC_UNIT_SUBSCRIBED))


def unit_sub_topics_outside_units(tables: RouteTables) -> TopicList:
    return _flagged(tables, lambda flag: bool(flag & TOPIC_UNIT_SUBSCRIBED) and not flag & TOPIC_UNIT)


def _flagged(tables: RouteTables, wanted: Callable[[int], bool]) -> TopicList:
    # The flag is the same on every broker of a topic, so any one will do.
    flags = {topic: next(iter(by_broker.values())).topic_sys_flag for topic, by_broker in tables.topics.items()}
    return TopicList(topic_list=[topic for topic, flag in flags.items() if wanted(flag)])
