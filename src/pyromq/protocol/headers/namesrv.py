"""Headers of what the name server serves (docs/spec/namesrv.md 3 and 4)."""

from __future__ import annotations

from msgspec import field

from ..header import I32, I64, Header


class PutKVConfig(Header):
    """100"""

    namespace: str
    key: str
    value: str


class GetKVConfig(Header):
    """101, and 102 (delete)"""

    namespace: str
    key: str


class GetKVConfigReply(Header):
    value: str | None = None


class GetKVListByNamespace(Header):
    """219"""

    namespace: str


class BrokerIdentity(Header):
    """104 (unregister) and 322 (query data version): which broker speaks."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class RegisterBroker(Header):
    """103. The last three come from 5.x brokers only; `enable_acting_master` is absent from older ones."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = 0
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class RegisterBrokerReply(Header):
    """Filled for a slave whose master is known."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class QueryDataVersionReply(Header):
    changed: bool


class GetRouteInfo(Header):
    """105. The zone fields come from 5.x clients that asked for their zone only."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_name: str | None = field(default=None, name="__ZONE_NAME")
    zone_mode: bool | None = field(default=None, name="__ZONE_MODE")


class WipeWritePerm(Header):
    """205, and 327 (add)"""

    broker_name: str


class WipeWritePermReply(Header):
    wipe_topic_count: I32


class AddWritePermReply(Header):
    add_topic_count: I32


class DeleteTopicInNamesrv(Header):
    """216"""

    topic: str
    cluster_name: str | None = None


class GetTopicsByCluster(Header):
    """224"""

    cluster: str


class RegisterTopicInNamesrv(Header):
    """217 (5.x)"""

    topic: str


class GetBrokerMemberGroup(Header):
    """901 (5.x)"""

    cluster_name: str
    broker_name: str


class BrokerHeartbeat(Header):
    """904 (5.x). `doubtful` is ours: the broker's log may lack messages that it acknowledged. Others ignore it."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_mills: I64 | None = None
    election_priority: I32 | None = None
    doubtful: bool | None = None


class NotifyMinBrokerIdChange(Header):
    """905 (5.x), from the name server to brokers"""

    min_broker_id: I64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
