"""Rounds of questions: a few to every broker, and a bounded number about single topics, groups and clients.

Five requests to a broker tell most of what there is, however many groups it has. The rest needs a request for each
topic or group; of those a round makes only so many per broker, and goes on with the next ones in the next round. So a
cluster of thousands of groups costs no more per round than a small one; only the figures about single ones get older.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import fan_out, within
from pyromq.errors import ConsumerNotOnline, PyroMQError
from pyromq.protocol.bodies.heartbeat import ConsumeType
from pyromq.protocol.names import DLQ_PREFIX, is_system_group, is_system_topic

from .facts import Broker, Read, TopicRates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import ConsumeStatsList

    from .facts import Facts

_MASTER = 0
_BASE = 5  # requests to a master in a round
# Requests about single topics, groups and clients, per broker and round.
DETAILS = 100
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Detail:
    """A question about one thing. `cost` is the requests that it takes."""

    kind: str
    names: tuple[str, ...]
    cost: int


class Rounds:
    """Asks, and puts the answers into `facts`. `clock` gives seconds that never jump."""

    def __init__(self, admin: AdminClient, facts: Facts, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._facts = facts
        self._clock = clock
        self._asked: dict[tuple[str, tuple[str, ...]], float] = {}

    async def ask(self) -> None:
        """One round. PyroMQError if no name server answers; a broker that does not is marked as down."""
        began = self._clock()
        facts = self._facts
        async with within(_PATIENCE):
            info = await self._admin.brokers.cluster_info()
            facts.requests = 1
            clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
            listed = {
                address: Broker(clusters.get(data.broker_name, data.cluster), data.broker_name, broker_id, address)
                for data in info.broker_addr_table.values()
                for broker_id, address in data.broker_addrs.items()
            }
            for address, broker in listed.items():
                known = facts.brokers.get(address)
                if known is None or (known.name, known.broker_id) != (broker.name, broker.broker_id):
                    facts.brokers[address] = broker
            for address, broker in facts.brokers.items():
                if address not in listed:
                    broker.up = False
            answers = await fan_out({address: facts.brokers[address] for address in listed}, self._ask_broker)
            for address in answers.failures:
                facts.brokers[address].up = False
        async with within(_PATIENCE):
            await self._ask_details()
        facts.forget(self._clock())
        facts.seconds = self._clock() - began

    async def _ask_broker(self, broker: Broker) -> None:
        admin, address = self._admin, broker.address
        runtime = await admin.brokers.runtime(address)
        self._facts.requests += 1
        if broker.broker_id == _MASTER:
            self._facts.requests += _BASE - 1
            stats = await admin.brokers.consume_stats(address)
            broker.reads = reads_of(stats)
            broker.topics = frozenset(await admin.topics.configs(address))
            broker.groups = frozenset(await admin.groups.configs(address))
            producers = await admin.groups.all_producers(address)
            broker.producers = {group: len(members) for group, members in producers.items()}
        broker.runtime = runtime
        broker.seen, broker.up = self._clock(), True

    # One by one

    async def _ask_details(self) -> None:
        masters = [broker for broker in self._facts.answered(self._clock()) if broker.broker_id == _MASTER]
        budget = DETAILS * len(masters)
        chosen = []
        waiting = sorted(self._details(masters), key=lambda each: self._asked.get((each.kind, each.names), 0.0))
        for detail in waiting:
            if detail.cost > budget:
                break
            budget -= detail.cost
            self._facts.requests += detail.cost
            chosen.append(detail)
            self._asked[detail.kind, detail.names] = self._clock()
        await fan_out({f"{each.kind} {' '.join(each.names)}": each for each in chosen}, self._ask_detail)
        existing = {(each.kind, each.names) for each in waiting}
        self._asked = {key: when for key, when in self._asked.items() if key in existing}

    async def _ask_detail(self, detail: Detail) -> None:
        match detail.kind, detail.names:
            case "topic", (topic,):
                await self._ask_topic(topic)
            case "group", (group,):
                await self._ask_group(group)
            case "client", (group, client_id):
                await self._ask_client(group, client_id)
            case "read", (group, topic):
                await self._ask_read(group, topic)

    def _details(self, masters: list[Broker]) -> Iterator[Detail]:
        brokers = len(masters)
        for topic in sorted({topic for broker in masters for topic in broker.topics}):
            if not is_system_topic(topic):
                # A route, and then the ends and two rates at each broker.
                yield Detail("topic", (topic,), 1 + 3 * brokers)
        for group in sorted({group for broker in masters for group in broker.groups}):
            if is_system_group(group):
                continue
            yield Detail("group", (group,), 1 + brokers)
            members = self._facts.members.get(group)
            if members is not None and members.consume_type is ConsumeType.CONSUME_PASSIVELY:
                for member in members.connection_set:
                    yield Detail("client", (group, member.client_id), 1 + brokers)
        for group, topic in sorted({key for broker in masters for key in broker.reads}):
            if not is_system_group(group) and not topic.startswith(DLQ_PREFIX):
                yield Detail("read", (group, topic), 2 * brokers)

    def _masters_of(self, topic: str) -> list[Broker]:
        return [
            broker for broker in self._facts.brokers.values() if broker.broker_id == _MASTER and topic in broker.topics
        ]

    async def _ask_topic(self, topic: str) -> None:
        ends: dict[str, int] = {}
        try:
            for queue, offsets in (await self._admin.topics.stats(topic)).items():
                ends[queue.broker_name] = ends.get(queue.broker_name, 0) + offsets.max_offset
        except PyroMQError:
            return
        for broker in self._masters_of(topic):
            tps = await self._rate(broker.address, "TOPIC_PUT_NUMS", topic)
            size = await self._rate(broker.address, "TOPIC_PUT_SIZE", topic)
            self._facts.rates[broker.name, topic] = TopicRates(ends.get(broker.name, 0), tps, size)

    async def _ask_group(self, group: str) -> None:
        try:
            self._facts.members[group] = await self._admin.groups.connections(group)
        except ConsumerNotOnline:
            self._facts.members[group] = None

    async def _ask_read(self, group: str, topic: str) -> None:
        for broker in self._masters_of(topic):
            size = await self._rate(broker.address, "GROUP_GET_SIZE", f"{topic}@{group}")
            back = await self._sum(broker.address, "SNDBCK_PUT_NUMS", f"{topic}@{group}")
            self._facts.read_sizes[broker.name, topic, group] = size, back

    async def _ask_client(self, group: str, client_id: str) -> None:
        self._facts.running[group, client_id] = await self._admin.clients.running_info(group, client_id)

    async def _rate(self, address: str, item: str, key: str) -> float:
        """What was counted per second in the last minute; 0 if nothing ever was."""
        try:
            return (await self._admin.brokers.stats(address, item, key)).stats_minute.tps
        except PyroMQError:
            return 0.0

    async def _sum(self, address: str, item: str, key: str) -> int:
        try:
            return (await self._admin.brokers.stats(address, item, key)).stats_minute.sum
        except PyroMQError:
            return 0


def reads_of(stats: ConsumeStatsList) -> dict[tuple[str, str], Read]:
    """What 317 tells, by group and topic."""
    reads = {}
    for groups in stats.consume_stats_list:
        for group, entries in groups.items():
            for entry in entries:
                topics: dict[str, list[tuple[int, int, int]]] = {}
                for queue, offset in entry.offset_table.items():
                    found = (offset.broker_offset, offset.consumer_offset, offset.last_timestamp)
                    topics.setdefault(queue.topic, []).append(found)
                for topic, queues in topics.items():
                    behind = [stored for end, consumed, stored in queues if end > consumed and stored > 0]
                    reads[group, topic] = Read(
                        sum(end for end, _, _ in queues),
                        sum(consumed for _, consumed, _ in queues),
                        entry.consume_tps,
                        min(behind, default=None),
                    )
    return reads
