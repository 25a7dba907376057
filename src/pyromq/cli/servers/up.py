"""`pyromq up`: a name server and a broker in one process, with a data directory and no configuration.

Further brokers and slaves are processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import __version__, broker, controller, namesrv, remoting
from pyromq.broker.config import CONFIGS as BROKER_CONFIGS
from pyromq.broker.config import BrokerConfig
from pyromq.controller.config import CONFIGS as CONTROLLER_CONFIGS
from pyromq.controller.config import PORT as CONTROLLER_PORT
from pyromq.errors import ConfigError, PyroMQError
from pyromq.metrics import MetricsConfig, Monitor
from pyromq.namesrv.config import CONFIGS as NAMESRV_CONFIGS
from pyromq.namesrv.config import NamesrvConfig
from pyromq.remoting import ServerConfig, join_address, split_address
from pyromq.remoting.addresses import is_loopback
from pyromq.settings import Assignment, environment_name, options_of
from pyromq.store.config import StoreConfig

from . import logs, serving
from .fleet import Fleet, Member
from .groups import IDENTITY_FILE, GroupMember, Groups
from .monitoring import monitor_of, say_where
from .systemd import Systemd

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

    from pyromq.remoting.service import Service
    from pyromq.settings import Settings

FAILED = 1
LOOPBACK = "127.0.0.1"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# A broker also takes the port two below its own, and the one above.
PORTS_APART = 10
MOST_REPLICAS = 9
NAMESRV_PORT = 9876
LAST_PORT = 65535

# Whoever wants to try TLS need not make certificates first.
_TLS = {"tls.test.mode.enable": "true"}
# Defaults that suit a laptop.
_DEFAULTS = {
    **_TLS,
    "mappedFileSizeCommitLog": "64m",
    "traceTopicEnable": "true",
    "drainSeconds": "0",
    # A laptop is busy with other things too: a late answer is better than a refusal.
    "brokerFastFailureEnable": "false",
}
_SOURCE = "pyromq up"
_METRICS_PORT = "metricsPromExporterPort"

app = serving.new_app()


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "up", arguments)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def up(
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings of the broker and the name server.")
    ] = None,
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Data directory.")] = Path(".pyromq"),
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Use a temporary data directory, deleted at exit.")
    ] = False,
    namesrv_port: Annotated[
        int, typer.Option(metavar="P", help="Port of the name server.", min=0, max=LAST_PORT)
    ] = NAMESRV_PORT,
    broker_port: Annotated[int, typer.Option(metavar="P", help="Port of the broker.", min=0, max=65534)] = 10911,
    listen: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on; 0.0.0.0 lets other machines connect.")
    ] = LOOPBACK,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Address at which other machines reach this one; use with --listen."),
    ] = None,
    brokers: Annotated[
        int,
        typer.Option(
            metavar="N", help="Number of brokers; each after the first is a separate process.", min=1, max=len(LETTERS)
        ),
    ] = 1,
    replicas: Annotated[
        int,
        typer.Option(
            metavar="N", help="Number of slaves per broker; each is a separate process.", min=0, max=MOST_REPLICAS
        ),
    ] = 0,
    failover: Annotated[
        bool,
        typer.Option("--failover", help="Let a slave become master when the master dies; needs --replicas 1 or more."),
    ] = False,
    log_level: Annotated[logs.LogLevel, typer.Option(help="Log level.")] = logs.LogLevel.warning,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Log format.")] = logs.LogFormat.text,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log to files in this directory (1 GiB at most) instead of stderr."),
    ] = None,
) -> None:
    """Run a name server and a broker in one process.

    Any RocketMQ client on this machine can connect at once; --listen lets others in. Ctrl-C stops it; messages are
    still there at the next start.

    Example: pyromq up --data /var/lib/pyromq --brokers 2
    """
    serving.set_up_logs("up", log_level, log_format, log_dir)
    log = ["--log-level", log_level.value, "--log-format", log_format.value]
    if log_dir is not None:
        log += ["--log-dir", str(log_dir)]
    try:
        with contextlib.ExitStack() as life:
            if ephemeral:
                data = Path(life.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-")))
            plan = Plan(
                data=data,
                namesrv_port=namesrv_port,
                broker_port=broker_port,
                listen=listen,
                advertise=advertise,
                brokers=brokers,
                replicas=replicas,
                failover=failover,
                arguments=tuple(properties or ()),
            )
            plan.check()
            remoting.run(_run(plan, log))
    except PyroMQError as exc:
        raise serving.failure("up", exc, FAILED) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to start, and where; works out the settings of each part."""

    data: Path
    namesrv_port: int = NAMESRV_PORT
    broker_port: int = 10911
    listen: str = LOOPBACK
    advertise: str | None = None
    brokers: int = 1
    replicas: int = 0
    failover: bool = False
    arguments: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ConfigError for what cannot work, or would hide messages."""
        if self.failover and not self.replicas:
            raise ConfigError("--failover needs a slave that can take over: add --replicas 1 or more")
        if not self.failover and any(self.data.glob(f"broker-?/{IDENTITY_FILE}")):
            raise ConfigError(
                f"{self.data} belongs to brokers that fail over, and the newest messages may be with any of them: "
                "add --failover, with --replicas as before"
            )

    @property
    def host(self) -> str:
        """The host that clients connect to."""
        return self.advertise or reached_by(self.listen)

    @property
    def _accounts(self) -> dict[str, str]:
        """All servers have the same accounts, if any."""
        return {"rocketmq.acl.plain.file": str((self.data / "conf" / "plain_acl.yml").absolute())}

    def name_server(self) -> Settings:
        folder = self.data / "namesrv"
        settings = namesrv.load_settings(environ=_environ(), arguments=_known_to(NAMESRV_CONFIGS, self.arguments))
        own = {
            "listenPort": str(self.namesrv_port),
            "bindAddress": self.listen,
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
            **self._accounts,
        }
        return _with(settings, own | _TLS)

    def controller(self) -> Settings | None:
        """The settings of the controller beside the name server; None unless it is needed or asked for.

        Its file holds changes made during earlier runs, as a broker's does.
        """
        if not self.failover and not self.name_server()[NamesrvConfig].enable_controller:
            return None
        folder = self.data / "controller"
        file = folder / "controller.properties"
        settings = controller.load_settings(
            file if file.exists() else None,
            environ=_environ(),
            arguments=_known_to(CONTROLLER_CONFIGS, self.arguments),
        )
        own = {
            "bindAddress": self.listen,
            "controllerDLegerPeers": f"n0-{join_address(self.host, self._controller_port)}",
            "controllerStorePath": str(folder),
            "configStorePath": str(file),
            **self._accounts,
        }
        return _with(settings, own | _TLS)

    @property
    def _controller_port(self) -> int:
        """As far from the name server's as by default; where the system chooses that one, it chooses this one, too."""
        port = self.namesrv_port + CONTROLLER_PORT - NAMESRV_PORT
        return port if self.namesrv_port and port <= LAST_PORT else 0

    def broker(
        self, number: int, namesrv_port: int, first_port: int, slave: int = 0, *, controller: str = ""
    ) -> Settings:
        """The settings of a broker or of one of its slaves; the first broker has number 0 and `first_port`.

        With the address of a `controller`, that decides which of them is master.

        Its file holds changes made during earlier runs; they apply unless overridden here.
        """
        folder = (self.data / self._name(number, slave)).absolute()
        file = folder / "config" / "broker.properties"
        foreign = _not_of_broker(self.arguments)
        settings = broker.load_settings(
            file if file.exists() else None,
            environ=_environ(),
            arguments=[pair for pair in self.arguments if pair not in foreign],
            namesrv_addr=join_address(reached_by(self.name_server()[ServerConfig].bind_address), namesrv_port),
        )
        place = slave * self.brokers + number
        own = {
            # Where the system chooses the first port, it chooses all of them.
            "listenPort": str(first_port and first_port + place * PORTS_APART),
            "bindAddress": self.listen,
            "brokerName": f"broker-{LETTERS[number]}",
            "storePathRootDir": str(folder),
            "brokerConfigPath": str(file),
            "brokerIP1": self.host,
            "brokerIP2": self.host,
            **self._accounts,
        }
        if slave:
            master = self.broker(number, namesrv_port, first_port)[BrokerConfig]
            own |= {"brokerName": master.broker_name}
            if not controller:
                own |= {"brokerRole": "SLAVE", "brokerId": str(slave)}
        if controller:
            own |= {"enableControllerMode": "true", "controllerAddr": controller}
        metrics = {_METRICS_PORT: str(self._metrics_port(settings, place))}
        settings = _with(settings, metrics, also_over_arguments=place > 0 or self.failover)
        settings = _with(settings, own, also_over_arguments=number > 0 or slave > 0)
        open_keys = {key: text for key, text in _DEFAULTS.items() if settings.origin(key) == "default"}
        return _with(settings, open_keys)

    def _metrics_port(self, settings: Settings, place: int) -> int:
        """The port for metrics of this broker's process. The first one also has those of the name server.

        Brokers that fail over are all processes of their own, and the first port is not theirs.
        """
        first = settings[MetricsConfig].port if settings.origin(_METRICS_PORT) != "default" or self.broker_port else 0
        if not first:
            return 0
        port = first + place + (1 if self.failover else 0)
        return port if port <= LAST_PORT else 0

    def monitor(self) -> Monitor:
        """The monitoring of this process; a port that is taken is not worth a failed start."""
        settings = self.broker(0, self.namesrv_port, self.broker_port)
        if self.failover and (port := settings[MetricsConfig].port):
            settings = settings.updated([Assignment(_METRICS_PORT, str(port - 1), _SOURCE)]).settings
        return monitor_of(settings, MetricsConfig, must_listen=False)

    def further_brokers(self, namesrv_port: int, first_port: int, log: list[str]) -> list[Member]:
        """The other masters as processes."""
        return [self._member(number, 0, namesrv_port, first_port, log) for number in range(1, self.brokers)]

    def slaves(self, namesrv_port: int, first_port: int, log: list[str]) -> list[Member]:
        """All slaves as processes."""
        return [
            self._member(number, slave, namesrv_port, first_port, log)
            for number in range(self.brokers)
            for slave in range(1, self.replicas + 1)
        ]

    def group_members(self, namesrv_port: int, controller: str, log: list[str]) -> list[GroupMember]:
        """All brokers of groups that fail over, as processes."""
        members = []
        for number in range(self.brokers):
            for replica in range(self.replicas + 1):
                settings = self.broker(number, namesrv_port, self.broker_port, replica, controller=controller)
                process = self._process(self._name(number, replica), settings, log)
                folder = Path(settings[StoreConfig].root)
                members.append(GroupMember(settings[BrokerConfig].broker_name, folder, process))
        return members

    def _member(self, number: int, slave: int, namesrv_port: int, first_port: int, log: list[str]) -> Member:
        return self._process(self._name(number, slave), self.broker(number, namesrv_port, first_port, slave), log)

    def _process(self, name: str, settings: Settings, log: list[str]) -> Member:
        """A broker as a process. Settings go through the environment, which keeps passwords private."""
        environ = {environment_name(key): text for key, text in settings.items() if settings.origin(key) != "default"}
        arguments = ["-m", "pyromq.cli.main", "broker", "--supervised", "--log-name", name, *log]
        return Member(name, arguments, environ)

    def _name(self, number: int, slave: int) -> str:
        """What its folder, its process and its log are called."""
        name = f"broker-{LETTERS[number]}"
        if slave and self.failover:
            return f"{name}-{slave + 1}"  # any of them may be master
        return f"{name}-slave-{slave}" if slave else name


