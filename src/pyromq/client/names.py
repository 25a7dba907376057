"""Names of topics and groups: which are allowed, which mean something to brokers, and namespaces in front of them."""

from __future__ import annotations

import re

from pyromq.errors import InvalidMessage

MAX_TOPIC_LENGTH = 127
MAX_GROUP_LENGTH = 255

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

# Brokers alone write to these.
_NO_SEND = frozenset(
    (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)
_SYSTEM = _NO_SEND | {"TBW102", "BenchmarkTest", TRACE_TOPIC, "CHECKPOINT_TOPIC"}

_PATTERN = "^[%|a-zA-Z0-9_-]+$"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str) -> None:
    """Raise InvalidMessage if no broker would take a topic of that name."""
    if problem := _problem(topic, "topic", MAX_TOPIC_LENGTH):
        raise _invalid(problem, topic)


def check_topic_for_send(topic: str) -> None:
    """As check_topic; topics that only brokers write to are refused too."""
    check_topic(topic)
    if topic in _NO_SEND:
        raise _invalid(f"topic {topic} is forbidden: only brokers write to it", topic)


def check_topic_for_create(topic: str) -> None:
    """As check_topic; the names of system topics are refused too."""
    check_topic(topic)
    if is_system_topic(topic):
        raise _invalid(f"topic {topic} is in conflict with a system topic of that name", topic)


def check_group(group: str) -> None:
    """Raise InvalidMessage if no broker would take a group of that name."""
    if problem := _problem(group, "group", MAX_GROUP_LENGTH):
        raise _invalid(problem)


def is_system_topic(topic: str) -> bool:
    return topic in _SYSTEM or topic.startswith(SYSTEM_PREFIX)


def retry_topic(group: str) -> str:
    """Where messages go that `group` wants to try again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages end that `group` failed at too often."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Where answers to request() are sent; the broker passes them on."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


class Namespace:
    """One of several tenants of a cluster: its topics and groups carry its name in front, `name%topic`.

    Retry and dead-letter topics carry it behind their prefix. Without a name everything stays as it is.
    """

    __slots__ = ("_prefix", "name")

    def __init__(self, name: str | None = None) -> None:
        if name:
            check_group(name)
        self.name = name or None
        self._prefix = f"{name}%" if name else ""

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def wrap(self, resource: str) -> str:
        """The name on the wire of a topic or group. System names and those that are wrapped already stay."""
        if not self._prefix or not resource or _is_system(resource):
            return resource
        kind, bare = _split(resource)
        return resource if bare.startswith(self._prefix) else f"{kind}{self._prefix}{bare}"

    def unwrap(self, resource: str) -> str:
        """The name that the user knows. One of another namespace stays."""
        if not self._prefix:
            return resource
        kind, bare = _split(resource)
        return kind + bare[len(self._prefix) :] if bare.startswith(self._prefix) else resource


def _is_system(resource: str) -> bool:
    return is_system_topic(resource) or resource.startswith(SYSTEM_GROUP_PREFIX) or resource == INNER_PRODUCER_GROUP


def _split(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource


def _problem(name: str, what: str, longest: int) -> str | None:
    if not name.strip():
        return f"the {what} is blank"
    if len(name) > longest:
        return f"{what} {name[:40]}… has {len(name)} characters, {longest} are allowed"
    if not _NAME.fullmatch(name):
        return f"{what} {name!r} has characters that are not allowed, it must match {_PATTERN}"
    return None


def _invalid(text: str, topic: str = "") -> InvalidMessage:
    error = InvalidMessage(text)
    error.code = -1
    error.topic = topic
    return error
