"""Routes: where the queues of topics are, as the name servers last reported.

    route            the name server's answer for one topic
    publish info     the queues to send to
    subscribe queues the queues to read from
    broker table     broker name -> broker id -> address, over all routes

An answer without news changes nothing. A failure changes nothing either, so that clients keep working with what they
know while name servers are away. Topic names are those on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import (
    ConnectFailed,
    ConnectionLost,
    NoNameServer,
    PyroMQError,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
    broker_error,
)
from pyromq.protocol.bodies import TopicRouteData
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetRouteInfo
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import TEMPLATE_TOPIC
from pyromq.protocol.permissions import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyromq.protocol.bodies import QueueData
    from pyromq.remoting import NameServers

    from .tasks import Tasks

logger = logging.getLogger(__name__)

MASTER_ID = 0
BROKER_NOT_FOUND = 10003

# Most queues of one topic, over all brokers. Real ones have a few hundred; absurd numbers are refused.
_MAX_QUEUES = 1 << 20
# A route that has just been asked for need not be asked for again.
_SOONEST = 0.05
_STATIC_TOPIC = b'"topicQueueMappingByBroker":{"'


@dataclass(frozen=True, slots=True)
class PublishInfo:
    """The queues to send to. `order`: an admin fixed them, and they stay even while their broker is down."""

    queues: tuple[MessageQueue, ...]
    order: bool = False


class Routes:
    """The routes of a client. `changed` is called with a topic after its route changed.

    `master_changed` is called with the addresses of the last and the new master of a group.
    """

    def __init__(
        self,
        name_servers: NameServers,
        tasks: Tasks,
        *,
        timeout: float = 3.0,
        changed: Callable[[str], None] | None = None,
        master_changed: Callable[[str | None, str], None] | None = None,
    ) -> None:
        self._name_servers = name_servers
        self._tasks = tasks
        self._timeout = timeout
        self._changed = changed
        self._master_changed = master_changed
        self._routes: dict[str, TopicRouteData] = {}
        # Routes of topics that do not exist yet, made from the template; kept apart, since no one can read from them.
        self._guessed: dict[str, TopicRouteData] = {}
        self._publish: dict[str, PublishInfo] = {}
        self._subscribe: dict[str, list[MessageQueue]] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._unreachable: set[str] = set()
        self._fetches: dict[str, asyncio.Task[TopicRouteData | None]] = {}
        self._looked_at: dict[str, float] = {}
        self._replicated: set[str] = set()

    # Routes

    def cached(self, topic: str) -> TopicRouteData | None:
        """The known route of `topic`, without asking."""
        return self._routes.get(topic)

    async def find(self, topic: str) -> TopicRouteData:
        """The route of `topic`, asking for it if unknown. Raises RouteNotFound, or like `refresh`."""
        route = self._routes.get(topic) or await self.refresh(topic)
        if route is None:
            raise self._not_found(topic)
        return route

    async def refresh(self, topic: str) -> TopicRouteData | None:
        """Ask for the route of `topic` now; None if the name servers know none, and then the old one stays.

        Concurrent callers share one request. Raises NoNameServer, ConnectFailed, ConnectionLost, RequestTimeout, a
        BrokerError, or RemoteProtocolError for a nonsensical answer; then nothing changes.
        """
        if not self._name_servers.addresses:
            raise NoNameServer("no name server address; give namesrv='host:9876', or set NAMESRV_ADDR")
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = self._tasks.once(self._fetch_and_apply(topic), f"route of {topic}", log=False)
            self._fetches[topic] = fetch
            fetch.add_done_callback(lambda _: self._fetches.pop(topic, None))
        try:
            # A cancelled caller only stops waiting: others may wait for the same answer.
            return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if fetch.cancelled() and current is not None and not current.cancelling():
                raise ConnectionLost(
                    "name server", "the request was cancelled because this client is closing"
                ) from None
            raise

    def forget(self, topic: str) -> None:
        """Forget `topic`."""
        self._forget_guess(topic)
        self._looked_at.pop(topic, None)
        self._routes.pop(topic, None)
        self._publish.pop(topic, None)
        self._subscribe.pop(topic, None)

    # Queues

    def cached_publish_info(self, topic: str) -> PublishInfo | None:
        """The queues to send to; None if none are known or usable."""
        return self._publish.get(topic)

    async def publish_info(
        self, topic: str, default_queues: int = 4, timeout: float = 3.0, *, template: str = TEMPLATE_TOPIC
    ) -> PublishInfo:
        """The queues to send to. For a topic that does not exist, those it will have after the first send.

        That works where brokers create topics automatically: such brokers have the `template`. Raises RouteNotFound,
        which says why there is no queue, or why no name server could be asked.
        """
        if (info := self._publish.get(topic)) is not None:
            return info
        try:
            async with asyncio.timeout(timeout):
                route = await self.refresh(topic)
                if route is None and topic not in self._routes:
                    await self._guess(topic, template, default_queues)
        except TimeoutError as exc:
            if isinstance(exc, RequestTimeout):
                raise
            peer = self._name_servers.current or "name server"
            raise RequestTimeout(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, timeout) from None
        if (info := self._publish.get(topic)) is not None:
            return info
        raise self._not_writable(topic) if topic in self._routes else self._not_found(topic, template)

    def cached_subscribe_queues(self, topic: str) -> list[MessageQueue] | None:
        """The queues to read from, in order; None if the route is unknown. Do not change the list."""
        return self._subscribe.get(topic)

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read from, in order, asking for the route if unknown. Raises like `find`."""
        if (queues := self._subscribe.get(topic)) is None:
            await self.find(topic)
            queues = self._subscribe[topic]
        return list(queues)

    # Brokers

    def master(self, broker_name: str) -> str | None:
        """The address of the master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def replica(self, broker_name: str, broker_id: int, only_this: bool) -> tuple[str, bool] | None:
        """An address to read from, and whether it is a slave: this id, for a slave the next, else any if allowed.

        Where any will do, one that cannot be reached is the last choice.
        """
        addresses = self._brokers.get(broker_name, {})
        ids = (broker_id,) if broker_id == MASTER_ID else (broker_id, broker_id + 1)
        last_choice = None
        for number in ids if only_this else (*ids, *sorted(addresses)):
            if (address := addresses.get(number)) is not None:
                found = address, number != MASTER_ID
                if only_this or address not in self._unreachable:
                    return found
                last_choice = last_choice or found
        return last_choice

    async def replica_or_refresh(self, queue: MessageQueue, broker_id: int) -> tuple[str, bool]:
        """As `replica`, any of them, asking for the route once if none is known. Raises RouteNotFound, or as `refresh`.

        So a queue is read as long as one broker of its group is there.
        """
        found = self.replica(queue.broker_name, broker_id, False)
        if found is None:
            await self.refresh(queue.topic)
            found = self.replica(queue.broker_name, broker_id, False)
        if found is None:
            raise RouteNotFound(f"{queue.topic}: no address of broker {queue.broker_name} is known")
        return found

    def reached(self, address: str) -> None:
        """A broker answered, or took a connection: it may be read from again."""
        self._unreachable.discard(address)

    def has_another(self, queue: MessageQueue, error: PyroMQError) -> bool:
        """After reading `queue` failed: whether another broker of its group may be asked instead.

        One that cannot be reached is passed over until it can be: heartbeats find out. The route is asked for anew.
        """
        if not isinstance(error, (ConnectFailed, RequestTimeout)):
            return False
        if error.peer not in self._unreachable:
            self._unreachable.add(error.peer)
            self._tasks.once(self._refresh_or_log(queue.topic), f"new route of {queue.topic}")
        found = self.replica(queue.broker_name, MASTER_ID, False)
        return found is not None and found[0] not in self._unreachable

    async def master_or_refresh(self, queue: MessageQueue) -> str:
        """The address of the master that has `queue`, asking for the route once if unknown.

        Raises RouteNotFound (10003), or why no name server could be asked.
        """
        if (address := self.master(queue.broker_name)) is not None:
            return address
        await self.refresh(queue.topic)
        if (address := self.master(queue.broker_name)) is not None:
            return address
        error = RouteNotFound(
            f"{queue.topic}: no address of a master of broker {queue.broker_name} is known to "
            f"{self._where()}; it is down, or has no master"
        )
        error.code = BROKER_NOT_FOUND
        error.topic = queue.topic
        error.retriable = True
        raise error

    def may_change_master(self, broker_name: str) -> bool:
        """Whether this group has, or had, brokers that can become master when the master is gone."""
        return broker_name in self._replicated

    def led_by(self, address: str) -> list[tuple[str, str]]:
        """The groups whose master is at `address`, each with a topic that it has."""
        found = {}
        for topic, route in self._routes.items():
            for broker in route.broker_datas:
                if self.master(broker.broker_name) == address:
                    found[broker.broker_name] = topic
        return list(found.items())

    def awaits_master(self, topic: str) -> bool:
        """Whether a group with queues of `topic` has brokers, but no master."""
        route = self._routes.get(topic)
        return route is not None and any(
            broker.broker_addrs and MASTER_ID not in broker.broker_addrs for broker in route.broker_datas
        )

    async def look_again(self, topic: str, timeout: float) -> None:
        """Ask for the route of `topic`, unless that was done a moment ago. Never raises: the old one stays."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at.get(topic, -_SOONEST) < _SOONEST:
            return
        self._looked_at[topic] = now
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._refresh_or_log(topic)

    def brokers_of(self, topic: str) -> list[str]:
        """The names of the brokers known to have `topic`."""
        route = self._routes.get(topic)
        return [] if route is None else [broker.broker_name for broker in route.broker_datas]

    def addresses(self) -> set[str]:
        """All addresses of all brokers."""
        return {address for addresses in self._brokers.values() for address in addresses.values()}

    def masters(self) -> set[str]:
        """The addresses of all masters."""
        return {addresses[MASTER_ID] for addresses in self._brokers.values() if MASTER_ID in addresses}

    def drop_offline(self) -> None:
        """Forget addresses that no route mentions."""
        mentioned: dict[str, set[str]] = {}
        for route in (*self._routes.values(), *self._guessed.values()):
            for broker in route.broker_datas:
                mentioned.setdefault(broker.broker_name, set()).update(broker.broker_addrs.values())
        for name, addresses in tuple(self._brokers.items()):
            online = {number: address for number, address in addresses.items() if address in mentioned.get(name, ())}
            if len(online) < len(addresses):
                logger.info("broker %s: no route mentions %s any more", name, addresses.items() - online.items())
            if online:
                self._brokers[name] = online
            else:
                del self._brokers[name]
        self._unreachable &= self.addresses()

    # Inside

    async def _refresh_or_log(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except PyroMQError as exc:
            logger.warning("route of %s not refreshed: %s", topic, exc)

    async def _fetch_and_apply(self, topic: str) -> TopicRouteData | None:
        route = await self._fetch(topic)
        if route is None:
            # It still does not exist. The next send checks which brokers could create it now.
            self._forget_guess(topic)
            return None
        return self._apply(topic, route)

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfo(topic, accept_standard_json_only=True)
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        reply = await self._name_servers.invoke(request, self._timeout)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        server = self._name_servers.current or "name server"
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark, server)
        if _STATIC_TOPIC in reply.body_bytes:
            error = RouteNotFound(f"{topic}: a static topic of RocketMQ 5, whose queues this client cannot follow")
            error.topic = topic
            raise error
        return TopicRouteData.decode(reply.body_bytes)

    def _apply(self, topic: str, route: TopicRouteData) -> TopicRouteData:
        """Apply `route`: all of it or, if it makes no sense, nothing. Returns the route as stored."""
        route = _sorted(route)
        known = self._routes.get(topic)
        if known is not None and known == route:
            # The broker table is shared: another topic's route may have put older data there meanwhile.
            self._note_brokers(known)
            return known
        publish = publish_info(topic, route)
        subscribe = subscribe_queues(topic, route)
        self._routes[topic] = route
        self._guessed.pop(topic, None)
        self._note_brokers(route)
        if publish.queues:
            self._publish[topic] = publish
        else:
            self._publish.pop(topic, None)
        self._subscribe[topic] = subscribe
        logger.info("topic %s: %d queues to write, %d to read", topic, len(publish.queues), len(subscribe))
        if self._changed is not None:
            self._changed(topic)
        return route

    async def _guess(self, topic: str, template: str, default_queues: int) -> None:
        """Use the template's route for `topic`, which does not exist."""
        route = await self._fetch(template)
        if route is None or topic in self._routes:
            return
        route = _sorted(replace(route, queue_datas=[_clamped(queue, default_queues) for queue in route.queue_datas]))
        publish = publish_info(topic, route)
        if not publish.queues:
            return
        self._guessed[topic] = route
        self._publish[topic] = publish
        self._note_brokers(route)

    def _forget_guess(self, topic: str) -> None:
        if self._guessed.pop(topic, None) is not None:
            self._publish.pop(topic, None)

    def _note_brokers(self, route: TopicRouteData) -> None:
        for broker in route.broker_datas:
            before = self._brokers.get(broker.broker_name, {})
            # One that was gone from its route and is in it again has come back.
            self._unreachable -= set(broker.broker_addrs.values()) - set(before.values())
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
            master = broker.broker_addrs.get(MASTER_ID)
            last = before.get(MASTER_ID)
            if before and master is not None and master != last:
                logger.info("broker %s: its master is %s now", broker.broker_name, master)
                if self._master_changed is not None:
                    self._master_changed(last, master)
            if broker.broker_addrs.keys() - {MASTER_ID}:
                self._replicated.add(broker.broker_name)

    def _where(self) -> str:
        return f"name server {', '.join(self._name_servers.addresses)}"

    def _not_found(self, topic: str, template: str | None = None) -> RouteNotFound:
        text = f"{topic}: no broker has this topic, according to {self._where()}"
        if template is not None:
            text += (
                f", and none has {template}, so none creates topics automatically; "
                "create it, or set autoCreateTopicEnable=true on a broker"
            )
        else:
            text += "; create it, or send to it where brokers create topics automatically (autoCreateTopicEnable)"
        error = RouteNotFound(text)
        error.topic = topic
        return error

    def _not_writable(self, topic: str) -> RouteNotFound:
        reasons = "; ".join(_why_not_writable(self._routes[topic]))
        error = RouteNotFound(f"{topic}: there is no queue to send to: {reasons or 'no broker has queues of it'}")
        error.topic = topic
        return error