def reached_by(bound: str) -> str:
    """The address at which this machine itself reaches a server that listens on `bound`."""
    return {"0.0.0.0": LOOPBACK, "::": "::1", "": LOOPBACK}.get(bound, bound)


def _environ() -> dict[str, str]:
    """The environment without variables that options replace here: both servers are local."""
    said = {"NAMESRV_ADDR", environment_name("listenPort")}
    return {name: value for name, value in os.environ.items() if name not in said}


def _with(settings: Settings, values: dict[str, str], *, also_over_arguments: bool = False) -> Settings:
    """`settings` with these values, except keys set on the command line or in the environment."""
    said = () if also_over_arguments else ("argument", "environment")
    changes = [
        Assignment(key, text, _SOURCE) for key, text in values.items() if not settings.origin(key).startswith(said)
    ]
    return settings.updated(changes).settings


def _known_to(configs: Iterable[type], pairs: Iterable[str]) -> list[str]:
    known = {option.key for config in configs for option in options_of(config)}
    return [pair for pair in pairs if pair.partition("=")[0].strip() in known and not pair.startswith("listenPort=")]


def _not_of_broker(pairs: Iterable[str]) -> list[str]:
    """The settings that only the name server or the controller knows."""
    shared = _known_to(BROKER_CONFIGS, pairs)
    return [pair for pair in _known_to((*NAMESRV_CONFIGS, *CONTROLLER_CONFIGS), pairs) if pair not in shared]


