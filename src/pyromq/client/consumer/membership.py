"""Membership: a consumer's part in its group, the same for push and pull.

Topic and group names are those on the wire.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import ConsumerData, MessageModel

from .offset_store import BrokerOffsetStore, LocalOffsetStore
from .running_info import running_info
from .start_offset import consume_from_where, is_strict, start_offset
from .subscriptions import SQL92, barred_tag, subscription_data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyromq.protocol.bodies import ConsumerRunningInfo, ConsumeStatus, ConsumeType, SubscriptionData
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from ..tasks import Periodic
    from .offset_store import OffsetStore
    from .process_queue import ProcessQueue
    from .start_offset import StartAt
    from .subscriptions import Sql

logger = logging.getLogger(__name__)


class Membership:
    """One member's subscriptions, its offset store, and what it tells brokers.

    `begin` opens the offset store; before that only subscriptions may change. `rebalance` is the task that shares the
    queues, once it runs.
    """

    offsets: OffsetStore

    def __init__(
        self,
        client: Client,
        group: str,
        consume_type: ConsumeType,
        *,
        start_at: StartAt | datetime,
        broadcast: bool,
        offset_store: OffsetStore | None,
    ) -> None:
        self.client = client
        self.group = group
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.rebalance: Periodic | None = None
        self._consume_type = consume_type
        self._start_at = start_at
        self._broadcast = broadcast
        self._given_store = offset_store
        self._started_ms = 0
        self._warned_of: set[str] = set()

    def begin(self) -> None:
        self.offsets = self._given_store or self._new_store()
        self._started_ms = _now_ms()

    def _new_store(self) -> OffsetStore:
        if self._broadcast:
            return LocalOffsetStore.of(self.client.client_id, self.group)
        return BrokerOffsetStore(self.client, self.group, strict=is_strict(self._start_at))

    # What it subscribes to

    def subscribe(self, topic: str, expression: str | Sql) -> SubscriptionData:
        """Subscribe to a topic, or change its expression. Raises ConfigError for an empty expression."""
        subscription = subscription_data(topic, expression, _now_ms())
        tag = barred_tag(subscription)
        if tag is not None and tag not in self._warned_of:
            self._warned_of.add(tag)
            logger.warning("%s: %r counts as a single tag of %s; separate tags with ||", self.group, tag, topic)
        self.subscriptions[topic] = subscription
        return subscription

    def renew(self, topic: str) -> None:
        """Give a subscription a new version: brokers keep the later one."""
        subscription = self.subscriptions.get(topic)
        if subscription is not None:
            self.subscriptions[topic] = replace(subscription, sub_version=_now_ms())

    async def find_route(self, topic: str) -> None:
        """A topic that does not exist yet may appear later; an unreachable name server is an error."""
        routes = self.client.routes
        if routes.cached(topic) is None and await routes.refresh(topic) is None:
            logger.warning("%s: no broker has topic %s yet; waiting for it", self.group, topic)

    async def check(self, subscription: SubscriptionData) -> None:
        """Ask a broker to check an SQL expression."""
        if subscription.expression_type != SQL92:
            return
        routes, client = self.client.routes, self.client
        for name in routes.brokers_of(subscription.topic):
            found = routes.replica(name, 0, False)
            if found is not None:
                await client.calls.check_subscription(found[0], client.client_id, self.group, subscription)
                return

    # Its progress

    async def start_offset(self, queue: MessageQueue) -> int | None:
        return await start_offset(self.client, self.group, queue, self._start_at, self.offsets)

    async def persist(self, queue: MessageQueue, *, wait: bool = False) -> None:
        """Commit the progress of one queue. A failure is logged: another commit follows, here or in another member."""
        try:
            await self.offsets.persist(queue, wait=wait)
        except (PyroMQError, OSError) as exc:
            logger.warning("%s: offset of %s not committed: %s", self.group, queue, exc)

    # What its client passes on

    def wake_rebalance(self) -> None:
        if self.rebalance is not None:
            self.rebalance.wake()

    def heartbeat_data(self, *, subscribed: bool = True) -> ConsumerData:
        """`subscribed` is False for a member that takes no part in its group's subscriptions."""
        return ConsumerData(
            consume_from_where=consume_from_where(self._start_at),
            consume_type=self._consume_type,
            group_name=self.group,
            message_model=MessageModel.BROADCASTING if self._broadcast else MessageModel.CLUSTERING,
            subscription_data_set=list(self.subscriptions.values()) if subscribed else [],
            unit_mode=bool(self.client.unit_name),
        )

    def running_info(
        self,
        queues: Mapping[MessageQueue, ProcessQueue],
        *,
        stacks: bool,
        settings: Mapping[str, object] | None = None,
        ordered: bool = False,
        pool_size: int | None = None,
        status: Mapping[str, ConsumeStatus] | None = None,
    ) -> ConsumerRunningInfo:
        """Its report about itself (307); `queues` are those it reads now."""
        committed = {
            queue: offset for topic in self.subscriptions for queue, offset in self.offsets.memory(topic).items()
        }
        return running_info(
            settings=settings or {},
            name_servers=self.client.name_servers.addresses,
            consume_type=self._consume_type,
            ordered=ordered,
            pool_size=pool_size,
            started_ms=self._started_ms,
            subscriptions=list(self.subscriptions.values()),
            queues=queues,
            offsets=committed,
            status=status or {},
            stacks=stacks,
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
