"""The broker: opens the store, listens, registers, and shuts down in an order that loses no message."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from typing import TYPE_CHECKING, Any, TypeVar

from pyromq.errors import ConfigError, LocalProtocolError, StoreError
from pyromq.metrics.broker_metrics import RECOVERY
from pyromq.metrics.config import ExporterType, MetricsConfig
from pyromq.metrics.health import Check, Startup
from pyromq.metrics.model import Sample
from pyromq.protocol.ids import encode_host
from pyromq.remoting import ClientConfig, RemotingClient, TlsConfig, join_address, split_address
from pyromq.remoting.latencies import RequestLatencies
from pyromq.remoting.log_levels import LogConfig, apply_log_levels
from pyromq.remoting.service import Service
from pyromq.settings.files import why_not_writable
from pyromq.store import MessageStore

from .assembly import Parts, access_control
from .config import BrokerConfig, BrokerServerConfig, LiveConfig, cautions, check_settings, store_config
from .failover.config import FailoverConfig
from .failover.member import Member
from .ports import Ports
from .readiness import readiness
from .replication.config import ReplicationConfig
from .replication.protection import LineProtection
from .send import message_limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from pyromq.remoting import CloseReason, Connection
    from pyromq.settings import Settings
    from pyromq.store.disk import Disk

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds to tell the name servers that the broker is leaving, before it answers held pulls.
_HEARD = 0.5
# Seconds between two looks whether the last client has gone.
_LOOK = 1.0
# Seconds for a master that stops to become a slave of another.
_HAND_OVER = 3.0
# Seconds for requests in progress to finish when the broker stops.
_FINISH = 3.0


class Broker(Service):
    """A broker, to run or to embed.

        async with Broker(load_settings(sets=["listenPort=0", "storePathRootDir=data"])) as broker:
            print(broker.address)

    Only one broker can use a store folder; a second one is refused.
    """

    def __init__(self, settings: Settings, *, disk: Disk | None = None) -> None:
        """ConfigError for settings that cannot work. `disk` lets tests replace the disk of the store."""
        check_settings(settings)
        self._live = LiveConfig(settings)
        self._disk = disk
        self._ports: Ports | None = None
        self._parts: Parts | None = None
        self._access = access_control(settings)
        self._connection_closed = asyncio.Event()
        self._store: MessageStore | None = None
        self._is_listening = self._is_leaving = False
        metrics = settings[MetricsConfig].exporter
        self._latencies = None if metrics is ExporterType.DISABLE else RequestLatencies()

    @property
    def config(self) -> BrokerConfig:
        """The broker's current settings."""
        return self._live.config

    @property
    def settings(self) -> Settings:
        """All current settings."""
        return self._live.settings

    @property
    def port(self) -> int:
        """The port for clients, even if the system chose it."""
        assert self._ports is not None, "the broker is not running"
        return self._ports.port

    @property
    def address(self) -> str:
        """The address that clients are told."""
        return join_address(self._live.config.broker_ip1, self.port)

    @property
    def listens_on(self) -> str:
        """The address it listens on; `0.0.0.0` means all addresses of this machine."""
        return join_address(self._live.settings[BrokerServerConfig].bind_address, self.port)

    def reload(self) -> None:
        """Read certificates, log levels and accounts again. If one is unusable, log that and keep the old one."""
        self._access.reload()
        try:
            self._live.reload_log_levels()
        except ConfigError as exc:
            _reloaded(exc)
            return
        if self._ports is None:
            _reloaded(None)
        else:
            self._ports.reload_tls(_reloaded)

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        """Serve until cancelled; every task starts and ends here. Calls `listening` once registered.

        ConfigError when a port is taken, StoreError when the store cannot be opened, or in the end if its disk failed.
        """
        settings = self._live.settings
        config = settings[BrokerConfig]
        tls = settings[TlsConfig]
        apply_log_levels(settings[LogConfig])
        ip = await _resolved(config.broker_ip1)
        store = self._store = MessageStore(store_config(settings), disk=self._disk)
        self._is_listening = self._is_leaving = False
        problem = why_not_writable(store.root)
        if problem is not None:
            raise StoreError(f"storePathRootDir {store.root} is not writable: {problem}")
        try:
            async with contextlib.AsyncExitStack() as life:
                await _in_thread(store.open, store.close)
                life.callback(store.close)
                life.push_async_callback(self._save_state)
                await _in_thread(self._access.load)
                await life.enter_async_context(self._access.followed())
                client = await life.enter_async_context(
                    RemotingClient(settings[ClientConfig], tls=tls, hooks=self._access.hooks)
                )
                ports = Ports(
                    settings[BrokerServerConfig],
                    config.ha_listen_port,
                    self,
                    tls,
                    lambda: message_limit(store.config.max_message_size),
                    count_unserved=self._access.guard.count_unserved,
                    latencies=self._latencies,
                )
                self._ports = await life.enter_async_context(ports)
                self._access.guard_changed = self._guard_changed
                protection = LineProtection(lambda: self._live.settings[ReplicationConfig], tls, ports.certificates)
                may_lead = settings[FailoverConfig].enabled or not config.is_slave
                await asyncio.to_thread(protection.load, may_lead=may_lead)

                def assembled(member: Member | None) -> Parts:
                    return Parts(
                        self._live,
                        store,
                        client,
                        _now,
                        _monotonic,
                        address=self.address,
                        ha_address=join_address(config.broker_ip2, ports.ha_port),
                        store_host=encode_host(ip, ports.port),
                        access=self._access,
                        protection=protection,
                        member=member,
                        earlier=self._parts,
                        latencies=self._latencies,
                    )

                if settings[FailoverConfig].enabled:
                    member = Member(self._live, store, client, address=self.address)
                    await self._serve_in_group(assembled, member, ports, listening)
                else:
                    await self._begin(assembled(None), ports)
                    await self._serve(self._begun, ports, listening)
        except asyncio.CancelledError:
            if store.flusher.error is not None:
                # The broker was stopped and served reads until then, but this is not a clean exit.
                raise StoreError(f"a flush of {store.root} failed: {store.flusher.error}") from store.flusher.error
            raise

    @property
    def _begun(self) -> Parts:
        assert self._parts is not None, "the broker is not running"
        return self._parts

    async def _begin(self, parts: Parts, ports: Ports) -> None:
        """Let `parts` serve, which continue what earlier ones left."""
        await _in_thread(parts.load)
        parts.rediscover()
        is_first = self._parts is None
        parts.metrics.running, parts.metrics.connections = lambda: ports.running, lambda: ports.connections
        self._parts = parts
        ports.serve_slaves(parts.replication.slave_connected)
        self._serve_requests(ports)
        if is_first:
            # Not before everything is ready: a failed start must never have taken a connection.
            ports.listen()
            self._say_where(ports)

    def _serve_requests(self, ports: Ports) -> None:
        parts = self._begun
        guard = self._access.guard
        # Whoever counts requests has to see each of them.
        fast = None if guard.counts else parts.fast
        ports.serve(guard.over(parts.processors), parts.fast_failure, fast)

    def _guard_changed(self) -> None:
        if self._ports is not None and self._ports.is_serving:
            self._serve_requests(self._ports)

    async def _serve_in_group(
        self,
        assembled: Callable[[Member | None], Parts],
        member: Member,
        ports: Ports,
        listening: Callable[[], None] | None,
    ) -> None:
        """Serve in whichever role the controllers give this broker, one after the other."""

        async def paused(work: Callable[[], T]) -> T:
            ports.hold()
            try:
                return await _finished(work)
            finally:
                self._serve_requests(ports)

        member.paused = paused
        await _in_thread(member.load)
        async with asyncio.TaskGroup() as tasks:
            keeping: asyncio.Task[None] | None = None
            is_stopping = False
            try:
                while True:
                    over = member.begin_role()
                    await _in_thread(member.prepare)
                    await self._begin(assembled(member), ports)
                    if keeping is None:
                        keeping = tasks.create_task(member.run(), name="keep a role")
                    if is_stopping:
                        # It leaves as a slave, which passes on what clients still send it.
                        _this_task().cancel()
                    may_hand_over = member.is_master and not is_stopping
                    is_stopping |= await self._serve(
                        self._begun, ports, listening, over, member.hand_over if may_hand_over else None
                    )
                    listening = None
                    self._begun.stop_waiting()  # whatever was on its way when the role ended
                    await self._begun.close()
            finally:
                if keeping is not None:
                    keeping.cancel()

    async def _serve(
        self,
        parts: Parts,
        ports: Ports,
        listening: Callable[[], None] | None,
        over: asyncio.Event | None = None,
        hand_over: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Serve until cancelled, and then leave in order; or until the time of these parts is `over`.

        If somebody else takes over when it is cancelled, its time is over, too, and this returns True.
        """
        over = over or asyncio.Event()
        is_stopping = False
        async with asyncio.TaskGroup() as tasks:
            services = [tasks.create_task(service, name=name) for name, service in parts.services()]
            registering: asyncio.Task[None] | None = None
            try:
                if parts.is_registered:
                    await _unless(over, parts.registration.start())
                    registering = tasks.create_task(parts.registration.run(), name="register")
                self._is_listening = True
                if listening is not None:
                    listening()
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    if hand_over is None or not await _despite_cancellation(hand_over(), _HAND_OVER):
                        raise
                    is_stopping = True
            finally:
                if over.is_set():
                    # Before the held pulls are answered: who pulls again must wait for the next role. These parts
                    # would hold that pull, too, and nobody would ever answer it.
                    ports.hold()
                    parts.depose()
                    tasks_to_end = [*services, *filter(None, [registering])]
                else:
                    # The services run until the last client has gone, unless one of them failed.
                    drain = 0 if any(task.done() for task in services) else self._live.config.drain_seconds
                    # In its own task: this one is being cancelled, and timeouts do not work in a cancelled task.
                    await asyncio.create_task(self._leave(parts, ports, registering, drain), name="leave")
                    tasks_to_end = services
                for task in tasks_to_end:
                    task.cancel()
        return is_stopping

    async def _leave(self, parts: Parts, ports: Ports, registering: asyncio.Task[None] | None, drain: float) -> None:
        """Tell the name servers, serve clients that have not noticed, then refuse new and finish open requests."""
        self._is_leaving = True
        if registering is not None:
            registering.cancel()
            await asyncio.wait([registering])
        leaving = asyncio.create_task(parts.registration.unregister(), name="unregister")
        # Held pulls are answered once no route leads here any more; but a slow name server must not delay them.
        await asyncio.wait([leaving], timeout=_HEARD)
        parts.stop_waiting()
        await leaving
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain):
                while ports.clients:
                    self._connection_closed.clear()
                    # Who is a client may also show by what it asks.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK):
                            await self._connection_closed.wait()
        ports.stop_listening()
        await asyncio.gather(parts.finish(_FINISH), ports.finish(_FINISH))

    async def _save_state(self) -> None:
        if self._parts is not None:
            await self._parts.close()

    def _say_where(self, ports: Ports) -> None:
        config = self._live.config
        logger.info("listening on %s; clients are told %s", self.listens_on, self.address)
        for caution in cautions(self._live.settings):
            logger.warning("%s", caution)
        far = [address for address in config.name_servers if _is_public(split_address(address)[0])]
        if far and _is_private(config.broker_ip1):
            logger.warning(
                "name server %s is public, but clients are told the private address %s; set brokerIP1 to change it",
                far[0],
                self.address,
            )

    # What monitoring asks (`pyromq.metrics.Monitored`)

    kind = "broker"

    def metric_labels(self) -> dict[str, str]:
        config = self._live.config
        return {"cluster": config.cluster_name, "node_type": "broker", "node_id": config.broker_name}

    def startup(self) -> Startup:
        """Recovery takes long after a crash; everything after it does not."""
        if self._is_listening:
            return Startup(done=True, percent=100)
        percent = 0 if self._store is None else self._store.recovered_percent
        return Startup(
            done=False, percent=percent, detail="recovering the store" if percent < 100 else "loading and registering"
        )

    def checks(self) -> list[Check]:
        """Whether clients should send requests here."""
        return readiness(
            self._live.config,
            self.startup(),
            None if self._parts is None else self._parts.registration,
            self._store,
            self._role(),
            is_leaving=self._is_leaving,
        )

    def _role(self) -> str | None:
        """Why a broker that gets its role from controllers serves nobody; None if it does, or needs none."""
        if self._parts is None or self._parts.is_registered:
            return None
        return "the controllers have not given it a role yet"

    async def refresh(self) -> None:
        if self._parts is not None and self._is_listening:
            await self._parts.metrics.refresh()

    def samples(self) -> Iterator[Sample | None]:
        yield Sample(RECOVERY, (), 0.0 if self._store is None else self._store.recovered_percent / 100)
        if self._parts is not None and self._is_listening:
            yield from self._parts.metrics.samples()

    # Events of connections

    def connected(self, connection: Connection) -> None:
        """A connection means nothing until a client speaks."""

    def closed(self, connection: Connection, reason: CloseReason) -> None:
        if self._parts is not None:
            self._parts.tables.clients.closed(connection)
        self._connection_closed.set()


def _reloaded(error: ConfigError | None) -> None:
    if error is None:
        logger.info("certificates and log levels reloaded")
    else:
        logger.error("reload failed: %s", error)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _despite_cancellation(work: Awaitable[bool], timeout: float) -> bool:
    """Do `work` in a task that has just been cancelled, and take that back if it succeeds."""
    task = _this_task()
    # Time limits do not work in a cancelled task.
    task.uncancel()
    done = False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            done = await work
    if not done:
        task.cancel()
    return done


async def _unless(over: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Do `work`, or leave it when something is over."""
    waiting = asyncio.create_task(over.wait())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait([waiting, working], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        working.cancel()
        await asyncio.gather(waiting, working, return_exceptions=True)


async def _finished(work: Callable[[], T]) -> T:
    """Do `work` in a thread; if this is cancelled, it ends when that has ended."""
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def _in_thread(work: Callable[[], None], undo: Callable[[], None] | None = None) -> None:
    """Recovery may take a while, and the loop may also serve others, such as a name server."""
    working = asyncio.create_task(asyncio.to_thread(work), name="start")
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        # The thread cannot be interrupted.
        await asyncio.wait([working])
        if working.exception() is None and undo is not None:
            undo()
        raise


async def _resolved(host: str) -> str:
    """The IP address of `host`: message ids have no room for a name."""
    with contextlib.suppress(LocalProtocolError):
        encode_host(host, 0)
        return host
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
    except OSError as exc:
        raise ConfigError(f"brokerIP1 {host} is not an address and cannot be resolved: {exc.strerror or exc}") from exc
    return str(found[0][4][0])


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def _is_private(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _now() -> int:
    return time.time_ns() // 1_000_000


def _monotonic() -> int:
    return time.monotonic_ns() // 1_000_000
