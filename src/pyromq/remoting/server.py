"""A server: accepts connections and lets `Connection` do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING, Self

from pyromq.errors import PyroMQError

from .addresses import format_address, origin_of_host
from .admissions import Admissions
from .certificates import FollowedFiles, server_files
from .connection import Connection
from .endpoint import ConnectionListener, Endpoint, Hook, Processor
from .folded_log import FoldedLog
from .listening import ListeningSocket, first_byte
from .tls import HANDSHAKE, TlsConfig, TlsMode, server_context
from .unfinished_frames import UnfinishedFrames

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from pyromq.protocol.command import Command

    from .certificates import Reloaded
    from .config import ServerConfig
    from .latencies import RequestLatencies
    from .listening import Address
    from .request_rules import BodyLimit

logger = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT = 10.0


class RemotingServer:
    """Serves `processors` on one port, in plain text, TLS or both, as `tls` says.

        async with RemotingServer(ServerConfig(listen_port=0), {105: route}) as server:
            print(server.port)

    Entering listens; leaving stops listening, closes the connections and waits for everything still running. `bind`,
    `listen` and `close` do the same step by step, if you need the port before there is anything to serve.
    """

    def __init__(
        self,
        config: ServerConfig,
        processors: Mapping[int, Processor],
        *,
        default: Processor | None = None,
        listener: ConnectionListener | None = None,
        hooks: Sequence[Hook] = (),
        tls: TlsConfig | None = None,
        body_limit: Callable[[int], BodyLimit] | None = None,
        unfinished: UnfinishedFrames | None = None,
        certificates: FollowedFiles | None = None,
        admissions: Admissions | None = None,
        count_unserved: Callable[[Connection, Command], None] | None = None,
        latencies: RequestLatencies | None = None,
    ) -> None:
        """`unfinished`, `certificates` and `admissions` are given by those who have several ports, for all of them.

        `count_unserved` hears of requests that no processor gets, and raises a BrokerError for one too many;
        `latencies` counts how long the others took.
        """
        self._config = config
        self._open = admissions or Admissions(config)
        self._tls = tls or TlsConfig()
        self._has_own_files = certificates is None
        self._files = certificates or server_files(self._tls)
        self._self_signed: ssl.SSLContext | None = None
        self._following: asyncio.Task[None] | None = None
        self._making_context: asyncio.Task[ssl.SSLContext | None] | None = None
        self._listening: ListeningSocket | None = None
        self._admissions: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Task[None] | None = None
        self._faults = FoldedLog()
        high = config.high_water or 1 << 20
        self.endpoint = Endpoint(
            processors=processors,
            default=default,
            hooks=hooks,
            listener=listener,
            async_permits=config.async_permits,
            oneway_permits=config.oneway_permits,
            high_water=high,
            low_water=min(config.low_water or high // 4, high),
            max_unsent=config.max_unsent,
            max_frame=config.max_frame,
            max_header=config.max_request_header,
            max_running_requests=config.max_running_requests,
            body_limit=body_limit,
            count_unserved=count_unserved,
            faults=self._faults,
            latencies=latencies,
            unfinished=unfinished or UnfinishedFrames(max(config.max_unfinished, config.max_frame)),
            follow_peer=True,
            holds_requests=True,
        )

    @property
    def port(self) -> int:
        """The port it is bound to, even if the system chose it."""
        assert self._listening is not None, "the server is not running"
        return self._listening.address[1]

    @property
    def address(self) -> str:
        assert self._listening is not None, "the server is not running"
        return format_address(self._listening.address)

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self.endpoint.connections)

    async def __aenter__(self) -> Self:
        self.bind()
        try:
            self.listen()
        except BaseException:
            self.stop_listening()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def bind(self) -> None:
        """Bind the port; connections are refused until `listen`. ConfigError if it is taken."""
        if self._has_own_files:
            self._files.load()  # here, so that a bad certificate stops the start
        self._listening = ListeningSocket(self._config, self._accepted)

    def listen(self) -> None:
        """Start accepting connections. ConfigError if another process listens on this port."""
        assert self._listening is not None, "the server is not bound to a port"
        self._listening.listen()
        self._idle = asyncio.create_task(self.endpoint.close_idle(self._config.max_idle_seconds), name="close idle")
        if self._has_own_files:
            self._following = asyncio.create_task(self._files.follow(), name="follow certificates")

    def stop_listening(self) -> None:
        """Stop accepting connections; existing ones continue."""
        if self._listening is not None:
            self._listening.close()

    def reload_tls(self, done: Reloaded) -> None:
        """Reload the certificate for new connections, in a thread. If it is unusable, the old one stays."""
        self._files.load_soon(done)

    async def close(self) -> None:
        """Stop listening, close the connections, wait for everything still running."""
        self.stop_listening()
        # Let tasks of connections accepted in this turn start, so that they close their sockets.
        await asyncio.sleep(0)
        tasks = [
            task for task in (self._idle, self._following, self._making_context, *self._admissions) if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.endpoint.close()

    def _accepted(self, sock: socket.socket, address: Address) -> None:
        host = origin_of_host(address[0])
        if not self._open.admits(host):
            sock.close()
            return
        task = asyncio.create_task(self._admit(sock, host, format_address(address)), name="admit")
        self._admissions.add(task)
        task.add_done_callback(self._admissions.discard)

    async def _admit(self, sock: socket.socket, host: str, peer: str) -> None:
        """Make a connection from `sock`, once its first byte tells TLS from plain text."""
        connection: Connection | None = None
        misbehaved = False
        try:
            with contextlib.ExitStack() as unless_welcome:
                unless_welcome.callback(sock.close)
                context = await self._welcome(sock)
                unless_welcome.pop_all()
            # From here on the transport owns the socket and closes it in any case.
            connection = await self._connect(sock, context)
        except _Refused as exc:
            misbehaved = True
            self._log(logging.WARNING, host, f"{peer}: speaks {exc}, which is refused here; closing")
        except (OSError, TimeoutError, PyroMQError) as exc:
            # A peer that left, sent nothing, or failed its handshake: an everyday event on a public port.
            misbehaved = isinstance(exc, ssl.SSLError)
            self._log(logging.INFO, host, f"{peer}: not admitted: {str(exc) or type(exc).__name__}")
        finally:
            if connection is None:
                self._open.left(host, misbehaved=misbehaved)
            else:
                connection.lost.add_done_callback(lambda _: self._open.left(host, misbehaved=connection.misbehaved))

    def _log(self, level: int, host: str, line: str) -> None:
        again = self._faults.due((host, level))
        if again is not None:
            logger.log(level, "%s%s", line, again)

    async def _welcome(self, sock: socket.socket) -> ssl.SSLContext | None:
        """The context for a TLS connection, None for plain text. Raises if that kind is refused."""
        if self._tls.mode is TlsMode.DISABLED:
            return None
        async with asyncio.timeout(self._config.max_idle_seconds):
            first = await first_byte(sock)
        if first != HANDSHAKE:
            if self._tls.mode is TlsMode.ENFORCING:
                raise _Refused("plain text")
            return None
        context = await self._server_context()
        if context is None:
            raise _Refused("TLS")
        return context

    async def _connect(self, sock: socket.socket, context: ssl.SSLContext | None) -> Connection:
        connection = Connection(self.endpoint)
        patience = min(_HANDSHAKE_TIMEOUT, self._config.max_idle_seconds)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, sock, ssl=context, ssl_handshake_timeout=None if context is None else patience
            )
        except BaseException:
            connection.abandon()
            raise
        return connection

    async def _server_context(self) -> ssl.SSLContext | None:
        if self._files.context is not None:
            return self._files.context
        if self._self_signed is None:
            # Make a self-signed certificate once, when the first client needs it; off the loop, since it takes
            # a while.
            if self._making_context is None:
                making = asyncio.to_thread(server_context, self._tls)
                self._making_context = asyncio.create_task(making, name="TLS context")
            self._self_signed = await asyncio.shield(self._making_context)
        return self._self_signed


class _Refused(Exception):
    """The peer speaks TLS or plain text, and this server refuses it."""
