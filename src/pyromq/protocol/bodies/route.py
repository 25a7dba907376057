"""Routes and clusters: answers of the name server (105, 106, 206, 219, 901)."""

from __future__ import annotations

from .base import I32, I64, Body, written


class QueueData(Body, frozen=True, kw_only=True):
    """How many queues of a topic a broker has. perm bits: 4 read, 2 write, 1 inherit."""

    broker_name: str
    perm: I32 = written(0)
    read_queue_nums: I32 = written(0)
    topic_sys_flag: I32 = written(0)
    write_queue_nums: I32 = written(0)


class BrokerData(Body, frozen=True, kw_only=True):
    """The addresses behind one broker name, by broker id; 0 is the master.

    `broker_addrs` is written even when it is empty: the Go client dies without it.
    """

    broker_addrs: dict[I64, str] = written({})
    broker_name: str
    cluster: str = written("")
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body, frozen=True, kw_only=True):
    """105: where the queues of a topic are. `filter_server_table` goes by broker address and is normally empty."""

    broker_datas: list[BrokerData] = written([])
    filter_server_table: dict[str, list[str]] = written({})
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = written([])


class ClusterInfo(Body, frozen=True, kw_only=True):
    """106: all brokers by name, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData] = written({})
    cluster_addr_table: dict[str, list[str]] = written({})


class TopicList(Body, frozen=True, kw_only=True):
    """206, 224, 304, 305, 311 to 313, 343"""

    broker_addr: str | None = None
    topic_list: list[str] = written([])


class KVTable(Body, frozen=True):
    """28, 219, and the order topics in the answer to 103"""

    table: dict[str, str] = written({})


class BrokerMemberGroup(Body, frozen=True, kw_only=True):
    """The master and the slaves of one broker name (5.x)."""

    broker_addrs: dict[I64, str] = written({})
    broker_name: str
    cluster: str = written("")


class BrokerMemberGroupBody(Body, frozen=True):
    """901"""

    broker_member_group: BrokerMemberGroup
