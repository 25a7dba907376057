"""Who is connected: consumer groups with their members and subscriptions, and producers (docs/spec/broker.md 8).

Everything is keyed by the connection, since two processes may use the same client id. Clients announce themselves every
30 seconds; a client that leaves says so, closes its connection, or falls silent.

No clock and no loop: the time in milliseconds is an argument. The members of a group rebalance when they are told that
others came or went, so `notify` is called as soon as the tables have changed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyromq.protocol.command import PROTOCOL_VERSION, Language

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyromq.protocol.bodies import (
        ConsumeFromWhere,
        ConsumerData,
        ConsumeType,
        HeartbeatData,
        MessageModel,
        SubscriptionData,
    )
    from pyromq.remoting import Connection

logger = logging.getLogger(__name__)

# A client that has not sent a heartbeat for longer than this is gone.
CLIENT_EXPIRES_MS = 120_000


# Characters of a name or a filter from which it counts as more than one.
_LONG = 1024


def weight_of(subscriptions: Iterable[SubscriptionData]) -> int:
    """How many subscriptions these are; one with a long filter or many tags counts as several."""
    return sum(
        1 + (len(each.topic) + len(each.sub_string) + sum(map(len, each.tags_set)) + 8 * len(each.code_set)) // _LONG
        for each in subscriptions
    )


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """One client, as its last heartbeat over this connection described it."""

    connection: Connection
    client_id: str
    language: Language
    version: int
    last_update: int  # monotonic milliseconds
    account: str | None = None  # who signed it


@dataclass(slots=True)
class ConsumerGroup:
    """The live members of a group and the subscriptions, which apply to the group as a whole.

    How it consumes is what the latest heartbeat of any member said; None for a value we do not know.
    """

    name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    connections: dict[Connection, ClientInfo] = field(default_factory=dict)

    def take(self, data: ConsumerData, info: ClientInfo, *, with_subscriptions: bool) -> bool:
        """Take over a member's heartbeat; True if the group gained a member or a topic, or lost a topic."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        joined = info.connection not in self.connections
        if joined:
            logger.info(
                "consumer joined group=%s client=%s addr=%s language=%s version=%d",
                self.name,
                info.client_id,
                info.connection.peer,
                info.language,
                info.version,
            )
        self.connections[info.connection] = info
        changed = with_subscriptions and self._subscribe(data.subscription_data_set)
        return joined or changed

    def _subscribe(self, wanted: list[SubscriptionData]) -> bool:
        added = False
        for subscription in wanted:
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                added = True
                logger.info("group %s subscribes to %s: %s", self.name, subscription.topic, subscription.sub_string)
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[subscription.topic] = subscription
        dropped = self.subscriptions.keys() - {subscription.topic for subscription in wanted}
        for topic in dropped:
            # Members with different subscriptions overwrite each other's: a user error worth logging.
            logger.warning("group %s no longer subscribes to %s", self.name, topic)
            del self.subscriptions[topic]
        return added or bool(dropped)


@dataclass(slots=True)
class _Memberships:
    """The groups of one connection, and the id its producers are found by.

    Of consumer groups, also how much this connection last subscribed to.
    """

    client_id: str = ""
    consumer: dict[str, int] = field(default_factory=dict)
    producer: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.consumer or self.producer)


