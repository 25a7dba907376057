"""Admin requests about topics and groups (docs/spec/broker.md 8.3 and 12.1).

A change is saved to its file before the answer goes out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import ServerError, SubscriptionGroupNotExist, TopicNotFound
from pyromq.protocol.bodies import GroupList, SubscriptionGroupConfig, TopicConfig, TopicFilterType, TopicList
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    CreateTopic,
    DeleteSubscriptionGroup,
    DeleteTopicInBroker,
    GetSubscriptionGroupConfig,
    GetTopicConfig,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
)
from pyromq.protocol.names import MAX_GROUP_LENGTH, is_legal_name
from pyromq.remoting import with_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from ..config import LiveConfig
    from ..context import Tables
    from ..groups import GroupTable
    from ..offsets.consumer_offsets import ConsumerOffsets
    from ..topics import TopicTable

logger = logging.getLogger(__name__)


class _DeleteGroup(DeleteSubscriptionGroup):
    """207 as 5.x spells it."""

    clean_offset: bool = False


class TopicProcessors:
    """The topics.

    `settled` is awaited with the name of a topic that was made or changed: until it is saved and the name servers know
    it. `delete_queues` removes the consume queues of a topic; they must not be used afterwards.
    `deleted` gives the topics that were deleted, each with the end of the log at that time.
    """

    def __init__(
        self,
        topics: TopicTable,
        live: LiveConfig,
        *,
        settled: Callable[[], Awaitable[None]],
        delete_queues: Callable[[str], object],
        deleted: Callable[[], Mapping[str, int]],
    ) -> None:
        self._topics = topics
        self._live = live
        self._settled = settled
        self._delete_queues = delete_queues
        self._deleted = deleted

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_CONFIG: self.get,
        }

    async def update(self, connection: Connection, request: Command) -> Command:
        header = request.header(CreateTopic)
        self._check(header.topic)
        config = _topic_config(header, self._topics.get(header.topic))
        self._topics.check_room(config)
        self._topics.update(config)
        logger.info(
            "topic %s set by %s read queues=%d write queues=%d perm=%d",
            config.topic_name,
            connection.peer,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
        )
        await self._settled()
        return request.reply()

    async def delete(self, connection: Connection, request: Command) -> Command:
        topic = request.header(DeleteTopicInBroker).topic
        self._check(topic)
        if self._topics.delete(topic):
            # Its messages go only when nothing can bring the topic back.
            await self._settled()
            if topic in self._topics:
                raise ServerError(f"The topic[{topic}] was created again meanwhile; its messages were kept.")
            logger.info("topic %s deleted by %s", topic, connection.peer)
        # Also without an entry: what an interrupted deletion left behind goes with the next one.
        self._delete_queues(topic)
        return request.reply()

    def all_topics(self, connection: Connection, request: Command) -> Command:
        # Slaves have to know more than which topics there are: one that was deleted and made again has new queues.
        return request.reply(body=replace(self._topics.snapshot(), deleted_topics=dict(self._deleted())).encode())

    def system_topics(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=TopicList(topic_list=sorted(self._topics.system_topics)).encode())

    def get(self, connection: Connection, request: Command) -> Command:
        topic = request.header(GetTopicConfig).topic
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFound(f"No topic in this broker. topic: {topic}")
        return request.reply(body=config.encode())

    def _check(self, topic: str) -> None:
        """Whether an operator may change such a topic."""
        _refuse_on_slave(self._live)
        self._topics.check_name(topic)
        if self._topics.is_system(topic):
            raise ServerError(f"The topic[{topic}] is conflict with system topic.")


class GroupProcessors:
    """The subscription groups. `saved` is awaited after each change, until it is in its file.

    `deleted` is called with the name of each deleted group.
    """

    def __init__(
        self,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        live: LiveConfig,
        *,
        saved: Callable[[], Awaitable[None]],
        deleted: Callable[[str], None] = lambda group: None,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._live = live
        self._saved = saved
        self._deleted = deleted

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: with_body(SubscriptionGroupConfig.decode, self.update),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
        }

    async def update(self, connection: Connection, request: Command, config: SubscriptionGroupConfig) -> Command:
        _refuse_on_slave(self._live)
        if not config.group_name.strip():
            raise ServerError("The specified group is blank.")
        if len(config.group_name) > MAX_GROUP_LENGTH or not is_legal_name(config.group_name):
            # As 5.x; 4.9 takes any name. Some of them would lead out of our folder by way of the retry topic.
            raise ServerError(f"The specified group is longer than {MAX_GROUP_LENGTH} or contains illegal characters.")
        limits = self._live.config
        if config.retry_queue_nums > limits.max_queues_per_topic:
            most = limits.max_queues_per_topic
            raise ServerError(f"The retry topic of a group can have at most {most} queues (maxQueuesPerTopic).")
        self._groups.check_room(config.group_name)
        self._groups.update(config)
        logger.info("group %s set by %s", config.group_name, connection.peer)
        await self._saved()
        return request.reply()

    def all_groups(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=self._groups.snapshot().encode())

    async def delete(self, connection: Connection, request: Command) -> Command:
        _refuse_on_slave(self._live)
        header = request.header(_DeleteGroup)
        if self._groups.delete(header.group_name):
            await self._saved()
            logger.info("group %s deleted by %s", header.group_name, connection.peer)
        if header.remove_offset or header.clean_offset:
            self._offsets.remove_group(header.group_name)
        self._deleted(header.group_name)
        return request.reply()

    def get(self, connection: Connection, request: Command) -> Command:
        config = self._groups.get(request.header(GetSubscriptionGroupConfig).group)
        if config is None:
            raise SubscriptionGroupNotExist("No group in this broker")
        return request.reply(body=config.encode())


class ConsumptionProcessors:
    """Which group consumes which topic. `address` gives the address that clients know this broker by."""

    def __init__(self, tables: Tables, address: str) -> None:
        self._offsets = tables.offsets
        self._clients = tables.clients
        self._address = address

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
        }

    def groups_of_topic(self, connection: Connection, request: Command) -> Command:
        topic = request.header(QueryTopicConsumeByWho).topic
        groups = {*self._clients.subscribers(topic), *self._offsets.groups_of(topic)}
        return request.reply(body=GroupList(sorted(groups)).encode())

    def topics_of_group(self, connection: Connection, request: Command) -> Command:
        topics = self._offsets.topics_of(request.header(QueryTopicsByConsumer).group)
        return request.reply(body=TopicList(broker_addr=self._address, topic_list=sorted(topics)).encode())


def _topic_config(header: CreateTopic, known: TopicConfig | None) -> TopicConfig:
    """The topic as the request describes it; what the request cannot express stays unchanged."""
    try:
        filter_type = TopicFilterType(header.topic_filter_type)
    except ValueError:
        raise ServerError(f"topicFilterType = [{header.topic_filter_type}] value invalid") from None
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=filter_type,
        topic_sys_flag=header.topic_sys_flag,
        # The request's `order` is ignored: the name servers say which topics are ordered.
        order=known is not None and known.order,
        attributes={} if known is None else known.attributes,
    )


def _refuse_on_slave(live: LiveConfig) -> None:
    if live.config.is_slave:
        raise ServerError(
            "Can't modify topic or subscription group from slave broker, please execute it from master broker."
        )
