"""`pyromq controller`, also `mqcontroller`: run a controller with RocketMQ's options and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import remoting
from pyromq.controller import Controller, check_folders, load_settings
from pyromq.errors import ConfigError
from pyromq.metrics.config import ControllerMetricsConfig
from pyromq.settings import dump

from . import logs, serving
from .monitoring import monitor_of, say_where
from .systemd import Systemd

if TYPE_CHECKING:
    from pyromq.settings import Settings

app = serving.new_app()


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "controller", arguments)


def console() -> None:
    """The console script `mqcontroller`, RocketMQ's name for the command."""
    sys.exit(serving.run_app(app, "controller", sys.argv[1:], called="mqcontroller"))


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def controller(
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
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key.")] = None,
    log_level: Annotated[logs.LogLevel, typer.Option(help="Log level.")] = logs.LogLevel.info,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Log format.")] = logs.LogFormat.text,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log to files in this directory (1 GiB at most) instead of stderr."),
    ] = None,
) -> None:
    """Run a controller: it decides who is master of each broker group.

    With a verb it manages running ones: `pyromq controller help` lists status, elect, clean and more.

    Brokers with enableControllerMode=true find it by controllerAddr. A name server can run one, too:
    enableControllerInNamesrv=true.

    Settings come from the file, variables PYROMQ_<UPPER_SNAKE>, --set and bare key=value arguments, in this order; the
    last one wins.

    Example: pyromq controller controllerDLegerPeers=n0-10.0.0.1:9878 controllerStorePath=/var/lib/controller
    """
    serving.set_up_logs("controller", log_level, log_format, log_dir)
    settings = _settings(config_file, sets or [], properties or [])
    if config_file is not None:
        # When only printing settings, stdout is data for another program.
        out = sys.stderr if print_config or print_items else sys.stdout
        print(f"load config properties file OK, {config_file}", file=out)
    if print_config:
        print(settings.listing(), end="")
    elif print_items:
        print(dump(settings.items(reveal=False)), end="")
    else:
        _serve(settings)


def _settings(file: Path | None, sets: list[str], arguments: list[str]) -> Settings:
    try:
        settings = load_settings(file, environ=os.environ, sets=sets, arguments=arguments)
    except ConfigError as exc:
        raise serving.failure("controller", exc, serving.BAD_SETTINGS) from exc
    serving.log_notices(settings)
    return settings


def _serve(settings: Settings) -> None:
    try:
        check_folders(settings)
    except ConfigError as exc:
        raise serving.failure("controller", exc, serving.BAD_SURROUNDINGS) from exc
    try:
        remoting.run(_run(settings))
    except ConfigError as exc:
        raise serving.failure("controller", exc, serving.BAD_SETTINGS) from exc


async def _run(settings: Settings) -> None:
    server = Controller(settings)
    systemd = Systemd.of(os.environ)

    def listening() -> None:
        print("The Controller Server boot success. serializeType=JSON")
        print("\n".join([serving.where(server.listens_on, settings), *say_where(monitor)]), flush=True)
        systemd.ready(f"serving at {server.address}")

    def reload() -> None:
        systemd.reloading()
        server.reload()
        systemd.reloaded()

    monitor = monitor_of(settings, ControllerMetricsConfig, [server])

    async def serve() -> None:
        async with monitor:
            await server.run(listening)

    await serving.until_stopped(serve(), "controller", systemd=systemd, reload=reload)
