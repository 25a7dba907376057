"""What a name says about a topic or a group: whether people made it, or a broker did for itself."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.client.names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Collection

_SYSTEM_GROUPS = frozenset(
    (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_SYS_RMQ_TRANS",
        "admin_ext_group",
    )
)
# Brokers of 5.x have a handful of these, some per broker and cluster.
_SYSTEM_STARTS = ("RMQ_SYS_", "DefaultHeartBeatSyncerTopic", "rmq_sys_", "CHECKPOINT_TOPIC")


class TopicKind(StrEnum):
    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"


def topic_kind(topic: str, system: Collection[str] = ()) -> TopicKind:
    """`system` are the names that servers say are theirs: those of clusters and brokers look like any."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    if topic in system or is_system_topic(topic) or topic.startswith(_SYSTEM_STARTS):
        return TopicKind.SYSTEM
    return TopicKind.SYSTEM if topic.endswith("_" + REPLY_TOPIC_SUFFIX) else TopicKind.NORMAL


def is_system_group(group: str) -> bool:
    return group in _SYSTEM_GROUPS or group.startswith((SYSTEM_GROUP_PREFIX, "CID_DefaultHeartBeatSyncerTopic"))
