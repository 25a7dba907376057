"""Names that mean something to brokers and clients alike: prefixes, system topics and system groups.

Written once, here. A topic or group with any other name belongs to users.
"""

from __future__ import annotations

import re

MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_LENGTH = 255
MAX_GROUP_LENGTH = 255
NAME_PATTERN = "^[%|a-zA-Z0-9_-]+$"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

# Topics that a group has: messages to be tried again, and those that failed too often.
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

# System topics.
SYSTEM_PREFIX = "rmq_sys_"
TEMPLATE_TOPIC = "TBW102"  # its route tells producers where new topics can be made
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # messages with a delay level, until they are due
TIMER_TOPIC = "rmq_sys_wheel_timer"  # messages with a delivery time (5.x)
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"  # before the cluster's name: what brokers note of popped messages (5.x)
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"  # half messages of transactions
HALF_OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # which of them have been decided on
CHECKED_TOO_OFTEN_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"  # half messages that no producer ever decided on
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"  # of 5.x
HEARTBEAT_SYNC_TOPIC = "DefaultHeartBeatSyncerTopic"  # of 5.x: proxies tell each other about their clients
REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"

# The queue entries of these carry a time in place of a tag.
TIMED_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
# Only brokers write to these.
BROKER_ONLY_TOPICS = TIMED_TOPICS | {
    HALF_TOPIC,
    HALF_OP_TOPIC,
    CHECKED_TOO_OFTEN_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
}

# Groups.
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
# Archives of the lake commit how far they are as groups of this name and more. They have no members.
ARCHIVE_GROUP_PREFIX = f"{SYSTEM_GROUP_PREFIX}LAKE_"
TOOLS_GROUP = "TOOLS_CONSUMER"  # every broker has it, and nobody counts its offsets
SELF_TEST_GROUP = "SELF_TEST_C_GROUP"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
ADMIN_GROUP = "admin_ext_group"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
# What Java clients are called that nobody gave a group: it must not be used.
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"

# Every broker has these from its start.
BUILT_IN_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    SELF_TEST_GROUP,
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)

_SYSTEM_TOPICS = BROKER_ONLY_TOPICS | {TEMPLATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC}
_SYSTEM_GROUPS = frozenset((*BUILT_IN_GROUPS, SELF_TEST_PRODUCER_GROUP, ADMIN_GROUP))
_SYSTEM_GROUP_PREFIXES = (SYSTEM_GROUP_PREFIX, f"CID_{HEARTBEAT_SYNC_TOPIC}")


def is_legal_name(name: str) -> bool:
    """Whether topics and groups may be called so, apart from the length."""
    return _NAME.fullmatch(name) is not None


def is_system_topic(topic: str) -> bool:
    return topic in _SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether brokers and their tools consume as `group`, not users."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIXES)


def retry_topic(group: str) -> str:
    """Where messages go that `group` wants to try again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages end that `group` failed at too often."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def reply_topic(cluster: str) -> str:
    """Where answers to request() are sent; the broker passes them on."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"


def revive_topic(cluster: str) -> str:
    """What the brokers of a cluster remember of messages that were popped."""
    return REVIVE_PREFIX + cluster
