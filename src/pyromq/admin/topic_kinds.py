"""What a topic's name says about it: whether users created it, or a broker for itself."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.protocol.names import (
    CHECKPOINT_TOPIC,
    DLQ_PREFIX,
    HEARTBEAT_SYNC_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    is_system_topic,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyromq.protocol.bodies import ClusterInfo

# 5.x brokers have a handful of these, some per broker and cluster.
_SYSTEM_STARTS = ("RMQ_SYS_", HEARTBEAT_SYNC_TOPIC, CHECKPOINT_TOPIC)


class TopicKind(StrEnum):
    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"


def topic_kind(topic: str, system: Collection[str] = ()) -> TopicKind:
    """`system` are the names that servers report as theirs: those of clusters and brokers look like any other."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    if topic in system or is_system_topic(topic) or topic.startswith(_SYSTEM_STARTS):
        return TopicKind.SYSTEM
    return TopicKind.SYSTEM if topic.endswith("_" + REPLY_TOPIC_SUFFIX) else TopicKind.NORMAL


def names_of_servers(info: ClusterInfo) -> set[str]:
    """Every cluster and every broker has a topic of its own name, for internal use."""
    return {*info.cluster_addr_table, *info.broker_addr_table}
