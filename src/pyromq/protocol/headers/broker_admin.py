"""Headers of what brokers serve to admin tools (docs/spec/broker.md 8.3, 9, 11.1 and 12.1)."""

from __future__ import annotations

from ..header import I32, I64, Header


class GetBrokerConfigReply(Header):
    """To 26. `version` is a DataVersion as JSON: it changes with every change of a setting."""

    version: str


class GetTopicStatsInfo(Header):
    """202"""

    topic: str


class GetConsumerConnectionList(Header):
    """203"""

    consumer_group: str


class GetProducerConnectionList(Header):
    """204"""

    producer_group: str


class DeleteSubscriptionGroup(Header):
    """207"""

    group_name: str
    remove_offset: bool = False


class GetConsumeStats(Header):
    """208. Without a topic: of all that the group has offsets in. `topic_list` (5.5) names several, apart by `;`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class DeleteTopicInBroker(Header):
    """215"""

    topic: str


class QueryTopicConsumeByWho(Header):
    """300"""

    topic: str


class QueryConsumeTimeSpan(Header):
    """303"""

    topic: str
    group: str


class QueryCorrectionOffset(Header):
    """308. `filter_groups` are names apart by commas."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class CloneGroupOffset(Header):
    """314"""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsData(Header):
    """315"""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStats(Header):
    """317. `is_order`: only topics whose order is kept."""

    is_order: bool = False


class QueryConsumeQueue(Header):
    """321: `count` entries from `index` on."""

    topic: str
    queue_id: I32
    index: I64
    count: I32
    consumer_group: str | None = None


class ResumeCheckHalfMessage(Header):
    """323"""

    msg_id: str


class QueryTopicsByConsumer(Header):
    """343 (5.x)"""

    group: str


class QuerySubscriptionByConsumer(Header):
    """345 (5.x)"""

    group: str
    topic: str


class GetTopicConfig(Header):
    """351 (5.x)"""

    topic: str


class GetSubscriptionGroupConfig(Header):
    """352 (5.x)"""

    group: str


class ExchangeHAInfo(Header):
    """906 (5.x). With `master_ha_address` a master tells a slave where it is, without it a slave asks.

    The other fields are ours: who speaks, which connection of replication is its own, and how it stands with it.
    RocketMQ's brokers skip them.
    """

    master_ha_address: str | None = None
    master_address: str | None = None
    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: I64 | None = None
    broker_addr: str | None = None
    file_size: I64 | None = None
    instance: str | None = None
    ha_client_addr: str | None = None
    log_end: I64 | None = None
    problem: str | None = None
    leaving: bool | None = None
    ha_protection: str | None = None


class ExchangeHAInfoReply(Header):
    """RocketMQ's slaves need all of the first three. Ours: whose master this is, and why it refuses the slave."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None
    cluster_name: str | None = None
    broker_name: str | None = None
    file_size: I64 | None = None
    refusal: str | None = None
