"""Requests of clients about themselves and their groups: heartbeats, members of groups, queue locks.

What the broker asks of consumers is in `consumer_calls`; the rules are in `connected` and `queue_locks`
(docs/spec/broker.md 8, 10 and 12.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ConsumerNotOnline, InvalidFilter, ServerError, SubscriptionParseFailed
from pyromq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    UnlockBatchRequestBody,
)
from pyromq.protocol.bodies import Connection as ConnectionBody
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    GetConsumerConnectionList,
    GetConsumerListByGroup,
    GetProducerConnectionList,
    UnregisterClient,
)
from pyromq.protocol.names import retry_topic
from pyromq.remoting import with_body

from ..filters.consumer_filters import compiled, is_tag_type, not_allowed
from ..topics import can_be_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.auth import RequestGuard
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from ..config import LiveConfig
    from ..context import Tables
    from ..durability import Acknowledged
    from .connected import ClientInfo
    from .queue_locks import QueueLocks


class ClientProcessors:
    """Heartbeats, goodbyes, and queries for connected clients.

    `clock` gives epoch milliseconds, `monotonic` those that clients expire by. `acknowledged` gives an answer when the
    topics and groups that it speaks of are there to stay.
    """

    def __init__(
        self,
        live: LiveConfig,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        tables: Tables,
        acknowledged: Acknowledged,
        *,
        guard: RequestGuard,
    ) -> None:
        self._acknowledged = acknowledged
        self._guard = guard
        self._clients = tables.clients
        self._topics = tables.topics
        self._groups = tables.groups
        self._filters = tables.filters
        self._live = live
        self._clock = clock
        self._monotonic = monotonic

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.HEART_BEAT: with_body(HeartbeatData.decode, self.heartbeat),
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.CHECK_CLIENT_CONFIG: with_body(CheckClientRequestBody.decode, self.check_client_config),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def heartbeat(self, connection: Connection, request: Command, data: HeartbeatData) -> Command | Awaitable[Command]:
        """34. The answer has no fields of its own: some would make 5.x clients leave out their subscriptions."""
        self._check_room(connection, data)
        quiet = set()
        for consumer in data.consumer_data_set:
            # If the group cannot be created, the member's pulls are refused, but not its heartbeats.
            config = self._groups.get(consumer.group_name)
            if config is None:
                continue
            # Clients look up the retry topic right after this answer, and then not again for 30 seconds.
            if can_be_topic(retry_topic(consumer.group_name)):
                self._topics.ensure_retry(consumer.group_name, config.retry_queue_nums, unit_mode=consumer.unit_mode)
            if not config.notify_consumer_ids_changed_enable:
                quiet.add(consumer.group_name)
        self._clients.heartbeat(
            connection,
            data,
            self._monotonic(),
            language=request.language,
            version=request.version,
            quiet=quiet,
            account=None if self._guard.is_open else self._guard.account_of(connection, request),
        )
        if not data.without_sub:
            for consumer in data.consumer_data_set:
                if consumer.group_name not in self._groups:
                    continue  # nobody can consume for it, and filters outlive those who named them
                self._filters.register(consumer.group_name, consumer.subscription_data_set)
        groups = [consumer.group_name for consumer in data.consumer_data_set]
        return self._acknowledged(request.reply(), topics=map(retry_topic, groups), groups=groups)

    def _check_room(self, connection: Connection, data: HeartbeatData) -> None:
        config = self._live.config
        groups, subscriptions = self._clients.weight_with(connection, data)
        if groups > config.max_groups_per_client:
            most, setting = config.max_groups_per_client, "maxGroupsPerClient"
            raise ServerError(f"one client can have at most {most} groups, not {groups} ({setting})")
        if subscriptions > config.max_subscriptions_per_client:
            most, setting = config.max_subscriptions_per_client, "maxSubscriptionsPerClient"
            raise ServerError(f"one client can have at most {most} subscriptions, not {subscriptions} ({setting})")

    def unregister(self, connection: Connection, request: Command) -> Command:
        header = request.header(UnregisterClient)
        quiet = set()
        if header.consumer_group is not None:
            config = self._groups.find(header.consumer_group)
            if config is not None and not config.notify_consumer_ids_changed_enable:
                quiet.add(header.consumer_group)
        self._clients.unregister(connection, header.producer_group, header.consumer_group, quiet=quiet)
        return request.reply()

    def consumer_ids(self, connection: Connection, request: Command) -> Command:
        name = request.header(GetConsumerListByGroup).consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise ServerError(f"no consumer for this group, {name}")
        return request.reply(body=ConsumerIdList([info.client_id for info in group.connections.values()]).encode())

    def check_client_config(self, connection: Connection, request: Command, body: CheckClientRequestBody) -> Command:
        """46: clients send it before they start, to check a subscription that filters by more than tags."""
        subscription = body.subscription_data
        if not is_tag_type(subscription.expression_type):
            if not self._live.config.enable_property_filter:
                raise not_allowed(subscription.expression_type)
            try:
                compiled(subscription.expression_type, subscription.sub_string)
            except InvalidFilter as exc:
                raise SubscriptionParseFailed(str(exc)) from exc
        return request.reply()

    def consumer_connections(self, connection: Connection, request: Command) -> Command:
        name = request.header(GetConsumerConnectionList).consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise ConsumerNotOnline(f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=[_connection_body(info) for info in group.connections.values()],
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=group.subscriptions,
        )
        return request.reply(body=body.encode())

    def producer_connections(self, connection: Connection, request: Command) -> Command:
        name = request.header(GetProducerConnectionList).producer_group
        members = self._clients.producer_group(name)
        if members is None:
            raise ServerError(f"the producer group[{name}] not exist")
        return request.reply(body=ProducerConnection([_connection_body(info) for info in members.values()]).encode())

    def all_producers(self, connection: Connection, request: Command) -> Command:
        # Heartbeat times are monotonic; shift them to epoch milliseconds.
        epoch = self._clock() - self._monotonic()
        table = {
            name: [_producer_info(info, epoch) for info in members.values()]
            for name, members in self._clients.producers.items()
        }
        return request.reply(body=ProducerTableInfo(table).encode())


class LockProcessors:
    """Queue locks of ordered consumers. `monotonic` gives milliseconds."""

    def __init__(self, locks: QueueLocks, monotonic: Callable[[], int]) -> None:
        self._locks = locks
        self._monotonic = monotonic

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.LOCK_BATCH_MQ: with_body(LockBatchRequestBody.decode, self.lock),
            RequestCode.UNLOCK_BATCH_MQ: with_body(UnlockBatchRequestBody.decode, self.unlock),
        }

    def lock(self, connection: Connection, request: Command, body: LockBatchRequestBody) -> Command:
        held = self._locks.lock(body.consumer_group, body.client_id, body.mq_set, self._monotonic())
        return request.reply(body=LockBatchResponseBody(held).encode())

    def unlock(self, connection: Connection, request: Command, body: UnlockBatchRequestBody) -> Command:
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return request.reply()


def _connection_body(info: ClientInfo) -> ConnectionBody:
    return ConnectionBody(
        client_addr=info.connection.peer,
        client_id=info.client_id,
        language=info.language.value,
        version=info.version,
    )


def _producer_info(info: ClientInfo, epoch: int) -> ProducerInfo:
    return ProducerInfo(
        client_id=info.client_id,
        language=info.language.value,
        last_update_timestamp=epoch + info.last_update,
        remote_ip=f"/{info.connection.peer}",
        version=info.version,
    )
