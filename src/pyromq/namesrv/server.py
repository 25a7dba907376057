"""The name server: tables, processors, timers and the network, put together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.assembly import AccessControl, Server
from pyromq.auth.near import ChangesFromNear
from pyromq.errors import ConfigError
from pyromq.metrics import server_metrics as metrics
from pyromq.metrics.config import ExporterType, NamesrvMetricsConfig
from pyromq.metrics.health import Check, Startup
from pyromq.metrics.model import Sample
from pyromq.metrics.requests import request_samples
from pyromq.protocol.codes import RequestCode
from pyromq.remoting import (
    CloseReason,
    Connection,
    RemotingClient,
    RemotingServer,
    ServerConfig,
    TlsConfig,
    body_limits,
)
from pyromq.remoting.latencies import RequestLatencies
from pyromq.remoting.live_settings import SettingsProcessors
from pyromq.remoting.log_levels import LogConfig, apply_log_levels
from pyromq.remoting.service import Service
from pyromq.settings.files import why_not_writable
from pyromq.settings.saved_file import SavedFile

from .config import NamesrvConfig, check_settings
from .kv_config import load_kv_config
from .live_settings import LiveSettings
from .notices import BrokerNotices
from .processors import BrokerProcessors, KVConfigProcessors, TopicProcessors
from .requests import CHANGES, ONLY_NEAR, RULES, rules
from .route_answers import RouteAnswers
from .routes import RouteTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyromq.remoting import Processor
    from pyromq.settings import Settings

    from .routes import Departed

logger = logging.getLogger(__name__)

# Seconds (docs/spec/namesrv.md 1.5).
_FIRST_KV_LOG = 60.0
_KV_LOG_PERIOD = 600.0
_KV_LINES_PER_TURN = 100


class NameServer(Service):
    """A name server, to run or to embed.

        async with NameServer(load_settings(sets=["listenPort=0"])) as name_server:
            print(name_server.port)

    All state but the KV config lives in memory: after a restart, brokers fill the tables again.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError for settings that no name server can have, or an unreadable KV config."""
        check_settings(settings)
        self._settings = LiveSettings(settings)
        self._tables = RouteTables()
        self._kv_config = load_kv_config(Path(self._settings.config.kv_config_path))
        self._answers = RouteAnswers(self._tables, self._kv_config, self._settings, _now)
        home = Path(self._settings.config.kv_config_path).parent
        near = ChangesFromNear(self._settings.config.allowed_networks, only_near=ONLY_NEAR, changes=CHANGES)
        asked = rules(known_brokers_only=self._settings.config.known_brokers_only)
        self._access = AccessControl(settings, Server(rules=asked, home=home, only_changes=True), near)
        self._server: RemotingServer | None = None
        self._notices: BrokerNotices | None = None
        exporter = settings[NamesrvMetricsConfig].exporter
        self._latencies = None if exporter is ExporterType.DISABLE else RequestLatencies()
        self._look_again = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on, even if the system chose it."""
        assert self._server is not None, "the name server is not running"
        return self._server.port

    @property
    def address(self) -> str:
        assert self._server is not None, "the name server is not running"
        return self._server.address

    def reload(self) -> None:
        """Reload the certificate, log levels and accounts. If they are unusable, log it and keep the old ones."""
        self._access.reload()
        try:
            self._settings.reload_log_levels()
        except ConfigError as exc:
            _reloaded(exc)
            return
        if self._server is None:
            _reloaded(None)
        else:
            self._server.reload_tls(_reloaded)

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        """Serve until cancelled; every task starts and ends in here. Calls `listening` once clients can connect.

        ConfigError if the port is taken or a certificate is unusable.
        """
        settings = self._settings.settings
        tls = settings[TlsConfig]
        apply_log_levels(settings[LogConfig])
        await asyncio.to_thread(self._access.load)
        async with self._access.followed(), RemotingClient(tls=tls, hooks=self._access.hooks) as client:
            self._notices = BrokerNotices(client, self._settings)
            config = settings[ServerConfig]
            limits = body_limits(RULES, max_list=config.max_request_body, max_frame=config.max_frame)
            own = self._processors(client)
            processors = self._access.guard.over(own)
            self._access.guard_changed = lambda: processors.update(self._access.guard.over(own))
            server = RemotingServer(
                config,
                processors,
                listener=self,
                tls=tls,
                body_limit=limits,
                count_unserved=self._access.guard.count_unserved,
                latencies=self._latencies,
            )
            async with server, asyncio.TaskGroup() as tasks:
                self._server = server
                tasks.create_task(self._drop_silent_brokers(), name="drop silent brokers")
                tasks.create_task(self._notices.run(), name="tell brokers")
                tasks.create_task(self._log_kv_config(), name="log KV config")
                if listening is not None:
                    listening()

    def _processors(self, client: RemotingClient) -> dict[int, Processor]:
        config = self._settings.config
        assert self._notices is not None
        brokers = BrokerProcessors(self._tables, self._kv_config, self._settings, _now, self._notices.post)
        topics = TopicProcessors(self._tables, self._settings)
        kv_file = SavedFile(Path(config.kv_config_path))
        own = SettingsProcessors(self._settings, SavedFile(Path(config.config_store_path)), self._settings_changed)
        route: Processor = self._answers.answer
        if config.cluster_test:
            from .cluster_test import BorrowedRoutes

            route = BorrowedRoutes(self._answers, self._settings, client, _now).answer
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
            **brokers.table(),
            **topics.table(),
            **KVConfigProcessors(self._kv_config, self._settings, kv_file, self._answers.forget).table(),
            RequestCode.UPDATE_NAMESRV_CONFIG: own.update,
            RequestCode.GET_NAMESRV_CONFIG: own.get,
        }

    # What monitoring asks (`pyromq.metrics.Monitored`)

    kind = "name server"

    def metric_labels(self) -> dict[str, str]:
        return {"node_type": "nameserver", "node_id": "" if self._server is None else self._server.address}

    def startup(self) -> Startup:
        return Startup(done=self._server is not None, percent=100 if self._server is not None else 0)

    def checks(self) -> list[Check]:
        return [Check("listening", self._server is not None)]

    async def refresh(self) -> None:
        """Everything can be read in one go."""

    def samples(self) -> Iterator[Sample]:
        tables = self._tables
        groups = list(tables.brokers.values())
        yield Sample(metrics.NAMESRV_CLUSTERS, (), len(tables.clusters))
        yield Sample(metrics.NAMESRV_TOPICS, (), len(tables.topics))
        yield Sample(metrics.NAMESRV_KV_KEYS, (), len(self._kv_config.lines()))
        for cluster in list(tables.clusters):
            own = [group for group in groups if group.cluster == cluster]
            yield Sample(metrics.NAMESRV_BROKERS, (cluster,), sum(len(group.addresses) for group in own))
            yield Sample(metrics.NAMESRV_MASTERS, (cluster,), sum(group.has_master for group in own))
        if self._server is not None:
            yield Sample(metrics.CONNECTIONS, (), len(self._server.endpoint.connections))
        if self._latencies is not None:
            yield from request_samples(self._latencies)

    # Events of connections (docs/spec/namesrv.md 4.5)

    def connected(self, connection: Connection) -> None:
        """Nothing to do until a broker registers over it."""

    def closed(self, connection: Connection, reason: CloseReason) -> None:
        self._departed(self._tables.connection_closed(connection), reason.value)

    # Timers

    async def _drop_silent_brokers(self) -> None:
        while True:
            departed = self._tables.expire(_now())
            for connection in departed.connections:
                assert isinstance(connection, Connection)
                connection.close()
            self._departed(departed, "silent for too long")
            self._look_again.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.config.scan_not_active_broker_interval / 1000):
                    await self._look_again.wait()

    async def _log_kv_config(self) -> None:
        await asyncio.sleep(_FIRST_KV_LOG)
        while True:
            lines = self._kv_config.lines()
            logger.info("KV config has %d keys", len(lines))
            for number, line in enumerate(lines, 1):
                logger.info("%s", line)
                if number % _KV_LINES_PER_TURN == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(_KV_LOG_PERIOD)

    def _departed(self, departed: Departed, why: str) -> None:
        for address in departed.addresses:
            logger.info("broker gone addr=%s: connection %s", address, why)
        assert self._notices is not None
        self._notices.post(departed.news)

    def _settings_changed(self) -> None:
        self._access.reconfigure(self._settings.settings)
        self._answers.forget()
        # The scan interval may have changed.
        self._look_again.set()


def _reloaded(error: ConfigError | None) -> None:
    if error is None:
        logger.info("certificate and log levels reloaded")
    else:
        logger.error("not reloaded: %s", error)


def check_folders(settings: Settings) -> list[str]:
    """Check that the KV config can be written: ConfigError if its path was set, otherwise a list of warnings.

    With the default path the server starts anyway, since most never store any KV config.
    """
    path = Path(settings[NamesrvConfig].kv_config_path)
    problem = why_not_writable(path.parent)
    if problem is None:
        return []
    if settings.origin("kvConfigPath") != "default":
        raise ConfigError(f"kvConfigPath {path} cannot be written: {problem}", settings.origin("kvConfigPath"))
    return [f"KV config will not survive a restart: {path} cannot be written: {problem}"]


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
