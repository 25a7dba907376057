"""Dashboard: serves a site over HTTP until it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING

import uvicorn

from pyromq.errors import ConfigError

from .config import is_loopback
from .site import Site
from .web.app import application

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .config import DashboardConfig
    from .lake import ArchivedTopic
    from .site import Source

# A page in hand is finished; a stream never ends by itself.
_STOP_WITHIN = 1


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Dashboard:
    """Serves pages on a socket. Everything it needs is opened by `run`, in the event loop that calls it."""

    def __init__(
        self,
        config: DashboardConfig,
        sources: Sequence[Source],
        *,
        listener: socket.socket | None = None,
        read_lake: Callable[[str], Sequence[ArchivedTopic]] | None = None,
    ) -> None:
        config.check()
        self._config = config
        self._sources = sources
        self._read_lake = read_lake
        self._listener = listener or bound(config)
        self.site: Site

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return url_of(self._config, self._listener)

    def close(self) -> None:
        """Give the port back, if it never ran."""
        self._listener.close()

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        """Serve until cancelled. ConfigError if its data cannot be kept."""
        async with Site(self._config, self._sources, read_lake=self._read_lake) as site:
            self.site = site
            app = application(site)
            server = _Server(
                uvicorn.Config(
                    app,
                    http="h11",
                    ws="none",
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    proxy_headers=bool(self._config.proxies),
                    forwarded_allow_ips=list(self._config.proxies),
                    timeout_keep_alive=20,
                    timeout_graceful_shutdown=_STOP_WITHIN,
                    limit_concurrency=500,
                )
            )
            serving = asyncio.create_task(server.serve(sockets=[self._listener]), name="http")
            try:
                if listening is not None:
                    listening()
                await asyncio.shield(serving)
            finally:
                server.should_exit = True
                site.channel.close()
                await asyncio.wait((serving,))


def bound(config: DashboardConfig) -> socket.socket:
    """A socket that listens there. ConfigError if the port is taken."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(128)
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {config.port} is taken, so the dashboard cannot listen there") from exc
        reason = exc.strerror or os.strerror(exc.errno or 0)
        raise ConfigError(f"the dashboard cannot listen on {config.host}:{config.port}: {reason}") from exc
    listener.setblocking(False)
    return listener


def url_of(config: DashboardConfig, listener: socket.socket) -> str:
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::", "") or is_loopback(config.host) else config.host
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{listener.getsockname()[1]}{config.base_path}/"