class Clients:
    """All live clients of a broker. `notify` is called with a group and all its connections when they should rebalance.

    It is called once the tables have changed, from within the method that changed them.
    """

    def __init__(self, notify: Callable[[str, list[Connection]], None]) -> None:
        self._notify = notify
        # Called with a group when its last member has left.
        self.emptied: Callable[[str], None] = lambda group: None
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, ClientInfo]] = {}
        # Producers by client id, with their accounts. Of several connections the last is the newest.
        self._by_id: dict[str, dict[Connection, str | None]] = {}
        self._memberships: dict[Connection, _Memberships] = {}

    # Who is there

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The live group, or None if no member is connected."""
        return self._consumers.get(name)

    def find_consumer(self, group: str, client_id: str) -> ClientInfo | None:
        """The member with this id; of several, the one that joined last."""
        live = self._consumers.get(group)
        if live is None:
            return None
        return next((info for info in reversed(live.connections.values()) if info.client_id == client_id), None)

    def consumer_groups(self) -> list[ConsumerGroup]:
        """All live groups."""
        return list(self._consumers.values())

    def subscribers(self, topic: str) -> list[str]:
        """The live groups that subscribe to `topic`."""
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    @property
    def producers(self) -> Mapping[str, Mapping[Connection, ClientInfo]]:
        """All live producers by group."""
        return self._producers

    def producer_group(self, name: str) -> Mapping[Connection, ClientInfo] | None:
        """The live producers of a group in the order they came; None if there are none."""
        return self._producers.get(name)

    def producer_connection(self, client_id: str) -> Connection | None:
        """The connection of the producer with this id; of several, the one that came last.

        Replies go there, so an id belongs to the account that came with it first.
        """
        connections = self._by_id.get(client_id)
        if not connections:
            return None
        owner = next(iter(connections.values()))
        return next(connection for connection, account in reversed(connections.items()) if account == owner)

    # What one client may be

    def weight_with(self, connection: Connection, data: HeartbeatData) -> tuple[int, int]:
        """How many groups and subscriptions a connection would have after a heartbeat; long ones count as several."""
        known = self._memberships.get(connection) or _Memberships()
        subscribed = {each.group_name: weight_of(each.subscription_data_set) for each in data.consumer_data_set}
        consumer = known.consumer | (dict.fromkeys(subscribed, 0) | known.consumer if data.without_sub else subscribed)
        producer = known.producer | {each.group_name for each in data.producer_data_set}
        groups = sum(1 + len(name) // _LONG for names in (consumer, producer) for name in names)
        return groups, sum(consumer.values())

    # Coming and staying

    def heartbeat(
        self,
        connection: Connection,
        data: HeartbeatData,
        now: int,
        *,
        language: Language = Language.JAVA,
        version: int = PROTOCOL_VERSION,
        quiet: Collection[str] = (),
        account: str | None = None,
    ) -> None:
        """Take over a heartbeat. Members of groups in `quiet` are not notified."""
        info = ClientInfo(connection, data.client_id, language, version, now, account)
        memberships = self._memberships.get(connection) or _Memberships()
        if data.producer_data_set:
            self._produce({producer.group_name for producer in data.producer_data_set}, info, memberships)
        changed = []
        for consumer in data.consumer_data_set:
            name = consumer.group_name
            if data.without_sub:
                memberships.consumer.setdefault(name, 0)
            else:
                memberships.consumer[name] = weight_of(consumer.subscription_data_set)
            group = self._consumers.setdefault(name, ConsumerGroup(name))
            # A 5.x client may leave out its subscriptions if they have not changed.
            if group.take(consumer, info, with_subscriptions=not data.without_sub) and name not in quiet:
                changed.append(group)
        if memberships:
            self._memberships[connection] = memberships
        for group in changed:
            self._notify(group.name, list(group.connections))

    def _produce(self, groups: set[str], info: ClientInfo, memberships: _Memberships) -> None:
        if memberships.producer and memberships.client_id != info.client_id:
            self._forget_id(memberships.client_id, info.connection)
        memberships.client_id = info.client_id
        self._by_id.setdefault(info.client_id, {})[info.connection] = info.account
        for name in groups:
            if name not in memberships.producer:
                memberships.producer.add(name)
                logger.info("producer joined group=%s client=%s addr=%s", name, info.client_id, info.connection.peer)
            self._producers.setdefault(name, {})[info.connection] = info

    # Leaving

    def unregister(
        self,
        connection: Connection,
        producer_group: str | None,
        consumer_group: str | None,
        *,
        quiet: Collection[str] = (),
    ) -> None:
        """A client leaves these groups. Its connection and its other groups stay."""
        memberships = self._memberships.get(connection)
        if memberships is None:
            return
        if producer_group in memberships.producer:
            self._leave_producers(producer_group, connection, memberships, "unregistered")
        if consumer_group in memberships.consumer:
            self._leave(consumer_group, connection, memberships, "unregistered", notify=consumer_group not in quiet)
        if not memberships:
            del self._memberships[connection]

    def closed(self, connection: Connection) -> None:
        """The connection is gone, and with it everything the client was."""
        memberships = self._memberships.pop(connection, None)
        if memberships is None:
            return
        for name in tuple(memberships.producer):
            self._leave_producers(name, connection, memberships, "connection closed")
        for name in tuple(memberships.consumer):
            self._leave(name, connection, memberships, "connection closed")

    def expire(self, now: int) -> list[Connection]:
        """Drop clients that were silent for too long. Returns the connections to close: those with no group left.

        A client that still sends heartbeats for one of its groups keeps its connection and leaves only the others.
        """
        last = now - CLIENT_EXPIRES_MS
        silent = []
        for connection, memberships in tuple(self._memberships.items()):
            for name in tuple(memberships.producer):
                if self._producers[name][connection].last_update < last:
                    self._leave_producers(name, connection, memberships, "silent for too long")
            for name in tuple(memberships.consumer):
                if self._consumers[name].connections[connection].last_update < last:
                    self._leave(name, connection, memberships, "silent for too long")
            if not memberships:
                del self._memberships[connection]
                silent.append(connection)
        return silent

    def _leave(
        self, name: str, connection: Connection, memberships: _Memberships, why: str, *, notify: bool = True
    ) -> None:
        memberships.consumer.pop(name, None)
        group = self._consumers[name]
        info = group.connections.pop(connection)
        logger.info("consumer left group=%s client=%s addr=%s: %s", name, info.client_id, connection.peer, why)
        if not group.connections:
            del self._consumers[name]
            self.emptied(name)
        elif notify:
            self._notify(name, list(group.connections))

    def _leave_producers(self, name: str, connection: Connection, memberships: _Memberships, why: str) -> None:
        memberships.producer.discard(name)
        members = self._producers[name]
        info = members.pop(connection)
        logger.info("producer left group=%s client=%s addr=%s: %s", name, info.client_id, connection.peer, why)
        if not members:
            del self._producers[name]
        if not memberships.producer:
            self._forget_id(memberships.client_id, connection)

    def _forget_id(self, client_id: str, connection: Connection) -> None:
        connections = self._by_id[client_id]
        del connections[connection]
        if not connections:
            del self._by_id[client_id]
