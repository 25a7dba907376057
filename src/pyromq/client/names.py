"""Topic and group names: which are allowed, and the namespace in front of them."""

from __future__ import annotations

from pyromq.errors import InvalidMessage
from pyromq.protocol.names import (
    BROKER_ONLY_TOPICS,
    DLQ_PREFIX,
    INNER_PRODUCER_GROUP,
    MAX_GROUP_LENGTH,
    MAX_TOPIC_LENGTH,
    NAME_PATTERN,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_legal_name,
    is_system_topic,
)


def check_topic(topic: str) -> None:
    """Raise InvalidMessage if no broker would accept this topic name."""
    if problem := _problem(topic, "topic", MAX_TOPIC_LENGTH):
        raise _invalid(problem, topic)


def check_topic_for_send(topic: str) -> None:
    """Like check_topic; also refuses topics that only brokers write to."""
    check_topic(topic)
    if topic in BROKER_ONLY_TOPICS:
        raise _invalid(f"topic {topic} is forbidden: only brokers write to it", topic)


def check_topic_for_create(topic: str) -> None:
    """Like check_topic; also refuses the names of system topics."""
    check_topic(topic)
    if is_system_topic(topic):
        raise _invalid(f"topic {topic} is in conflict with a system topic of that name", topic)


def check_group(group: str) -> None:
    """Raise InvalidMessage if no broker would accept this group name."""
    if problem := _problem(group, "group", MAX_GROUP_LENGTH):
        raise _invalid(problem)


class Namespace:
    """A tenant of a cluster: its name goes in front of its topics and groups, `name%topic`.

    In retry and dead-letter topics it follows their prefix. Without a name nothing changes.
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
        """The wire name of a topic or group. System names and already wrapped ones stay."""
        if not self._prefix or not resource or _is_system(resource):
            return resource
        kind, bare = _split(resource)
        return resource if bare.startswith(self._prefix) else f"{kind}{self._prefix}{bare}"

    def unwrap(self, resource: str) -> str:
        """The name the user knows. Names of other namespaces stay."""
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
        return f"{what} {name[:40]}… has {len(name)} characters; at most {longest} are allowed"
    if not is_legal_name(name):
        return f"{what} {name!r} has characters that are not allowed; it must match {NAME_PATTERN}"
    return None


def _invalid(text: str, topic: str = "") -> InvalidMessage:
    error = InvalidMessage(text)
    error.code = -1
    error.topic = topic
    return error
