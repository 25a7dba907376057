"""`admin.topics`: list, inspect, create, change and delete topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import (
    ConnectionLost,
    FlowControl,
    GoAway,
    PyroMQError,
    QueryNotFound,
    RequestCodeNotSupported,
    RequestTimeout,
    ServiceNotAvailable,
    SystemBusy,
    TooManyRequests,
    TopicNotFound,
)
from pyromq.protocol.bodies import GroupList, TopicConfig, TopicConfigSerializeWrapper, TopicList, TopicStatsTable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    CreateTopic,
    DeleteTopicInBroker,
    DeleteTopicInNamesrv,
    GetTopicConfig,
    GetTopicsByCluster,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
)
from pyromq.protocol.names import TEMPLATE_TOPIC
from pyromq.protocol.permissions import PERM_READ_WRITE

from ..names import check_topic_for_create
from . import order_conf
from .fan_out import fan_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyromq.protocol.bodies import TopicOffset, TopicRouteData
    from pyromq.protocol.message_queue import MessageQueue

    from .addresses import Addresses
    from .name_servers import NameServerAdmin
    from .requests import Requests

TRIES = 5
_PAUSE = 0.1  # seconds after the first failed try, growing by as much after each further one
_PASSING = (ConnectionLost, RequestTimeout, TooManyRequests, SystemBusy, ServiceNotAvailable, FlowControl, GoAway)


class TopicAdmin:
    """Operations on topics. Names are the brokers' own: no namespace is added."""

    def __init__(self, requests: Requests, addresses: Addresses, name_servers: NameServerAdmin) -> None:
        self._requests = requests
        self._addresses = addresses
        self._name_servers = name_servers

    # Changes

    async def create(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: int = PERM_READ_WRITE,
        sys_flag: int = 0,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Create a topic on `brokers`, on the masters of a cluster, or on all masters; returns their addresses.

        If it exists, all its settings are replaced. A broker that is unreachable or busy is asked up to five times.
        With `order` the name servers learn how many queues each broker has, so that producers keep to them; entries of
        other brokers stay. `attributes` are for 5.x brokers, which keep those not mentioned; a key may begin with +,
        and a leading - removes the attribute.
        """
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=perm,
            topic_sys_flag=sys_flag,
            order=order,
            attributes=dict(attributes or {}),
        )
        return await self.put(config, cluster=cluster, brokers=brokers)

    async def put(
        self, config: TopicConfig, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Like `create`, with the settings in one object."""
        topic = config.topic_name
        check_topic_for_create(topic)
        addresses = await self._addresses.masters(cluster, brokers)
        names = await self._addresses.names(addresses) if config.order else {}
        await self._put(topic, addresses, lambda _address: config)
        queues = dict.fromkeys(names.values(), config.write_queue_nums)
        if config.order and brokers is None:
            await self.set_order(topic, queues)
        elif config.order:
            await self.merge_order(topic, queues)
        return addresses

    async def update(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
    ) -> list[str]:
        """Change only these settings of a topic on brokers that have it; returns their addresses.

        Raises TopicNotFound, with nothing changed, if one of them does not have it. Use `set_order` to change the
        number of queues that producers of an ordered topic use.
        """
        given = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm}
        changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        # Brokers keep attributes that a request omits, and refuse some that it names, even unchanged.
        changes["attributes"] = {}
        if cluster is None and brokers is None:
            addresses = list((await self._addresses.masters_of(topic)).values())
        else:
            addresses = await self._addresses.masters(cluster, brokers)
        known = await fan_out(addresses, lambda address: self._config_at(address, topic), f"config of {topic}")
        configs = {address: msgspec.structs.replace(config, **changes) for address, config in known.check().items()}
        return await self._put(topic, addresses, configs.__getitem__)

    async def delete(
        self, topic: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> None:
        """Delete a topic and its queues: from the brokers, then from the name servers. It need not exist.

        If a broker fails, the name servers keep it, since they would learn of it again from that broker. With `brokers`
        it is deleted only there, and the name servers keep it: others may still have it.
        """
        addresses = await self._addresses.masters(cluster, brokers)
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        await self._requests.tell(f"delete topic {topic}", addresses, code, DeleteTopicInBroker(topic))
        if brokers is None:
            forgotten = await self._requests.ask_name_servers(
                f"delete topic {topic} at the name servers",
                RequestCode.DELETE_TOPIC_IN_NAMESRV,
                DeleteTopicInNamesrv(topic, cluster),
            )
            forgotten.check()

    async def _put(self, topic: str, addresses: list[str], config: Callable[[str], TopicConfig]) -> list[str]:
        what = f"create topic {topic}"
        (await fan_out(addresses, lambda address: self._put_at(address, config(address)), what)).check()
        return addresses

    async def _put_at(self, address: str, config: TopicConfig) -> None:
        header = CreateTopic(
            topic=config.topic_name,
            default_topic=TEMPLATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.value,
            order=config.order,
            topic_sys_flag=config.topic_sys_flag,
            attributes=",".join(_attribute(key, value) for key, value in config.attributes.items()) or None,
        )
        for attempt in range(1, TRIES + 1):
            try:
                await self._requests.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            except PyroMQError as exc:
                if attempt == TRIES or not _may_pass(exc):
                    raise
            else:
                return
            await asyncio.sleep(_PAUSE * attempt)

    # Questions

    async def names(self, cluster: str | None = None) -> list[str]:
        """The names of all topics, or a cluster's, sorted, including retry and system topics."""
        if cluster is None:
            reply = await self._requests.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByCluster(cluster)
            reply = await self._requests.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return sorted(TopicList.decode(reply.body_bytes).topic_list)

    async def system(self) -> list[str]:
        """RocketMQ's own topics, sorted, including those of clusters and brokers."""
        reply = await self._requests.ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        known = TopicList.decode(reply.body_bytes)
        topics = set(known.topic_list)
        if known.broker_addr:
            reply = await self._requests.ask(known.broker_addr, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            topics.update(TopicList.decode(reply.body_bytes).topic_list)
        return sorted(topics)

    async def route(self, topic: str) -> TopicRouteData:
        """Where the queues of a topic are. Raises TopicNotFound."""
        return await self._addresses.route(topic)

    async def clusters(self, topic: str) -> list[str]:
        """The clusters that have a topic, sorted. Raises TopicNotFound."""
        return sorted({data.cluster for data in (await self._addresses.route(topic)).broker_datas})

    async def config(self, topic: str) -> dict[str, TopicConfig]:
        """The settings of a topic on each broker that has it, by the broker's name. Raises TopicNotFound."""
        brokers = await self._addresses.serving(topic)
        answers = await fan_out(brokers, lambda address: self._config_at(address, topic), f"config of {topic}")
        return answers.check(answers.results)

    async def configs(self, broker: str) -> dict[str, TopicConfig]:
        """All topics of one broker."""
        reply = await self._requests.ask(await self._addresses.address(broker), RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigSerializeWrapper.decode(reply.body_bytes).topic_config_table

    async def _config_at(self, address: str, topic: str) -> TopicConfig:
        try:
            reply = await self._requests.ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic))
        except RequestCodeNotSupported:  # before 5.0 only all of them can be requested
            reply = await self._requests.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
            table = TopicConfigSerializeWrapper.decode(reply.body_bytes).topic_config_table
            if topic not in table:
                raise TopicNotFound(f"there is no topic {topic}", address) from None
            return table[topic]
        return TopicConfig.decode(reply.body_bytes)

    async def stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Where each writable queue begins and ends. Raises TopicNotFound."""
        brokers = await self._addresses.serving(topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        answers = await self._requests.ask_each(f"stats of {topic}", brokers, code, GetTopicStatsInfo(topic))
        table = {
            queue: ends
            for reply in answers.results.values()
            for queue, ends in TopicStatsTable.decode(reply.body_bytes).offset_table.items()
        }
        answers.check(table)
        return dict(sorted(table.items()))

    async def groups(self, topic: str) -> list[str]:
        """The groups that subscribe to a topic or have offsets in it, sorted. Raises TopicNotFound."""
        brokers = await self._addresses.serving(topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answers = await self._requests.ask_each(f"groups of {topic}", brokers, code, QueryTopicConsumeByWho(topic))
        groups = sorted(
            {group for reply in answers.results.values() for group in GroupList.decode(reply.body_bytes).group_list}
        )
        answers.check(groups)
        return groups

    # Order

    async def order(self, topic: str) -> dict[str, int]:
        """How many queues of an ordered topic each broker has. Raises QueryNotFound if the topic is not ordered."""
        return order_conf.parse(await self._name_servers.get_kv(order_conf.NAMESPACE, topic))

    async def set_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Make a topic ordered, with exactly these queues."""
        await self._name_servers.put_kv(order_conf.NAMESPACE, topic, order_conf.render(queues))

    async def merge_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Change the queues of some brokers and keep those of the others."""
        try:
            known = await self._name_servers.get_kv(order_conf.NAMESPACE, topic)
        except QueryNotFound:
            known = ""
        await self._name_servers.put_kv(order_conf.NAMESPACE, topic, order_conf.merge(known, queues))

    async def delete_order(self, topic: str) -> None:
        """Make a topic unordered again; it need not be ordered."""
        await self._name_servers.delete_kv(order_conf.NAMESPACE, topic)


def _attribute(key: str, value: str) -> str:
    """How a 5.x broker is asked to set or remove attributes and keep the others."""
    return key if key.startswith("-") else f"+{key.removeprefix('+')}={value}"


def _may_pass(error: PyroMQError) -> bool:
    """Whether to try again: no answer, or not yet. Any other refusal would be the same next time."""
    return isinstance(error, _PASSING)
