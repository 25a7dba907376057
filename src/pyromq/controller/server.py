"""The controller: decisions, processors, timers and the network, put together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.assembly import AccessControl, Server
from pyromq.errors import ConfigError
from pyromq.metrics import server_metrics as metrics
from pyromq.metrics.config import ControllerMetricsConfig, ExporterType
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

from .config import ControllerConfig, LiveSettings, Store, check_settings, controllers
from .decisions import Peer, Turns
from .elections import Elections
from .journal import Journal
from .liveness import Liveness, SteadyClock
from .notices import RoleNotices
from .processors import BrokerProcessors, GroupProcessors
from .requests import RULES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping

    from pyromq.remoting import Processor
    from pyromq.settings import Settings

    from .decisions import Decisions
    from .replicas import Group

logger = logging.getLogger(__name__)


class Controller(Service):
    """A controller, to run or to embed.

        async with Controller(load_settings(sets=["controllerDLegerPeers=n0-127.0.0.1:0"])) as controller:
            print(controller.address)

    Who is alive is known from heartbeats only; all else was decided, and survives a restart.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        elected: Callable[[Group], None] | None = None,
        embedded: bool = False,
    ) -> None:
        """Raises ConfigError for settings that no controller can have. `elected` is told of every new master.

        An `embedded` one has settings that were loaded so: its file keeps only what is changed while it runs.
        """
        check_settings(settings)
        self._settings = LiveSettings(settings)
        self._clock = SteadyClock(clock)
        self._me, self._peers = controllers(settings)
        self._liveness = Liveness()
        self._access = AccessControl(
            settings, Server(rules=RULES, home=Path(self._settings.config.store_path), asks="brokers")
        )
        self._server: RemotingServer | None = None
        self._elections: Elections | None = None
        self._elected = elected
        self._embedded = embedded
        self._known: Decisions | None = None
        exporter = settings[ControllerMetricsConfig].exporter
        self._latencies = None if exporter is ExporterType.DISABLE else RequestLatencies()

    @property
    def groups(self) -> Mapping[str, Group]:
        """What is decided about each group, by broker name."""
        assert self._known is not None, "the controller is not running"
        return self._known.groups

    @property
    def port(self) -> int:
        """The port it listens on, even if the system chose it."""
        assert self._server is not None, "the controller is not running"
        return self._server.port

    @property
    def address(self) -> str:
        """The address that it gives to brokers."""
        return self._me.address

    @property
    def listens_on(self) -> str:
        assert self._server is not None, "the controller is not running"
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

    def rest(self) -> None:
        """All brokers are about to stop: replace no master any more, unless a broker asks for it."""
        if self._elections is not None:
            self._elections.rest()

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        """Serve until cancelled; every task starts and ends in here. Calls `listening` once brokers can connect.

        ConfigError if the port is taken, what was decided cannot be trusted or a certificate is unusable.
        """
        settings = self._settings.settings
        tls = settings[TlsConfig]
        apply_log_levels(settings[LogConfig])
        host, _, port = self._me.address.rpartition(":")
        config = dataclasses.replace(settings[ServerConfig], listen_port=int(port))
        limits = body_limits(RULES, max_list=config.max_request_body, max_frame=config.max_frame)
        processors: dict[int, Processor] = {}
        server = RemotingServer(
            config,
            processors,
            listener=self,
            tls=tls,
            body_limit=limits,
            count_unserved=self._access.guard.count_unserved,
            latencies=self._latencies,
        )
        server.bind()
        try:
            self._server = server
            self._liveness = Liveness()
            me = Peer(self._me.id, f"{host}:{server.port}")
            self._peers = [me if peer == self._me else peer for peer in self._peers]
            self._me = me
            decisions = self._known = self._decisions()
            await asyncio.to_thread(self._access.load)
            async with (
                self._access.followed(),
                RemotingClient(tls=tls, hooks=self._access.hooks) as client,
                _kept(decisions) as keeping,
            ):
                notices = RoleNotices(client, self._settings)
                turns = Turns(decisions)
                elections = Elections(
                    decisions, turns, self._liveness, self._settings, clock=self._clock, elected=self._tell(notices)
                )
                elections.started()
                decisions.led = elections.led
                own = self._processors(decisions, turns, elections)
                processors |= self._access.guard.over(own)
                self._access.guard_changed = lambda: processors.update(self._access.guard.over(own))
                server.listen()
                try:
                    async with asyncio.TaskGroup() as tasks:
                        self._elections = elections
                        tasks.create_task(elections.run(_close), name="elections")
                        tasks.create_task(notices.run(), name="tell brokers")
                        tasks.create_task(_ended(keeping), name="decisions")
                        if listening is not None:
                            listening()
                except BaseExceptionGroup:
                    if keeping.done() and not keeping.cancelled():
                        keeping.result()
                    raise
                finally:
                    # The connections that end now say nothing about brokers.
                    self._elections = None
        finally:
            await server.close()

    def _decisions(self) -> Decisions:
        config = self._settings.config
        if config.store is Store.JOURNAL:
            return Journal(Path(config.store_path), self._me)
        try:
            from .etcd import in_etcd
        except ImportError as exc:
            source = self._settings.settings.origin("controllerStore")
            raise ConfigError(
                f"controllerStore=etcd needs {exc.name}; pip install 'pyromq[etcd]' installs it", source
            ) from exc
        return in_etcd(config, self._me, self._peers)

    def _processors(self, decisions: Decisions, turns: Turns, elections: Elections) -> dict[int, Processor]:

        def changed() -> None:
            self._access.reconfigure(self._settings.settings)
            elections.look_now()

        file = SavedFile(Path(self._settings.config.config_store_path))
        own = SettingsProcessors(self._settings, file, changed, only_changes=self._embedded)
        return {
            **BrokerProcessors(decisions, self._liveness, self._settings, self._clock).table(),
            **GroupProcessors(decisions, turns, elections, self._settings).table(),
            RequestCode.UPDATE_CONTROLLER_CONFIG: own.update,
            RequestCode.GET_CONTROLLER_CONFIG: own.get,
        }

    def _tell(self, notices: RoleNotices) -> Callable[[Group], None]:
        def tell(group: Group) -> None:
            notices.post(group, self._liveness.standings(group.cluster, group.name, self._clock()))
            if self._elected is not None:
                self._elected(group)

        return tell

    # What monitoring asks (`pyromq.metrics.Monitored`)

    kind = "controller"

    def metric_labels(self) -> dict[str, str]:
        return {"node_type": "controller", "node_id": self._me.id}

    def startup(self) -> Startup:
        return Startup(done=self._elections is not None, percent=100 if self._elections is not None else 0)

    def checks(self) -> list[Check]:
        return [Check("decisions", self._elections is not None, "" if self._elections else "not known yet")]

    async def refresh(self) -> None:
        """Everything can be read in one go."""

    def samples(self) -> Iterator[Sample]:
        if self._elections is not None:
            groups = list(self.groups.values())
            yield Sample(metrics.CONTROLLER_GROUPS, (), len(groups))
            yield Sample(metrics.CONTROLLER_MASTERLESS, (), sum(group.master is None for group in groups))
            for group in groups:
                yield Sample(metrics.CONTROLLER_EPOCH, (group.name,), group.master_epoch)
                yield Sample(metrics.CONTROLLER_IN_SYNC, (group.name,), len(group.sync_state_set))
        if self._server is not None:
            yield Sample(metrics.CONNECTIONS, (), len(self._server.endpoint.connections))
        if self._latencies is not None:
            yield from request_samples(self._latencies)

    # Events of connections

    def connected(self, connection: Connection) -> None:
        """Nothing to do until a broker beats over it."""

    def closed(self, connection: Connection, reason: CloseReason) -> None:
        if self._elections is not None:
            self._elections.inactive(self._liveness.connection_closed(connection), f"connection {reason.value}")


@contextlib.asynccontextmanager
async def _kept(decisions: Decisions) -> AsyncIterator[asyncio.Task[None]]:
    """Run where decisions are kept, from the moment that they are known; raises why if they cannot be."""
    ready = asyncio.Event()
    keeping = asyncio.create_task(decisions.run(ready.set), name="decisions")
    known = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((keeping, known), return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            await keeping
        yield keeping
    finally:
        for task in (keeping, known):
            task.cancel()
        await asyncio.wait((keeping, known))


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


def _reloaded(error: ConfigError | None) -> None:
    if error is None:
        logger.info("certificate and log levels reloaded")
    else:
        logger.error("not reloaded: %s", error)


def _close(connection: Hashable) -> None:
    assert isinstance(connection, Connection)
    connection.close()


def check_folders(settings: Settings) -> None:
    """Check that the journal can be written: ConfigError if it cannot, since no decision would ever be made."""
    folder = Path(settings[ControllerConfig].store_path)
    problem = why_not_writable(folder)
    if problem is not None:
        raise ConfigError(
            f"controllerStorePath {folder} cannot be written: {problem}", settings.origin("controllerStorePath")
        )