async def _run(plan: Plan, log: list[str]) -> None:
    systemd = Systemd.of(os.environ)
    systemd.status("opening the store")
    services: list[Service] = []

    def reload() -> None:
        systemd.reloading()
        for service in services:
            service.reload()
        systemd.reloaded()

    def passed_on(number: signal.Signals) -> None:
        for service in services:
            if isinstance(service, Fleet | Groups):
                service.send(number)

    running = _serve(plan, log, services, systemd)
    await serving.until_stopped(running, "up", systemd=systemd, reload=reload, passed_on=passed_on)


async def _serve(plan: Plan, log: list[str], services: list[Service], systemd: Systemd) -> None:
    """Run everything; `services` lists the servers once they run.

    The name server starts first and stops last, so that brokers can always unregister.
    """
    of_name_server = plan.name_server()
    namesrv.check_folders(of_name_server)
    name_server = namesrv.NameServer(of_name_server)
    monitor = plan.monitor()
    monitor.servers.append(name_server)
    async with monitor, name_server:
        services.append(name_server)
        if plan.failover:
            await _serve_groups(plan, name_server.port, log, services, systemd, monitor)
        else:
            await _serve_brokers(plan, name_server.port, log, services, systemd, monitor)


async def _serve_groups(
    plan: Plan, port: int, log: list[str], services: list[Service], systemd: Systemd, monitor: Monitor
) -> None:
    """Groups that fail over; `port` is that of the name server."""
    settings = plan.controller()
    assert settings is not None
    controller.check_folders(settings)
    serving.log_notices(plan.broker(0, port, plan.broker_port))
    decider = controller.Controller(settings, elected=lambda group: groups.elected(group))
    groups = Groups(lambda: decider.groups, decider.rest)
    monitor.servers.append(decider)
    async with decider:
        groups.add(plan.group_members(port, decider.address, log))
        async with groups:
            services += [decider, groups]
            print(_groups_ready(plan, port, groups.lines(), say_where(monitor)), flush=True)
            groups.report = lambda line: print(line, flush=True)
            systemd.ready(f"serving; name server at {join_address(plan.host, port)}")
            await serving.first_ended(services)


