"""A listening socket: bound with a clear error when that fails, and emptied of new connections as they come."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

from .addresses import format_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import ServerConfig

logger = logging.getLogger(__name__)

# So many in one turn of the event loop; then those that are connected get theirs.
_AT_ONCE = 64
_RETRY = 0.1


class ListeningSocket:
    """Hands every new connection to `accepted`, in the event loop's own turn: nothing is lost when it is closed.

    Where the system has no descriptor left, it looks again a moment later; the peers wait in the backlog.
    """

    def __init__(self, config: ServerConfig, accepted: Callable[[socket.socket], None]) -> None:
        self._socket = bind(config)
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._failing = False
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._watch()

    def close(self) -> None:
        """Take no new connections. May be called twice."""
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
                sock, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue  # it left before it was accepted
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
            self._accepted(sock)


def bind(config: ServerConfig) -> socket.socket:
    """A socket that listens as `config` says. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in config.bind_address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, size in ((socket.SO_SNDBUF, config.send_buffer), (socket.SO_RCVBUF, config.receive_buffer)):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, name, size)
        sock.bind((config.bind_address, config.listen_port))
        sock.listen(config.backlog)
    except (OSError, ValueError, OverflowError) as exc:
        sock.close()
        where = format_address((config.bind_address, config.listen_port))
        if isinstance(exc, OSError) and exc.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {config.listen_port} is taken; cannot listen on {where}") from exc
        reason = exc.strerror if isinstance(exc, OSError) else None
        raise ConfigError(f"cannot listen on {where}: {reason or exc}") from exc
    return sock
