"""Fills the tables of `rocketmq_meta`: asks name servers, and all brokers at once.

If a broker does not answer, only its own figures are missing. Name servers that do not answer are an error:
without them nothing is known at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyromq.client import AdminClient
from pyromq.client.admin.fan_out import fan_out
from pyromq.client.admin.times import from_millis
from pyromq.errors import PyroMQError, RouteNotFound, TopicNotFound
from pyromq.protocol.bodies import TopicOffset, TopicStatsTable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetTopicStatsInfo
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import is_dlq_topic, is_retry_topic, is_system_group, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyromq.protocol.bodies import BrokerData, ClusterInfo, ConsumeStats, TopicRouteData

    from ..blocking_client import Link

Row: TypeAlias = dict[str, Any]


class MetaRows:
    """Asks one cluster. Rows have the user's names; other namespaces are left out."""

    def __init__(self, link: Link, topics: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> None:
        self._link = link
        self._topics = topics
        self._groups = groups
        self._admin = AdminClient(client=link.client)

    async def of(self, table: str) -> list[Row]:
        """The rows of a table. Raises PyroMQError if the name servers do not answer, or do not know a topic given."""
        tables: dict[str, Callable[[], Awaitable[list[Row]]]] = {
            "topics": self.topics,
            "queues": self.queues,
            "groups": self.groups,
            "brokers": self.brokers,
        }
        async with self._admin:
            return await tables[table]()

    # Brokers

    async def brokers(self) -> list[Row]:
        info = await self._admin.brokers.cluster_info()
        known = [
            {"cluster": data.cluster or None, "brokerName": name, "brokerId": number, "address": address}
            for name, data in sorted(info.broker_addr_table.items())
            for number, address in sorted(data.broker_addrs.items())
        ]
        answers = await fan_out(
            [str(row["address"]) for row in known],
            lambda address: self._admin.brokers.runtime(self._link.reached_at(address)),
        )
        rows = []
        for row in known:
            address = str(row["address"])
            error = answers.failures.get(address)
            rows.append(row | ({"error": str(error)} if error else _figures(answers.results[address])))
        return rows

    # Topics

    async def topics(self) -> list[Row]:
        info = await self._admin.brokers.cluster_info()
        readable = self._readable(info.broker_addr_table.values())
        answers = await fan_out(readable, self._admin.topics.configs)
        system = await self._system_topics()
        rows = []
        for broker, configs in answers.results.items():
            for name, config in configs.items():
                topic = self._for_user(name)
                if topic is None or not self._is_wanted(topic):
                    continue
                rows.append(
                    self._topic_row(topic, name, system, info, broker)
                    | {
                        "readQueues": config.read_queue_nums,
                        "writeQueues": config.write_queue_nums,
                        "perm": config.perm,
                        "ordered": config.order,
                        "attributes": list(config.attributes.items()),
                    }
                )
        if answers.failures:
            rows += await self._topics_by_route(answers.failures, info, system)
        return sorted(rows, key=lambda row: (row["topic"], row["brokerName"]))

    async def _topics_by_route(
        self, failures: dict[str, PyroMQError], info: ClusterInfo, system: frozenset[str]
    ) -> list[Row]:
        """Topics of brokers that do not answer, as name servers know them."""
        routes = await self._routes(await self._admin.topics.names())
        return [
            self._topic_row(topic, name, system, info, data.broker_name)
            | {
                "readQueues": data.read_queue_nums,
                "writeQueues": data.write_queue_nums,
                "perm": data.perm,
                "error": str(failures[data.broker_name]),
            }
            for name, route in routes.items()
            if (topic := self._for_user(name)) is not None and self._is_wanted(topic)
            for data in route.queue_datas
            if data.broker_name in failures
        ]

    def _topic_row(self, topic: str, name: str, system: frozenset[str], info: ClusterInfo, broker: str) -> Row:
        data = info.broker_addr_table.get(broker)
        return {
            "topic": topic,
            "kind": _kind(name, system),
            "cluster": data.cluster if data else None,
            "brokerName": broker,
        }

    async def user_topics(self) -> list[str]:
        """The users' topics, without namespace."""
        async with self._admin:
            system = await self._system_topics()
            names = await self._admin.topics.names()
        found = (self._for_user(name) for name in names if _kind(name, system) == "user")
        return sorted(topic for topic in found if topic is not None)

    # Queues

    async def queues(self) -> list[Row]:
        if self._topics:
            names = [self._link.namespace.wrap(topic) for topic in self._topics]
        else:
            system = await self._system_topics()
            names = [
                name
                for name in await self._admin.topics.names()
                if _kind(name, system) != "system" and self._for_user(name) is not None
            ]
        routes = await self._routes(names)
        if self._topics and (missing := [name for name in names if name not in routes]):
            raise RouteNotFound(f"{missing[0]}: no broker has this topic")
        places = {
            f"{name} {data.broker_name}": (name, data.broker_name, max(data.read_queue_nums, data.write_queue_nums))
            for name, route in routes.items()
            for data in route.queue_datas
        }
        answers = await fan_out(places, lambda place: self._ends(routes[place[0]], *place))
        rows = []
        for key, (name, broker, count) in places.items():
            error = answers.failures.get(key)
            found = answers.results.get(key, {})
            for number in range(count) if error else sorted(found):
                row: Row = {"topic": self._link.namespace.unwrap(name), "brokerName": broker, "queueId": number}
                rows.append(row | ({"error": str(error)} if error else _ends_of(found[number])))
        return rows

    async def _ends(self, route: TopicRouteData, name: str, broker: str, count: int) -> dict[int, TopicOffset]:
        address = self._readable(data for data in route.broker_datas if data.broker_name == broker).get(broker)
        if address is None:
            raise RouteNotFound(f"no address is known for broker {broker}")
        calls = self._link.client.calls
        reply = await calls.invoke(address, Command.request(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo(name)))
        table = TopicStatsTable.decode(reply.body_bytes).offset_table
        found = {queue.queue_id: ends for queue, ends in table.items() if queue.queue_id < count}
        for number in range(count):
            if number not in found:
                # Queues no longer written to are not in the answer; their last store time is unknown.
                queue = MessageQueue(topic=name, broker_name=broker, queue_id=number)
                found[number] = TopicOffset(
                    min_offset=await calls.min_offset(address, queue), max_offset=await calls.max_offset(address, queue)
                )
        return found

    # Groups

    async def groups(self) -> list[Row]:
        info = await self._admin.brokers.cluster_info()
        readable = self._readable(info.broker_addr_table.values())
        answers = await fan_out(readable, self._groups_at)
        rows = []
        idle: set[str] = set()
        for found, names in answers.results.values():
            rows += found
            idle |= names
        idle -= {row["group"] for row in rows}
        rows += [{"group": group} for group in idle]
        rows += [{"brokerName": broker, "error": str(error)} for broker, error in answers.failures.items()]
        return sorted(rows, key=lambda row: tuple(str(row.get(name, "")) for name in ("group", "topic", "brokerName")))

    async def _groups_at(self, address: str) -> tuple[list[Row], set[str]]:
        """The progress of groups on one broker, and all groups it knows."""
        if self._groups:
            wire = [self._link.namespace.wrap(group) for group in self._groups]
            stats = [(group, await self._admin.groups.stats_at(address, group)) for group in wire]
            return self._progress(stats), set(self._groups)
        listed = await self._admin.brokers.consume_stats(address)
        stats = [
            (group, topic)
            for by_group in listed.consume_stats_list
            for group, by_topic in by_group.items()
            for topic in by_topic
        ]
        configs = await self._admin.groups.configs(address)
        names = {self._for_user(group) for group in configs if not is_system_group(group)}
        return self._progress(stats), {name for name in names if name is not None}

    def _progress(self, stats: Iterable[tuple[str, ConsumeStats]]) -> list[Row]:
        rows = []
        for name, of_topic in stats:
            group = self._for_user(name)
            for queue, offsets in sorted(of_topic.offset_table.items()):
                topic = self._for_user(queue.topic)
                if group is None or topic is None or is_system_group(name) or not self._is_wanted(topic):
                    continue
                # A negative offset means that nothing was ever consumed, so there is no lag either.
                is_known = offsets.consumer_offset >= 0
                rows.append(
                    {
                        "group": group,
                        "topic": topic,
                        "brokerName": queue.broker_name,
                        "queueId": queue.queue_id,
                        "brokerOffset": offsets.broker_offset,
                        "consumerOffset": offsets.consumer_offset if is_known else None,
                        "lag": offsets.broker_offset - offsets.consumer_offset if is_known else None,
                        "lastConsumedTimestamp": from_millis(offsets.last_timestamp),
                    }
                )
        return rows

    # Inside

    def _readable(self, brokers: Iterable[BrokerData]) -> dict[str, str]:
        """An address to ask for each broker, by name: its master's, or a slave's if the master is gone."""
        return {
            data.broker_name: self._link.reached_at(data.broker_addrs[min(data.broker_addrs)])
            for data in sorted(brokers, key=lambda data: data.broker_name)
            if data.broker_addrs
        }

    async def _routes(self, names: Iterable[str]) -> dict[str, TopicRouteData]:
        """The routes of topics. Topics deleted meanwhile are left out."""
        answers = await fan_out(names, self._admin.topics.route)
        for error in answers.failures.values():
            if not isinstance(error, TopicNotFound):
                raise error
        return answers.results

    async def _system_topics(self) -> frozenset[str]:
        try:
            return frozenset(await self._admin.topics.system())
        except PyroMQError:
            # A broker is asked for some of them, and it may be unreachable. The usual ones are known here.
            return frozenset()

    def _for_user(self, name: str) -> str | None:
        """The name without its namespace; None if it is in another namespace."""
        namespace = self._link.namespace
        topic = namespace.unwrap(name)
        return None if namespace.name and topic == name else topic

    def _is_wanted(self, topic: str) -> bool:
        return not self._topics or topic in self._topics


def _kind(name: str, system: frozenset[str]) -> str:
    if is_retry_topic(name):
        return "retry"
    if is_dlq_topic(name):
        return "dlq"
    return "system" if name in system or is_system_topic(name) else "user"


def _ends_of(ends: TopicOffset) -> Row:
    # An unused queue has -1 on some brokers.
    minimum, maximum = max(0, ends.min_offset), max(0, ends.max_offset)
    return {
        "minOffset": minimum,
        "maxOffset": maximum,
        "messages": max(0, maximum - minimum),
        "lastStoreTimestamp": from_millis(ends.last_update_timestamp),
    }


def _figures(runtime: dict[str, str]) -> Row:
    """A broker's runtime info as numbers; null for what is missing or not a number."""
    begin, end = _number(runtime.get("commitLogMinOffset")), _number(runtime.get("commitLogMaxOffset"))
    started, oldest = _number(runtime.get("bootTimestamp")), _number(runtime.get("earliestMessageTimeStamp"))
    out = runtime.get("getTransferredTps") or runtime.get("getTransferedTps")
    return {
        "version": runtime.get("brokerVersionDesc"),
        "startTimestamp": None if started is None else from_millis(int(started)),
        "inTps": _number(runtime.get("putTps")),
        "outTps": _number(out),
        "logBytes": None if begin is None or end is None else int(end) - int(begin),
        "oldestTimestamp": None if oldest is None else from_millis(int(oldest)),
        "diskUsed": _number(runtime.get("commitLogDiskRatio")),
    }


def _number(text: str | None) -> float | None:
    """The first number in `text`: rates come for ten seconds, a minute and ten minutes."""
    words = (text or "").split()
    try:
        value = float(words[0]) if words else None
    except ValueError:
        return None
    # "NaN" and numbers too large for the column are not figures.
    return value if value is not None and abs(value) < 2**62 else None
