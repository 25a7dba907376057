"""Something to administrate: messages in a topic, and a consumer that says what a test wants it to say."""

from __future__ import annotations

import asyncio

from pyromq.protocol import properties as props
from pyromq.protocol.bodies import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
    ProducerData,
    SubscriptionData,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import SendMessageReply, SendMessageV2
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import retry_topic

TOPIC = "orders"
GROUP = "billing"


def queue(queue_id=0, topic=TOPIC, broker="broker-a"):
    return MessageQueue(broker_name=broker, queue_id=queue_id, topic=topic)


async def send(cluster, body=b"hello", *, topic=TOPIC, queue_id=0, broker="broker-a", **properties):
    """Send a message as producers do; gives its offset id."""
    header = SendMessageV2("producers", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0, props.render(properties))
    reply = await cluster.peer.ask(cluster.address(broker), RequestCode.SEND_MESSAGE_V2, header, body)
    return reply.header(SendMessageReply).msg_id


async def commit(admin, offsets, group=GROUP, topic=TOPIC):
    """Let a group stand at these offsets, by queue id."""
    await admin.offsets.set(group, {queue(queue_id, topic): offset for queue_id, offset in offsets.items()})


class StandIn:
    """A consumer as brokers see it. It has all queues of the topic, and consumes nothing."""

    def __init__(self, group=GROUP, topic=TOPIC, *, tags=(), queues=(0, 1, 2, 3)):
        self.group = group
        self.topic = topic
        self.resets: asyncio.Queue[tuple[str, dict[MessageQueue, int]]] = asyncio.Queue()
        self.consumed = []
        self.offsets = {queue(queue_id, topic): 7 for queue_id in queues}
        self._subscription = SubscriptionData(
            topic=topic, sub_string=" || ".join(tags) or "*", tags_set=frozenset(tags), sub_version=1
        )

    def topics(self):
        return (self.topic, retry_topic(self.group))

    def route_changed(self, topic):
        pass

    def heartbeat_data(self):
        return ConsumerData(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=[self._subscription],
        )

    def wake_rebalance(self):
        pass

    def reset_offsets(self, topic, offsets):
        self.resets.put_nowait((topic, offsets))

    def memory_offsets(self, topic):
        return self.offsets if topic == self.topic else {}

    def running_info(self, jstack):
        return ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            mq_table={owned: ProcessQueueInfo(commit_offset=offset) for owned, offset in self.offsets.items()},
            subscription_set=[self._subscription],
            jstack="a stack" if jstack else None,
        )

    async def consume_directly(self, message, broker_name):
        self.consumed.append((message.body, broker_name))
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS, spent_time_mills=3)


class StandInProducer:
    """A producer as brokers see it."""

    def __init__(self, group="producers", topic=TOPIC):
        self.group = group
        self._topic = topic

    def topics(self):
        return (self._topic,)

    def route_changed(self, topic):
        pass

    def heartbeat_data(self):
        return ProducerData(self.group)

    def check_transaction(self, address, header, message):
        pass
