"""`pyromq namesrv`, also `mqnamesrv`: run a name server with RocketMQ's options and exit codes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import controller, remoting
from pyromq.errors import ConfigError
from pyromq.metrics.config import NamesrvMetricsConfig
from pyromq.namesrv import NameServer, NamesrvConfig, check_folders, load_settings
from pyromq.settings import dump

from . import logs, serving
from .monitoring import monitor_of, say_where
from .systemd import Systemd

if TYPE_CHECKING:
    from pyromq.settings import Settings

logger = logging.getLogger(__name__)

app = serving.new_app()


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "namesrv", arguments)


def console() -> None:
    """The console script `mqnamesrv`, RocketMQ's name for the command."""
    sys.exit(serving.run_app(app, "namesrv", sys.argv[1:], called="mqnamesrv"))


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def namesrv(
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that override all others.")
    ] = None,
    *,
    config_file: Annotated[
        Path | None,
        typer.Option("-c", "--configFile", help="Properties file; run-time changes are written back to it."),
    ] = None,
    print_items: Annotated[
        bool, typer.Option("-p", "--printConfigItem", help="Print all settings as key=value and exit.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings with their origins and exit.")
    ] = False,
    namesrv_addr: Annotated[
        str | None, typer.Option("-n", "--namesrvAddr", help="Accepted for compatibility with RocketMQ; has no effect.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key.")] = None,
    log_level: Annotated[logs.LogLevel, typer.Option(help="Log level.")] = logs.LogLevel.info,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Log format.")] = logs.LogFormat.text,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log to files in this directory (1 GiB at most) instead of stderr."),
    ] = None,
) -> None:
    """Run a name server.

    With a verb it manages running name servers: `pyromq namesrv help` lists config and kv.

    Settings come from the file, variables PYROMQ_<UPPER_SNAKE>, --set and bare key=value arguments, in this order; the
    last one wins. With enableControllerInNamesrv=true a controller runs beside it.

    Example: pyromq namesrv -c namesrv.properties listenPort=9876
    """
    serving.set_up_logs("namesrv", log_level, log_format, log_dir)
    settings, of_controller = _settings(config_file, sets or [], properties or [])
    if config_file is not None:
        # When only printing settings, stdout is data for another program.
        out = sys.stderr if print_config or print_items else sys.stdout
        print(f"load config properties file OK, {config_file}", file=out)
    if print_config:
        print(settings.listing(), end="")
    elif print_items:
        print(dump(settings.items(reveal=False)), end="")
    else:
        _serve(settings, of_controller)


def _settings(file: Path | None, sets: list[str], arguments: list[str]) -> tuple[Settings, Settings | None]:
    """The settings of the name server, and of the controller in it, if there shall be one."""
    try:
        settings = load_settings(file, environ=os.environ, sets=sets, arguments=arguments)
        of_controller = None
        if settings[NamesrvConfig].enable_controller:
            of_controller = controller.load_settings(
                file, environ=os.environ, sets=sets, arguments=arguments, embedded=True
            )
    except ConfigError as exc:
        raise serving.failure("namesrv", exc, serving.BAD_SETTINGS) from exc
    serving.log_notices(settings, of_controller)
    return settings, of_controller


def _serve(settings: Settings, of_controller: Settings | None) -> None:
    try:
        for warning in check_folders(settings):
            logger.warning("%s", warning)
        if of_controller is not None:
            controller.check_folders(of_controller)
    except ConfigError as exc:
        raise serving.failure("namesrv", exc, serving.BAD_SURROUNDINGS) from exc
    try:
        remoting.run(_run(settings, of_controller))
    except ConfigError as exc:
        raise serving.failure("namesrv", exc, serving.BAD_SETTINGS) from exc


async def _run(settings: Settings, of_controller: Settings | None) -> None:
    name_server = NameServer(settings)
    beside = controller.Controller(of_controller, embedded=True) if of_controller is not None else None
    systemd = Systemd.of(os.environ)

    def listening() -> None:
        line = f"The Name Server boot success. serializeType=JSON, address {name_server.address}"
        where = [serving.where(name_server.address, settings, only_changes=True), *say_where(monitor)]
        print("\n".join([line, *where]), flush=True)
        if not settings.value("rocketmqHome"):
            logger.warning("ROCKETMQ_HOME is not set; RocketMQ's name server needs it, PyroMQ's does not")

    def reload() -> None:
        systemd.reloading()
        for server in (name_server, beside):
            if server is not None:
                server.reload()
        systemd.reloaded()

    servers: list[NameServer | controller.Controller] = [name_server, *([beside] if beside is not None else [])]
    monitor = monitor_of(settings, NamesrvMetricsConfig, servers)

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as life:
            await life.enter_async_context(monitor)
            await life.enter_async_context(name_server)
            listening()
            if beside is not None:
                assert of_controller is not None
                await life.enter_async_context(beside)
                print("The ControllerManager boot success. serializeType=JSON")
                print(serving.where(beside.listens_on, of_controller), flush=True)
            systemd.ready(f"serving at {name_server.address}")
            await serving.first_ended(servers)

    await serving.until_stopped(serve(), "name server", systemd=systemd, reload=reload)
