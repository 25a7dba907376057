"""What an exporter knows of a cluster, and since when. Plain data: rounds fill it in, samples are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.bodies import ConsumerConnection, ConsumerRunningInfo

# Seconds for which an answer counts: then whatever it was about is gone.
FRESH = 60.0


@dataclass(slots=True)
class Broker:
    """A broker, with its last answers; `seen` is when it gave them, and `up` whether that was the last time."""

    cluster: str
    name: str
    broker_id: int
    address: str
    up: bool = False
    seen: float = float("-inf")
    runtime: Mapping[str, str] = field(default_factory=dict)
    producers: Mapping[str, int] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    # By group and topic.
    reads: Mapping[tuple[str, str], Read] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """A group in a topic, on one broker. `behind_since` is when the last consumed message was stored, if it is behind.

    All offsets are sums over the queues.
    """

    broker_offset: int
    consumer_offset: int
    tps: float
    behind_since: int | None


@dataclass(frozen=True, slots=True)
class TopicRates:
    """A topic on one broker: the sum of its queues' ends, and what comes in per second."""

    offset: int
    tps: float
    size: float


@dataclass(slots=True)
class Facts:
    """Everything known. What is asked about one topic, group or client after the other is kept until it is gone."""

    brokers: dict[str, Broker] = field(default_factory=dict)  # by address
    rates: dict[tuple[str, str], TopicRates] = field(default_factory=dict)  # by broker and topic
    read_sizes: dict[tuple[str, str, str], tuple[float, int]] = field(default_factory=dict)  # by broker, topic, group
    members: dict[str, ConsumerConnection | None] = field(default_factory=dict)  # by group; None if it is offline
    running: dict[tuple[str, str], ConsumerRunningInfo] = field(default_factory=dict)  # by group and client
    requests: int = 0
    seconds: float = 0.0

    def answered(self, now: float) -> list[Broker]:
        """The brokers whose answers still count."""
        return [broker for broker in self.brokers.values() if now - broker.seen < FRESH]

    def forget(self, now: float) -> None:
        """Drop what is gone."""
        brokers = self.answered(now)
        names = {broker.name for broker in brokers}
        topics = {topic for broker in brokers for topic in broker.topics}
        groups = {group for broker in brokers for group in broker.groups}
        self.brokers = {
            address: broker
            for address, broker in self.brokers.items()
            if broker.up or now - broker.seen < FRESH or broker.seen == float("-inf")
        }
        self.rates = {key: value for key, value in self.rates.items() if key[0] in names and key[1] in topics}
        self.read_sizes = {
            key: value
            for key, value in self.read_sizes.items()
            if key[0] in names and key[1] in topics and key[2] in groups
        }
        self.members = {group: members for group, members in self.members.items() if group in groups}
        online = {
            (group, member.client_id)
            for group, members in self.members.items()
            if members is not None
            for member in members.connection_set
        }
        self.running = {key: info for key, info in self.running.items() if key in online}
