"""The three ports of a broker: for clients, for clients in a hurry (the VIP port), and for slaves.

listenPort        every request
listenPort - 2    the same without pulls; RocketMQ keeps it free of them so that sends never wait behind
listenPort + 1    replication (or haListenPort): slaves connect here; a slave itself sends everybody away
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from pyromq.errors import ConfigError, ServiceNotAvailable
from pyromq.protocol.codes import RequestCode
from pyromq.remoting import Admissions, RemotingServer, UnfinishedFrames, body_limits
from pyromq.remoting.addresses import VIP_PORT_OFFSET
from pyromq.remoting.certificates import server_files
from pyromq.remoting.listening import ListeningSocket

from .requests import RULES

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.remoting import BodyLimit, Connection, ConnectionListener, Processor, ServerConfig, TlsConfig
    from pyromq.remoting.certificates import Reloaded
    from pyromq.remoting.endpoint import FastRequests, Lateness
    from pyromq.remoting.latencies import RequestLatencies

HA_PORT_OFFSET = 1

# Only other brokers of a group ask these, and controllers.
_OF_PEERS = frozenset(
    (
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    )
)

# With a port of the system's choice the other two follow from it, and may be taken.
_ATTEMPTS = 50


class Ports:
    """Has all three while it is entered, and takes connections from `listen` on; until then they are refused.

    So their numbers are known before there is anything to `serve`. Leaving closes all connections. `message_limit`
    says how large a message may be.
    """

    def __init__(
        self,
        config: ServerConfig,
        ha_port: int,
        listener: ConnectionListener,
        tls: TlsConfig,
        message_limit: Callable[[], BodyLimit],
        *,
        count_unserved: Callable[[Connection, Command], None] | None = None,
        latencies: RequestLatencies | None = None,
    ) -> None:
        self._config = config
        self._body_limit = body_limits(
            RULES, max_list=config.max_request_body, max_frame=config.max_frame, message=message_limit
        )
        # One for both ports: what is bounded is what this process can bear.
        self._unfinished = UnfinishedFrames(max(config.max_unfinished, config.max_frame))
        self._admissions = Admissions(config)
        self._count_unserved = count_unserved
        self._latencies = latencies
        self._ha_port = ha_port
        self._listener = listener
        self._tls = tls
        self.certificates = server_files(tls)
        self._processors: dict[int, Processor] = {}
        self._vip_processors: dict[int, Processor] = {}
        self._servers: list[RemotingServer] = []
        self._ha: ListeningSocket | None = None
        self._slave_connected: Callable[[socket.socket], None] = _send_away
        self._open = AsyncExitStack()
        self._peers: WeakSet[Connection] = WeakSet()
        # Set while requests are served, and not held.
        self._held = asyncio.Event()
        self._held.set()

    async def __aenter__(self) -> Self:
        """ConfigError when a port is taken, or a certificate cannot be used."""
        self.certificates.load()
        attempts = 1 if self._config.listen_port else _ATTEMPTS
        for left in reversed(range(attempts)):
            try:
                self._bind()
                break
            except ConfigError:
                await self._open.aclose()
                if not left:
                    raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._open.aclose()

    def _bind(self) -> None:
        self._servers = [self._server(self._config.listen_port, self._processors)]
        if self.port > VIP_PORT_OFFSET:
            self._servers.append(self._server(self.port - VIP_PORT_OFFSET, self._vip_processors))
        ha_config = dataclasses.replace(self._config, listen_port=self._ha_port or self.port + HA_PORT_OFFSET)
        self._ha = ListeningSocket(ha_config, lambda sock, _: self._slave_connected(sock))
        self._open.callback(self._ha.close)

    def _server(self, port: int, processors: Mapping[int, Processor]) -> RemotingServer:
        config = dataclasses.replace(self._config, listen_port=port)
        server = RemotingServer(
            config,
            processors,
            listener=self._listener,
            tls=self._tls,
            body_limit=self._body_limit,
            unfinished=self._unfinished,
            certificates=self.certificates,
            admissions=self._admissions,
            count_unserved=self._count_unserved,
            latencies=self._latencies,
        )
        server.bind()
        self._open.push_async_callback(server.close)
        return server

    @property
    def port(self) -> int:
        """The port for clients, also when the system chose it."""
        return self._servers[0].port

    @property
    def ha_port(self) -> int:
        assert self._ha is not None, "nothing listens"
        return self._ha.address[1]

    @property
    def clients(self) -> frozenset[Connection]:
        """The connections of clients. Those of other brokers and of controllers stay until this broker is gone."""
        return frozenset().union(*(server.connections for server in self._servers)) - frozenset(self._peers)

    def serve(
        self,
        processors: Mapping[int, Processor],
        lateness: Lateness | None = None,
        fast: FastRequests | None = None,
    ) -> None:
        """Answer requests with these from now on, but for those that `lateness` refuses; first those that were held.

        `fast` answers those that it knows before any of the others is asked.
        """
        for server in self._servers:
            server.endpoint.lateness = lateness
            server.endpoint.fast = fast
        self._set(processors)
        self._held.set()

    @property
    def is_serving(self) -> bool:
        """Whether requests are answered, and not held."""
        return self._held.is_set()

    def hold(self) -> None:
        """Let requests wait, until `serve` says who answers them: the broker changes its role."""
        if self._held.is_set():
            self._held = asyncio.Event()
            for server in self._servers:
                server.endpoint.fast = None
            self._set(dict.fromkeys(RULES, self._wait))

    def _set(self, processors: Mapping[int, Processor]) -> None:
        processors = {**processors, **{code: self._by_peer(processors[code]) for code in _OF_PEERS & processors.keys()}}
        self._processors.clear()
        self._processors.update(processors)
        self._vip_processors.clear()
        self._vip_processors.update((code, each) for code, each in processors.items() if RULES[code].on_vip_port)

    def _by_peer(self, processor: Processor) -> Processor:
        def serve(connection: Connection, request: Command) -> Command | Awaitable[Command | None] | None:
            self._peers.add(connection)
            return processor(connection, request)

        return serve

    async def _wait(self, connection: Connection, request: Command) -> Command | None:
        await self._held.wait()
        processor = self._processors.get(request.code)
        if processor is None:
            raise ServiceNotAvailable("this broker changed its role and does not serve this request now")
        answer = processor(connection, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def serve_slaves(self, connected: Callable[[socket.socket], None] | None) -> None:
        """Hand connections to the port of replication to `connected` from now on; without it they are closed."""
        self._slave_connected = connected or _send_away

    def listen(self) -> None:
        """Take connections from now on. ConfigError if somebody else does so on one of the ports by now."""
        for server in self._servers:
            server.listen()
        assert self._ha is not None, "no port is bound"
        self._ha.listen()
        following = asyncio.create_task(self.certificates.follow(), name="follow certificates")
        self._open.push_async_callback(_ended, following)

    def reload_tls(self, done: Reloaded) -> None:
        """Read the certificate again, in a thread, for connections to come. If it cannot be used, the old one stays."""
        self.certificates.load_soon(done)

    def stop_listening(self) -> None:
        """Take no new connections; those that are there go on."""
        for server in self._servers:
            server.stop_listening()
        if self._ha is not None:
            self._ha.close()

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The requests that are being served, and answered later."""
        return [task for server in self._servers for task in server.endpoint.tasks]

    @property
    def connections(self) -> int:
        """How many connections are open on the ports for clients."""
        return sum(len(server.endpoint.connections) for server in self._servers)

    async def finish(self, timeout: float) -> None:
        """Wait for the requests that are being served."""
        running = self.running
        if running:
            await asyncio.wait(running, timeout=timeout)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _send_away(sock: socket.socket) -> None:
    sock.close()
