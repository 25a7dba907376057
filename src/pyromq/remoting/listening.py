"""A listening socket: bound with a clear error if that fails, accepting connections as they come.

Once bound, the port is ours and its number known, but connections are refused until we listen.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from .addresses import format_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import ServerConfig

    # Host and port, and more for IPv6.
    Address = tuple[Any, ...]

logger = logging.getLogger(__name__)

# Connections accepted per turn of the event loop; then the existing ones get theirs. One that is refused takes 25 µs.
_AT_ONCE = 8
_RETRY = 0.1


class ListeningSocket:
    """Hands every new connection to `accepted` in the same turn of the event loop: closing it loses none.

    It is bound from the beginning and accepts connections after `listen`. If the system runs out of descriptors, it
    tries again a moment later; the peers wait in the backlog.
    """

    def __init__(self, config: ServerConfig, accepted: Callable[[socket.socket, Address], None]) -> None:
        self._config = config
        self._socket = bind(config)
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._failing = False
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def listen(self) -> None:
        """Start accepting connections. ConfigError if another process listens on this port."""
        try:
            # Connections inherit it, and so do not block the port after we end.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.listen(self._config.backlog)
        except OSError as exc:
            raise _refused(self.address, exc) from exc
        self._watch()

    def close(self) -> None:
        """Stop accepting connections. May be called twice."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _watch(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue  # the peer left before it was accepted
            except OSError as exc:
                if not self._failing:
                    logger.warning("accept failed: %s; trying again every %g s", exc.strerror or exc, _RETRY)
                self._failing = True
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(_RETRY, self._watch)
                return
            if self._failing:
                logger.warning("accept works again")
            self._failing = False
            sock.setblocking(False)
            self._accepted(sock, peer)


def bind(config: ServerConfig) -> socket.socket:
    """A socket bound to the port in `config`, not yet listening. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in config.bind_address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        # Connections inherit these.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, size in ((socket.SO_SNDBUF, config.send_buffer), (socket.SO_RCVBUF, config.receive_buffer)):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, name, size)
        _bind(sock, (config.bind_address, config.listen_port))
    except (OSError, ValueError, OverflowError) as exc:
        sock.close()
        raise _refused((config.bind_address, config.listen_port), exc) from exc
    return sock


def _bind(sock: socket.socket, address: tuple[str, int]) -> None:
    """Bind, even if connections of an ended process are still in TIME_WAIT."""
    try:
        # First without sharing. With the option below, Linux lets two processes bind a port that no one listens on yet,
        # and one of them would find out too late.
        sock.bind(address)
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)


def _refused(address: tuple[str, int], exc: Exception) -> ConfigError:
    where = format_address(address)
    if isinstance(exc, OSError) and exc.errno == errno.EADDRINUSE:
        return ConfigError(f"port {address[1]} is taken; cannot listen on {where}")
    reason = exc.strerror if isinstance(exc, OSError) else None
    return ConfigError(f"cannot listen on {where}: {reason or exc}")


async def first_byte(sock: socket.socket) -> int:
    """Peek at the first byte of `sock`. ConnectionError if the peer left without sending any."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(sock, _wake, readable)
            try:
                await readable
            finally:
                loop.remove_reader(sock)
            continue
        if not data:
            raise ConnectionAbortedError("closed by the peer without a byte")
        return data[0]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
