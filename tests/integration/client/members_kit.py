"""The smallest producer, consumer and admin that a client can have; they remember what they were told."""

from __future__ import annotations

import asyncio
from typing import Any

from pyromq.protocol.bodies import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProducerData,
    SubscriptionData,
)


class AdminStub:
    def __init__(self, group="admins", *topics):
        self.group = group
        self._topics = set(topics)
        self.changed = []

    def topics(self):
        return self._topics

    def route_changed(self, topic):
        self.changed.append(topic)


class ProducerStub(AdminStub):
    def __init__(self, group="producers", *topics):
        super().__init__(group, *topics)
        self.checks: asyncio.Queue[Any] = asyncio.Queue()

    def heartbeat_data(self):
        return ProducerData(self.group)

    def check_transaction(self, address, header, message):
        self.checks.put_nowait((address, header, message))


class ConsumerStub(AdminStub):
    def __init__(self, group="consumers", *topics):
        super().__init__(group, *topics)
        self.woken = asyncio.Event()
        self.resets: asyncio.Queue[Any] = asyncio.Queue()
        self.offsets = {}

    def heartbeat_data(self):
        return ConsumerData(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=[
                SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in sorted(self._topics)
            ],
        )

    def wake_rebalance(self):
        self.woken.set()

    def reset_offsets(self, topic, offsets):
        self.resets.put_nowait((topic, offsets))

    def memory_offsets(self, topic):
        return {queue: offset for queue, offset in self.offsets.items() if queue.topic == topic}

    def running_info(self, jstack):
        return ConsumerRunningInfo(properties={"GROUP": self.group}, jstack="stacks" if jstack else None)

    async def consume_directly(self, message, broker_name):
        remark = f"{message.body.decode()} of {broker_name}"
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS, remark=remark)