def publish_info(topic: str, route: TopicRouteData) -> PublishInfo:
    """The queues of `topic` to send to. Raises RemoteProtocolError for nonsensical counts."""
    if route.order_topic_conf:
        return PublishInfo(tuple(_queues(topic, _ordered(topic, route.order_topic_conf))), order=True)
    masters = {broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs}
    writable = (
        (data.broker_name, data.write_queue_nums)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & PERM_WRITE and data.broker_name in masters
    )
    return PublishInfo(tuple(_queues(topic, writable)))


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues of `topic` to read from, in order."""
    readable = ((data.broker_name, data.read_queue_nums) for data in route.queue_datas if data.perm & PERM_READ)
    return sorted(set(_queues(topic, readable)))


def _ordered(topic: str, conf: str) -> Iterator[tuple[str, int]]:
    """`broker:count;broker:count`, as the administrator wrote it down."""
    for part in filter(None, conf.split(";")):
        name, _, count = part.rpartition(":")
        if not name or not count.isascii() or not count.isdecimal():
            raise RemoteProtocolError(f"{topic}: its order configuration is not `broker:count;…`: {conf[:200]!r}")
        yield name, int(count[:10])


def _queues(topic: str, counts: Iterable[tuple[str, int]]) -> list[MessageQueue]:
    counts = list(counts)
    total = sum(max(count, 0) for _, count in counts)
    if total > _MAX_QUEUES:
        raise RemoteProtocolError(f"{topic}: it cannot have {total} queues")
    return [
        MessageQueue(broker_name=broker_name, queue_id=number, topic=topic)
        for broker_name, count in counts
        for number in range(count)
    ]


def _sorted(route: TopicRouteData) -> TopicRouteData:
    return replace(
        route,
        queue_datas=sorted(route.queue_datas, key=lambda data: data.broker_name),
        broker_datas=sorted(route.broker_datas, key=lambda data: data.broker_name),
    )


def _clamped(data: QueueData, default_queues: int) -> QueueData:
    count = min(default_queues, data.read_queue_nums)
    return replace(data, read_queue_nums=count, write_queue_nums=count)


def _why_not_writable(route: TopicRouteData) -> Iterator[str]:
    masters = {broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs}
    for data in route.queue_datas:
        if not data.perm & PERM_WRITE:
            yield f"{data.broker_name} has no write permission for it (perm {data.perm})"
        elif data.broker_name not in masters:
            yield f"{data.broker_name} has no master"
        else:
            yield f"{data.broker_name} has {data.write_queue_nums} queues to write"
