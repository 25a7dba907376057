"""The client: the connections, routes and heartbeats that producers, consumers and admins share.

    client = Client("localhost:9876")
    async with Producer("orders", client=client) as producer, Consumer("billing", client=client) as consumer:
        ...

A producer or consumer without a client makes its own; there is no hidden table of them. Unless you start a client
yourself, its first member starts it and its last one closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from pyromq.errors import ConfigError, ConnectFailed, PyroMQError, StateError
from pyromq.protocol.bodies import HeartbeatData, ProducerData
from pyromq.protocol.names import INNER_PRODUCER_GROUP
from pyromq.remoting import NameServers, RemotingClient, SigningHook, TlsConfig
from pyromq.remoting.address_server import look_up, lookup_url

from . import identity
from .calls import BrokerCalls
from .hooks import HookList
from .master_watch import LOOK, MasterWatch
from .members import ConsumerMember, ProducerMember
from .name_server_addresses import configured
from .names import Namespace
from .processor import ClientProcessor
from .producer.request_reply import Replies
from .route_refresh import RouteRefresh
from .routes import Routes
from .tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyromq.protocol.command import Command
    from pyromq.remoting import CloseReason, Connection
    from pyromq.remoting import Hook as RemotingHook

    from .hooks import Hook
    from .identity import Credentials
    from .members import Member
    from .tasks import Periodic

logger = logging.getLogger(__name__)

_ADDRESS_SERVER_SUBGROUP = "nsaddr"
_ADDRESS_SERVER_FIRST = 10.0
_ADDRESS_SERVER_PERIOD = 120.0
# Seconds for a broker that is no longer master to answer, before it is taken for frozen.
_STILL_ANSWERS = 0.3
_FIRST_HEARTBEAT = 1.0


class _State(Enum):
    IDLE = "not started"  # or closed with its last member: then it may start anew
    RUNNING = "running"
    CLOSED = "closed"


_RUNNING = _State.RUNNING


class Client:
    """Connections, routes and timers for any number of producers and consumers, at most one of each per group.

    Making one needs no event loop and opens nothing. Once started, it belongs to its event loop and process: a forked
    child cannot use it and must make its own.

    `namesrv` is `"host:port;host:port"` or a list; without it, the environment's NAMESRV_ADDR is used, then, if given,
    the address server at `namesrv_domain`. `credentials` sign every request; `"env:PREFIX"` and `"file:PATH"` say where
    they are kept (`Credentials.look_up`). `tls=True` encrypts and trusts every server, as RocketMQ's own clients do by
    default; give a `TlsConfig` to check certificates, whose files are read again when they change, or an
    `ssl.SSLContext`. `trace` records what happens to messages, in RocketMQ's topic for it or the one that you name;
    `trace_context` makes messages part of traces, by the property `traceparent` (`client/trace_context.py`). `stream`
    marks the client of a pull consumer. Times are in seconds.
    """

    # Set by the start.
    remoting: RemotingClient
    name_servers: NameServers
    routes: Routes
    calls: BrokerCalls
    tasks: Tasks

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        instance_name: str | None = None,
        client_ip: str | None = None,
        unit_name: str | None = None,
        namespace: str | None = None,
        namesrv_domain: str | None = None,
        credentials: Credentials | str | None = None,
        tls: ssl.SSLContext | TlsConfig | bool = False,
        vip_channel: bool = False,
        api_timeout: float = 3.0,
        route_interval: float = 30.0,
        heartbeat_interval: float = 30.0,
        offset_interval: float = 5.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        trace_context: bool = False,
        stream: bool = False,
    ) -> None:
        for name, seconds in (
            ("api_timeout", api_timeout),
            ("route_interval", route_interval),
            ("heartbeat_interval", heartbeat_interval),
            ("offset_interval", offset_interval),
        ):
            if not seconds > 0:
                raise ConfigError(f"{name} must be more than 0 seconds, not {seconds!r}")
        servers = configured(namesrv)
        self._configured_addresses = servers.addresses
        self._address_server = None
        if not servers.addresses and namesrv_domain:
            self._address_server = lookup_url(namesrv_domain, _ADDRESS_SERVER_SUBGROUP, unit_name or "")
        self.namespace = Namespace(namespace or servers.namespace)
        self.unit_name = unit_name
        self.api_timeout = api_timeout
        self.route_interval = route_interval
        self.heartbeat_interval = heartbeat_interval
        self.offset_interval = offset_interval
        self.hooks: Sequence[Hook] = tuple(hooks)
        self.trace = trace
        self.trace_context = trace_context
        self._instance_name = instance_name
        self._client_ip = client_ip
        self._credentials = identity.Credentials.look_up(credentials) if isinstance(credentials, str) else credentials
        self._tls = tls
        self._vip_channel = vip_channel
        self._stream = stream

        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.admins: dict[str, Member] = {}
        self.replies = Replies()
        # Broker versions by address, from the answers to heartbeats.
        self.versions: dict[str, int] = {}
        self._state = _State.IDLE
        self._explicit = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lookup: asyncio.Task[None] | None = None
        self._heartbeats: Periodic
        # Addresses with a heartbeat in flight, and those whose connection is new.
        self._beating: set[str] = set()
        self._fresh: set[str] = set()
        self._identify()

    def __repr__(self) -> str:
        return f"<Client {self.client_id} {self._state.value}>"

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self._tls is not False

    # Life

    async def start(self) -> Self:
        """Start it and keep it running until `close`, even without members. Does not need a server to be up."""
        self._explicit = True
        await self._open()
        return self

    async def close(self) -> None:
        """Unregister all members, end all tasks and connections. Always ends; a closed client stays closed."""
        self._check_place()
        was_running = self._state is _State.RUNNING
        self._state = _State.CLOSED
        if was_running:
            try:
                await asyncio.gather(*(self._unregister(member) for member in self._members()))
            finally:
                await self._shut_down()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def check_open(self) -> None:
        """Raise StateError unless this client is usable here and now. Cheap enough for every send."""
        if self._state is not _RUNNING:
            raise StateError(f"client {self.client_id} is {self._state.value}")
        self._check_place()

    # Members

    async def join(self, member: Member) -> None:
        """Add a member and tell the brokers. The first one starts the client.

        StateError, with nothing changed, if there is already one of its kind and group.
        """
        self._check_place()
        if self._state is _State.CLOSED:
            raise StateError(f"client {self.client_id} is closed")
        table, group = self._place_of(member)
        if group in table:
            raise StateError(f"client {self.client_id} already has a {_kind(member)} of group {member.group}")
        table[group] = member
        try:
            await self._open()
            await self.heartbeat()
        except BaseException:
            await self.leave(member)
            raise

    async def leave(self, member: Member) -> None:
        """Remove a member and tell the brokers. The last one closes the client, unless it was started explicitly.

        Never raises because of brokers; ends within a time bounded by `api_timeout`.
        """
        self._check_place()
        table, group = self._place_of(member)
        if table.get(group) is not member:
            return
        del table[group]
        if self._state is not _State.RUNNING:
            return
        try:
            await self._unregister(member)
        finally:
            if self._is_idle():
                self._state = _State.IDLE
                await self._shut_down()

    # Heartbeats

    async def heartbeat(self, addresses: Iterable[str] | None = None) -> None:
        """Send heartbeats to these brokers, or to all that need them. Never raises; failures are logged."""
        if not (self.producers or self.consumers) or self._state is not _State.RUNNING:
            return
        if addresses is None:
            # Slaves are read from, but know nothing of producers.
            addresses = self.routes.addresses() if self.consumers else self.routes.masters()
        try:
            data = self._heartbeat_data()
        except Exception:  # a member's mistake; it must not end the client's task
            logger.exception("client %s cannot make its heartbeat", self.client_id)
            return
        await asyncio.gather(*(self._beat(address, data) for address in set(addresses)))

    def wake_heartbeat(self) -> None:
        """Schedule a heartbeat to all brokers, without waiting for it."""
        self.check_open()
        self._heartbeats.wake()

    def _heartbeat_data(self) -> HeartbeatData:
        producers = [producer.heartbeat_data() for producer in self.producers.values()]
        return HeartbeatData(
            client_id=self.client_id,
            consumer_data_set=[consumer.heartbeat_data() for consumer in self.consumers.values()],
            # Consumers send failed messages back under this name.
            producer_data_set=[*producers, ProducerData(INNER_PRODUCER_GROUP)],
        )

    async def _beat(self, address: str, data: HeartbeatData) -> None:
        self._beating.add(address)
        try:
            self.versions[address] = await self.calls.heartbeat(address, data, self.api_timeout)
        except PyroMQError as exc:
            logger.warning("heartbeat not delivered: %s", exc)
            return
        finally:
            self._beating.discard(address)
        self.routes.reached(address)
        if address in self._fresh:
            self._fresh.discard(address)
            self._wake_rebalances()

    def _wake_rebalances(self) -> None:
        for consumer in tuple(self.consumers.values()):
            consumer.wake_rebalance()

    # Events of connections (a remoting ConnectionListener)

    def connected(self, connection: Connection) -> None:
        """A newly connected broker does not know us: without a heartbeat it would refuse to serve.

        A heartbeat that opened the connection is already on its way.
        """
        address = connection.context
        self.routes.reached(address)
        if self._state is not _State.RUNNING or address not in self.routes.addresses():
            return
        self._fresh.add(address)
        if address not in self._beating:
            self.tasks.once(self.heartbeat([address]), f"greet {address}")

    def closed(self, connection: Connection, reason: CloseReason) -> None:
        self._fresh.discard(connection.context)
        if self._state is _State.RUNNING:
            self._masters.lost(connection.context)

    # Inside

    def _identify(self) -> None:
        self._generation = identity.fork_generation()
        instance = self._instance_name or identity.instance_name()
        ip = self._client_ip or identity.client_ip()
        self.client_id = identity.client_id(ip, instance, self.unit_name, self._stream)

    def _check_place(self) -> None:
        """Raise StateError if this client was started in another process or in another event loop."""
        if self._generation != identity.fork_generation():
            if self._state is not _State.RUNNING:
                # Made before the fork but not started: nothing is shared, but it needs its own id.
                self._identify()
                return
            raise StateError(f"client {self.client_id} belongs to the parent process; make a new one in this process")
        if self._state is _RUNNING and self._loop is not _running_loop():
            # It would hang or fail in odd ways: the events it waits for happen in the other loop, or never.
            raise StateError(f"client {self.client_id} belongs to the event loop it was started in")

    async def _open(self) -> None:
        """Start unless it runs. Everything is in place before the first await, so that no one sees it half started."""
        self._check_place()
        if self._state is _State.CLOSED:
            raise StateError(f"client {self.client_id} is closed")
        if self._state is _State.IDLE:
            self._loop = asyncio.get_running_loop()
            self._assemble()
            self._state = _State.RUNNING
            self._start_timers()
        if self._lookup is not None:
            await asyncio.wait((self._lookup,))

    def _assemble(self) -> None:
        self.tasks = Tasks(f"client {self.client_id}")
        self.replies = Replies()
        self.versions = {}
        self.remoting = RemotingClient(
            processors=ClientProcessor(self.producers, self.consumers, self.replies).table(),
            listener=self,
            hooks=self._rpc_hooks(),
            tls=_tls_config(self._tls),
            ssl_context=self._tls if isinstance(self._tls, ssl.SSLContext) else None,
        )
        self.name_servers = NameServers(self.remoting, self._configured_addresses)
        self.routes = Routes(
            self.name_servers,
            self.tasks,
            timeout=self.api_timeout,
            changed=self._route_changed,
            master_changed=self._master_changed,
        )
        self.calls = BrokerCalls(self.remoting, self.api_timeout, vip_channel=self._vip_channel)
        self._masters = MasterWatch(self.routes, self.tasks, self.remoting.open_connection, self.api_timeout)

    def _rpc_hooks(self) -> list[RemotingHook]:
        hooks: list[RemotingHook] = list(HookList(self.hooks).rpc_hooks())
        if self._stream:
            hooks.append(_StreamHook())
        if self._credentials is not None:
            # The last: it signs what the others added.
            given = self._credentials
            hooks.append(SigningHook(given.access_key, given.secret_key, given.security_token))
        return hooks

    def _start_timers(self) -> None:
        if self._address_server is not None:
            self._lookup = self.tasks.once(self._look_up_name_servers(), "first look-up of name servers")
            self.tasks.every(
                "look-up of name servers", _ADDRESS_SERVER_FIRST, _ADDRESS_SERVER_PERIOD, self._look_up_name_servers
            )
        RouteRefresh(self.routes, self.name_servers, self._topics, self.route_interval).start(self.tasks)
        self.tasks.every("silent masters", LOOK, LOOK, self._look_for_silent_masters)
        self._heartbeats = self.tasks.every(
            "heartbeat", _FIRST_HEARTBEAT, self.heartbeat_interval, self._scheduled_heartbeat
        )

    async def _shut_down(self) -> None:
        self._lookup = None
        self.replies.fail_all(StateError(f"client {self.client_id} was closed"))
        # Held here, since the client may be started again before this ends.
        tasks, remoting = self.tasks, self.remoting
        try:
            await tasks.close()
        finally:
            await remoting.close()

    async def _look_up_name_servers(self) -> None:
        assert self._address_server is not None
        try:
            addresses = await look_up(self._address_server)
        except (ConnectFailed, ValueError) as exc:
            logger.warning("cannot look up name servers: %s", exc)
            return
        if addresses:
            self.name_servers.update(addresses)

    def _topics(self) -> set[str]:
        return {topic for member in self._members() for topic in member.topics()}

    def _route_changed(self, topic: str) -> None:
        for member in self._members():
            if topic in member.topics():
                member.route_changed(topic)

    def _master_changed(self, last: str | None, address: str) -> None:
        """A new master does not know our producers, and must not ask others about their transactions."""
        self.tasks.once(self.heartbeat([address]), f"greet master {address}")
        if last is not None:
            self.tasks.once(self._leave_if_silent(last), f"see whether {last} still answers")

    async def _leave_if_silent(self, address: str) -> None:
        """Who waits for the answer of a master that was replaced because it is frozen need not wait any longer."""
        connection = self.remoting.open_connection(address)
        if connection is None or not connection.calls_under_way:
            return
        received = connection.received
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STILL_ANSWERS):
                await self.heartbeat([address])
        self.remoting.give_up_if_silent(connection, received, _STILL_ANSWERS)

    async def _look_for_silent_masters(self) -> None:
        if self.producers:
            await self._masters.look()

    async def _scheduled_heartbeat(self) -> None:
        self.routes.drop_offline()
        await self.heartbeat()

    async def _unregister(self, member: Member) -> None:
        """Unregister this member wherever it was registered. Never raises."""
        group = self.namespace.wrap(member.group)
        if isinstance(member, ConsumerMember):
            groups: dict[str, str] = {"consumer_group": group}
        elif isinstance(member, ProducerMember):
            groups = {"producer_group": group}
        else:
            return
        known = self.routes.addresses() & self.versions.keys()
        await asyncio.gather(*(self._unregister_at(address, groups) for address in known))

    async def _unregister_at(self, address: str, groups: dict[str, str]) -> None:
        try:
            await self.calls.unregister(address, self.client_id, **groups)  # type: ignore[arg-type]  # only names
        except PyroMQError as exc:
            # The broker notices anyway when the connection ends.
            logger.info("not unregistered: %s", exc)

    def _is_idle(self) -> bool:
        """Whether it runs without members. Check again after an await: members come, leave, or close the client."""
        return self._state is _State.RUNNING and not self._explicit and not self._members()

    def _members(self) -> list[Member]:
        return [*self.producers.values(), *self.consumers.values(), *self.admins.values()]

    def _place_of(self, member: Member) -> tuple[dict[str, Any], str]:
        group = self.namespace.wrap(member.group)
        if isinstance(member, ConsumerMember):
            return self.consumers, group
        if isinstance(member, ProducerMember):
            return self.producers, group
        return self.admins, group


class _StreamHook:
    """Marks every request as coming from a pull consumer."""

    def before_request(self, peer: str, request: Command) -> None:
        request.ext = {**(request.ext or {}), "ReqT": "0"}

    def after_response(self, peer: str, request: Command, response: Command | None) -> None:
        pass


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _tls_config(tls: ssl.SSLContext | TlsConfig | bool) -> TlsConfig | None:
    if isinstance(tls, TlsConfig):
        return dataclasses.replace(tls, client_enable=True)
    return TlsConfig(client_enable=True) if tls is True else None


def _kind(member: Member) -> str:
    if isinstance(member, ConsumerMember):
        return "consumer"
    return "producer" if isinstance(member, ProducerMember) else "admin"
