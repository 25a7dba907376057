"""Subscriptions: which messages of a topic a group wants, by tags (`*`, `TagA || TagB`) or by SQL92.

The broker selects by hashes of tags, which may collide; so `matches` checks the tags themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyromq.errors import ConfigError
from pyromq.protocol.bodies.heartbeat import SubscriptionData
from pyromq.protocol.hashing import java_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """Filter at the broker by message properties: `Sql("a > 5 AND region = 'eu'")`."""

    expression: str


Expression: TypeAlias = str | Sql


def subscription_data(topic: str, expr: str | Sql, version_ms: int) -> SubscriptionData:
    """The subscription to send. A broker keeps the later of two versions.

    Raises ConfigError for an empty expression, like `||`.
    """
    if isinstance(expr, Sql):
        if not expr.expression.strip():
            raise ConfigError(f"the SQL expression for {topic} is empty")
        return SubscriptionData(topic=topic, sub_string=expr.expression, expression_type=SQL92, sub_version=version_ms)
    if expr in ("", ALL):
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version_ms)
    tags = frozenset(tag for part in expr.split("||") if (tag := part.strip()))
    if not tags:
        raise ConfigError(f"the expression {expr!r} for {topic} names no tag")
    return SubscriptionData(
        topic=topic,
        sub_string=expr,
        sub_version=version_ms,
        tags_set=tags,
        code_set=frozenset(map(java_hash, tags)),
    )


def barred_tag(subscription: SubscriptionData) -> str | None:
    """A tag with a single bar, like `a | b`: surely meant as two, which `||` separates."""
    return next((tag for tag in sorted(subscription.tags_set) if "|" in tag), None)


def matches(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether a message with these tags is wanted. SQL is left to the broker."""
    return not subscription.tags_set or tags in subscription.tags_set


def subscriptions(topics: Mapping[str, str | Sql], version_ms: int) -> dict[str, SubscriptionData]:
    """The subscription of each topic, from its expression."""
    return {topic: subscription_data(topic, expr, version_ms) for topic, expr in topics.items()}