async def _serve_brokers(
    plan: Plan, port: int, log: list[str], services: list[Service], systemd: Systemd, monitor: Monitor
) -> None:
    """Brokers that keep their roles; `port` is that of the name server."""
    async with contextlib.AsyncExitStack() as life:
        of_controller = plan.controller()
        if of_controller is not None:
            controller.check_folders(of_controller)
            beside = controller.Controller(of_controller)
            monitor.servers.append(beside)
            services.append(await life.enter_async_context(beside))
        # Slaves end after their masters, which send them the rest first.
        of_slaves = await life.enter_async_context(contextlib.AsyncExitStack())
        settings = plan.broker(0, port, plan.broker_port)
        serving.log_notices(settings)
        first = broker.Broker(settings)
        monitor.servers.append(first)
        services.append(await life.enter_async_context(first))
        if plan.brokers > 1:
            fleet = Fleet(plan.further_brokers(port, first.port, log))
            services.append(await life.enter_async_context(fleet))
        if plan.replicas:
            # They begin after all masters: a slave hears of its master when it registers.
            fleet = Fleet(plan.slaves(port, first.port, log))
            services.append(await of_slaves.enter_async_context(fleet))
        print(_ready(plan, port, first, settings, say_where(monitor)), flush=True)
        systemd.ready(f"serving at {first.address}")
        await serving.first_ended(services)


def _ready(plan: Plan, namesrv_port: int, first: broker.Broker, settings: Settings, more: list[str]) -> str:
    name_server = join_address(plan.host, namesrv_port)
    brokers = first.address + (f" and {plan.brokers - 1} more" if plan.brokers > 1 else "")
    if plan.replicas:
        each = " each" if plan.brokers > 1 else ""
        brokers += f" with {plan.replicas} slave{'s' if plan.replicas > 1 else ''}{each}"
    return "\n".join(
        [
            f"PyroMQ {__version__} is ready: name server {name_server}, broker {brokers}, data in {plan.data}",
            _where(first.listens_on, settings),
            *more,
            *_try(name_server),
        ]
    )


def _where(address: str, settings: Settings, *, only_changes: bool = False) -> str:
    only_here = is_loopback(split_address(address)[0])
    line = serving.where(address, settings, only_changes=only_changes)
    return line + (" --listen 0.0.0.0 lets others in." if only_here else "")


def _groups_ready(plan: Plan, namesrv_port: int, lines: list[str], more: list[str]) -> str:
    name_server = join_address(plan.host, namesrv_port)
    groups = f"{plan.brokers} broker group{'s' if plan.brokers > 1 else ''} of {plan.replicas + 1}"
    return "\n".join(
        [
            f"PyroMQ {__version__} is ready: name server {name_server}, {groups}, data in {plan.data}",
            *lines,
            _where(join_address(plan.listen, namesrv_port), plan.name_server(), only_changes=True),
            *more,
            *_try(name_server, "  pyromq controller status"),
        ]
    )


def _try(name_server: str, *more: str) -> list[str]:
    return [
        "",
        "Point any RocketMQ client at the name server, or try in another terminal:",
        f"  export NAMESRV_ADDR={name_server}",
        "  pyromq message send orders hello",
        "  pyromq message list orders",
        *more,
        "",
        "Ctrl-C stops it.",
    ]
