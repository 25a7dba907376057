"""Checks shared by all POP requests: broker, topic, queue and group, in RocketMQ's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import (
    InvalidParameter,
    MessageIllegal,
    NoMessage,
    NoPermission,
    SubscriptionGroupNotExist,
    TopicNotFound,
)
from pyromq.protocol.permissions import PERM_READ

from ..send import FAQ
from .held_pops import ANY_QUEUE

if TYPE_CHECKING:
    from pyromq.protocol.bodies import TopicConfig
    from pyromq.remoting import Connection

    from ..context import Context, Tables


class PopAccess:
    def __init__(self, context: Context, tables: Tables) -> None:
        self._store = context.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._live = context.live

    def check_broker(self, refused: str = "peeking message is forbidden") -> None:
        config = self._live.config
        if not config.broker_permission & PERM_READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] {refused}")

    def check(self, connection: Connection, group_name: str, topic: str, queue_id: int) -> None:
        """Refuse a group that may not read this queue, or any."""
        config = self._topic(topic)
        if not config.perm & PERM_READ:
            raise NoPermission(f"the topic[{topic}] peeking message is forbidden")
        if not ANY_QUEUE <= queue_id < config.read_queue_nums:
            raise InvalidParameter(_illegal_queue(connection, config, queue_id))
        group = self._groups.get(group_name)
        if group is None:
            raise SubscriptionGroupNotExist(f"subscription group [{group_name}] does not exist, {FAQ}")
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {group_name}")

    def check_message(self, connection: Connection, topic: str, queue_id: int, offset: int, *, at_end: bool) -> None:
        """Refuse an offset outside the queue; `at_end` also allows that of the next message."""
        config = self._topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise MessageIllegal(_illegal_queue(connection, config, queue_id))
        low, high = self.bounds(topic, queue_id)
        if not low <= offset <= (high if at_end else high - 1):
            raise NoMessage(f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}")

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue, and the offset of its next message."""
        queue = self._store.queues.find(topic, queue_id)
        return (0, 0) if queue is None else (int(queue.min_offset), int(queue.max_offset))

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFound(f"topic[{topic}] not exist, apply first please! {FAQ}")
        return config


def _illegal_queue(connection: Connection, config: TopicConfig, queue_id: int) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[/{connection.peer}]"
    )
