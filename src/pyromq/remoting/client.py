"""A client: one connection per address, opened when needed and reopened after a loss."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Self

from pyromq.errors import ConnectFailed, LocalProtocolError, RequestTimeout
from pyromq.protocol.codes import ResponseCode

from .addresses import split_address
from .certificates import LOOK, client_files
from .config import ClientConfig
from .connection import Connection
from .endpoint import ConnectionListener, Endpoint, Hook, Processor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyromq.protocol.command import Command

    from .tls import TlsConfig

logger = logging.getLogger(__name__)


class RemotingClient:
    """Sends requests to addresses (`host:port`) and serves the peers' requests over the same connections.

        async with RemotingClient() as client:
            reply = await client.invoke("127.0.0.1:9876", Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))

    Any number of tasks of one event loop may use it at once.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        processors: Mapping[int, Processor] | None = None,
        *,
        default: Processor | None = None,
        listener: ConnectionListener | None = None,
        hooks: Sequence[Hook] = (),
        tls: TlsConfig | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`ssl_context` replaces `tls`, if you already have a context. ConfigError for certificates that are unusable.

        The files that `tls` names are read again when they change.
        """
        self._config = config = config or ClientConfig()
        self._context = ssl_context
        self._files = None
        if ssl_context is None and tls is not None and tls.client_enable:
            self._files = client_files(tls)
            self._files.load()
        self._renewing: asyncio.Task[None] | None = None
        self._looked_at = time.monotonic()
        self._connecting: dict[str, _Attempt] = {}
        self._connections: dict[str, Connection] = {}
        self._attempts: set[asyncio.Task[Connection]] = set()
        self._idle: asyncio.Task[None] | None = None
        self._closed = False
        self.endpoint = Endpoint(
            processors=processors or {},
            default=default,
            hooks=hooks,
            listener=listener,
            async_permits=config.async_permits,
            oneway_permits=config.oneway_permits,
            high_water=config.high_water,
            low_water=config.high_water // 4,
            max_frame=config.max_frame,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def invoke(self, address: str, command: Command, timeout: float = 3.0) -> Command:
        """Send a request and wait for its reply, whatever its code; `timeout` covers connecting too.

        Raises ConnectFailed if nothing was sent, ConnectionLost or RequestTimeout if it may have been.

        A 5.x server that is shutting down answers GO_AWAY (1500): the request is then sent once more, on a new
        connection (docs/spec/remoting.md 7.5). A second GO_AWAY is returned like any other reply.
        """
        deadline = time.monotonic() + timeout
        connection = self.open_connection(address)
        if connection is None:
            connection = await self.connection(address, timeout)
        try:
            response = await self._invoke_on(connection, command, deadline)
            if response.code == ResponseCode.GO_AWAY:
                self.leave(address, connection)
                connection = await self.connection(address, deadline - time.monotonic())
                response = await self._invoke_on(connection, command, deadline)
        except RequestTimeout as exc:
            raise RequestTimeout(exc.peer, exc.request_code, timeout) from None
        return response

    async def oneway(self, address: str, command: Command, timeout: float = 3.0) -> None:
        """Send a one-way request; `timeout` covers connecting too. An error means it was not sent."""
        deadline = time.monotonic() + timeout
        connection = await self.connection(address, timeout)
        await connection.oneway(command, deadline - time.monotonic())

    async def connection(self, address: str, timeout: float | None = None) -> Connection:
        """The connection to `address`; several callers share one attempt. Raises ConnectFailed.

        They get it in the order they came, so that their writes keep that order.
        """
        attempt = self._connecting.get(address)
        if attempt is None:
            connection = self.open_connection(address)
            if connection is not None:
                return connection
            if self._closed:
                raise ConnectFailed(address, "this client is closed")
            attempt = self._connecting[address] = self._attempt(address)
        attempt.waiting += 1
        task = attempt.task
        try:
            await asyncio.wait((task,), timeout=timeout)
        finally:
            attempt.waiting -= 1
            ended = task.done()
            if not attempt.waiting:
                # The last one to leave cancels an attempt that no one needs any more.
                task.cancel()
                if self._connecting.get(address) is attempt:
                    del self._connecting[address]
        if not ended:
            raise ConnectFailed(address, f"no connection within {timeout:.3g} s")
        if task.cancelled():
            raise ConnectFailed(address, "this client is closed")
        return task.result()

    def open_connection(self, address: str) -> Connection | None:
        """The connection to `address` if one is open and no one waits for it; for callers that can do without."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed or address in self._connecting else connection

    def give_up_if_silent(self, connection: Connection, received: int, seconds: float) -> None:
        """A request got no answer for `seconds`; `received` is what the connection had read when it was sent.

        If nothing came since, the peer may be gone: close, so that the next request finds out on a new connection
        instead of waiting here again. A busy connection is left alone.
        """
        if connection.received == received and not connection.closed:
            logger.warning("%s: silent for %.3g s; closing", connection.peer, seconds)
            connection.abort()

    def leave(self, address: str, connection: Connection) -> None:
        """Stop using `connection`, whose peer said GO_AWAY; others may still wait for replies on it."""
        self._forget(address, connection)
        if not connection.calls_under_way:
            connection.close()

    def close_connection(self, address: str) -> None:
        """Close the connection to `address`, if any; the next request opens a new one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close all connections; waiting calls get ConnectionLost."""
        self._closed = True
        tasks: list[asyncio.Task[Connection] | asyncio.Task[None]] = [*self._attempts]
        if self._renewing is not None:
            tasks.append(self._renewing)
        if self._idle is not None:
            tasks.append(self._idle)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.endpoint.close()

    async def _invoke_on(self, connection: Connection, command: Command, deadline: float) -> Command:
        received = connection.received
        timeout = deadline - time.monotonic()
        try:
            return await connection.invoke(command, timeout)
        except RequestTimeout:
            self.give_up_if_silent(connection, received, timeout)
            raise

    def _attempt(self, address: str) -> _Attempt:
        task = asyncio.create_task(self._connect(address), name=f"connect {address}")
        self._attempts.add(task)
        task.add_done_callback(self._attempt_ended)
        return _Attempt(task)

    def _attempt_ended(self, task: asyncio.Task[Connection]) -> None:
        self._attempts.discard(task)
        if not task.cancelled():
            task.exception()  # a waiting caller raises it; without one it does not matter

    async def _connect(self, address: str) -> Connection:
        host, port = _split(address)
        try:
            async with asyncio.timeout(self._config.connect_timeout):
                connection = await self._open(address, host, port)
        except TimeoutError:
            raise ConnectFailed(address, f"no connection within {self._config.connect_timeout:.3g} s") from None
        except OSError as exc:  # refused, unreachable, unknown name, failed handshake
            raise ConnectFailed(address, f"cannot connect: {_reason(exc)}") from exc
        except ValueError as exc:  # an impossible host name
            raise ConnectFailed(address, f"cannot connect: {exc}") from exc
        self._connections[address] = connection
        connection.lost.add_done_callback(lambda _: self._forget(address, connection))
        if self._idle is None:
            self._idle = asyncio.create_task(self.endpoint.close_idle(self._config.max_idle_seconds), name="close idle")
        return connection

    async def _open(self, address: str, host: str, port: int) -> Connection:
        connection = Connection(self.endpoint)
        # The address we use for the peer; its own may look different.
        connection.context = address
        context = await self._current_context()
        server_name = host if context is not None else None
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, host, port, ssl=context, server_hostname=server_name
            )
        except BaseException:
            connection.abandon()
            raise
        return connection

    async def _current_context(self) -> ssl.SSLContext | None:
        """The TLS context for a new connection; None for plain text."""
        if self._files is None:
            return self._context
        if self._renewing is None and time.monotonic() - self._looked_at >= LOOK:
            self._looked_at = time.monotonic()
            self._renewing = asyncio.create_task(asyncio.to_thread(self._files.renew), name="look at certificates")
        if self._renewing is not None:
            await asyncio.shield(self._renewing)
            self._renewing = None
        return self._files.context

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]


class _Attempt:
    """One attempt to connect, for all who wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[Connection]) -> None:
        self.task = task
        self.waiting = 0


def _split(address: str) -> tuple[str, int]:
    try:
        return split_address(address)
    except ValueError as exc:
        raise LocalProtocolError(str(exc)) from None


def _reason(exc: OSError) -> str:
    # asyncio rewords the errors of the system, but not those of the resolver and OpenSSL.
    if exc.errno is None or isinstance(exc, socket.gaierror | ssl.SSLError):
        return exc.strerror or str(exc)
    return os.strerror(exc.errno)
