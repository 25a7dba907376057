"""The broker: opens the store, listens, registers, and in the end leaves in an order that costs nobody a message."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, LocalProtocolError, StoreError
from pyromq.protocol.ids import encode_host
from pyromq.remoting import ClientConfig, RemotingClient, TlsConfig, join_address, split_address
from pyromq.remoting.log_levels import LogConfig, apply_log_levels
from pyromq.remoting.service import Service
from pyromq.settings.files import why_not_writable
from pyromq.store import MessageStore
from pyromq.store.config import StoreConfig

from .assembly import Parts
from .config import BrokerConfig, BrokerServerConfig, LiveConfig, cautions, check_settings
from .ports import Ports
from .send import message_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.remoting import CloseReason, Connection
    from pyromq.settings import Settings
    from pyromq.store.disk import Disk

logger = logging.getLogger(__name__)

# Seconds that name servers get to hear that the broker leaves, before it answers those who wait for messages.
_HEARD = 0.5
# Seconds that requests under way get to finish when the broker stops.
_FINISH = 3.0


class Broker(Service):
    """A broker, to be run or to be embedded.

        async with Broker(load_settings(sets=["listenPort=0", "storePathRootDir=data"])) as broker:
            print(broker.address)

    It must be run in the folder of its store alone; a second one is refused.
    """

    def __init__(self, settings: Settings, *, disk: Disk | None = None) -> None:
        """ConfigError for settings that no broker can have. `disk` is what its store is kept on, for tests."""
        check_settings(settings)
        self._live = LiveConfig(settings)
        self._disk = disk
        self._ports: Ports | None = None
        self._parts: Parts | None = None
        self._connection_closed = asyncio.Event()

    @property
    def config(self) -> BrokerConfig:
        """The broker's own settings, as they are now."""
        return self._live.config

    @property
    def port(self) -> int:
        """The port for clients, also when the system chose it."""
        assert self._ports is not None, "the broker does not run"
        return self._ports.port

    @property
    def address(self) -> str:
        """The address that clients are told."""
        return join_address(self._live.config.broker_ip1, self.port)

    @property
    def listens_on(self) -> str:
        """The address that it listens on; `0.0.0.0` stands for all that this machine has."""
        return join_address(self._live.settings[BrokerServerConfig].bind_address, self.port)

    def reload(self) -> None:
        """Read certificates and log levels again. What cannot be used is said, and stays as it was."""
        try:
            self._live.reload_log_levels()
            if self._ports is not None:
                self._ports.reload_tls()
        except ConfigError as exc:
            logger.error("not reloaded: %s", exc)
        else:
            logger.info("certificates and log levels reloaded")

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        """Serve until cancelled; every task starts and ends in here. Calls `listening` once it is registered.

        ConfigError when a port is taken, StoreError when the store cannot be opened, or in the end if its disk failed.
        """
        settings = self._live.settings
        config = settings[BrokerConfig]
        tls = settings[TlsConfig]
        apply_log_levels(settings[LogConfig])
        ip = await _resolved(config.broker_ip1)
        store = MessageStore(settings[StoreConfig], disk=self._disk)
        problem = why_not_writable(store.root)
        if problem is not None:
            raise StoreError(f"storePathRootDir {store.root} cannot be written: {problem}")
        try:
            async with contextlib.AsyncExitStack() as life:
                await _in_thread(store.open, store.close)
                life.callback(store.close)
                life.push_async_callback(self._save_state)
                client = await life.enter_async_context(RemotingClient(settings[ClientConfig], tls=tls))
                ports = Ports(
                    settings[BrokerServerConfig],
                    config.ha_listen_port,
                    self,
                    tls,
                    lambda: message_limit(store.config.max_message_size),
                )
                self._ports = await life.enter_async_context(ports)
                parts = Parts(
                    self._live,
                    store,
                    client,
                    _now,
                    _monotonic,
                    address=self.address,
                    ha_address=join_address(config.broker_ip2, ports.ha_port),
                    store_host=encode_host(ip, ports.port),
                )
                await _in_thread(parts.load)
                parts.rediscover()
                self._parts = parts
                ports.serve(parts.processors, parts.fast_failure)
                # Not before all of it is there: a start that fails has never taken a connection.
                ports.listen()
                self._say_where(ports)
                await self._serve(parts, ports, listening)
        except asyncio.CancelledError:
            if store.flusher.error is not None:
                # It was stopped, and went on reading until then; but nobody may take this for a clean end.
                raise StoreError(f"a flush of {store.root} failed: {store.flusher.error}") from store.flusher.error
            raise

    async def _serve(self, parts: Parts, ports: Ports, listening: Callable[[], None] | None) -> None:
        async with asyncio.TaskGroup() as tasks:
            services = [tasks.create_task(service, name=name) for name, service in parts.services()]
            registering: asyncio.Task[None] | None = None
            try:
                await parts.registration.start()
                registering = tasks.create_task(parts.registration.run(), name="register")
                if listening is not None:
                    listening()
                await asyncio.Event().wait()
            finally:
                # The services go on until the last client is gone. When one of them failed there is no such luxury.
                drain = 0 if any(task.done() for task in services) else self._live.config.drain_seconds
                # In a task of its own, since this one is being cancelled, and time limits do not work in such a task.
                await asyncio.create_task(self._leave(parts, ports, registering, drain), name="leave")
                for service in services:
                    service.cancel()

    async def _leave(self, parts: Parts, ports: Ports, registering: asyncio.Task[None] | None, drain: float) -> None:
        """Tell the name servers, serve those who have not heard it yet, take nothing new, finish what is under way."""
        if registering is not None:
            registering.cancel()
            await asyncio.wait([registering])
        leaving = asyncio.create_task(parts.registration.unregister(), name="unregister")
        # Those who wait are answered when nobody is led here any more; but no name server may keep them waiting.
        await asyncio.wait([leaving], timeout=_HEARD)
        parts.stop_waiting()
        await leaving
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain):
                while ports.connections:
                    self._connection_closed.clear()
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
                "name server %s is public, and clients are told the private address %s; brokerIP1 sets another",
                far[0],
                self.address,
            )

    # What connections tell

    def connected(self, connection: Connection) -> None:
        """A connection means nothing until a client speaks."""

    def closed(self, connection: Connection, reason: CloseReason) -> None:
        if self._parts is not None:
            self._parts.tables.clients.closed(connection)
        self._connection_closed.set()


async def _in_thread(work: Callable[[], None], undo: Callable[[], None] | None = None) -> None:
    """Recovery and the like may take a while, and others, a name server say, live on this loop."""
    working = asyncio.create_task(asyncio.to_thread(work), name="start")
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        # It cannot be interrupted.
        await asyncio.wait([working])
        if working.exception() is None and undo is not None:
            undo()
        raise


async def _resolved(host: str) -> str:
    """The IP address of `host`, for message ids: they have no room for a name."""
    with contextlib.suppress(LocalProtocolError):
        encode_host(host, 0)
        return host
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
    except OSError as exc:
        raise ConfigError(f"brokerIP1 {host} is no address and cannot be resolved: {exc.strerror or exc}") from exc
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
