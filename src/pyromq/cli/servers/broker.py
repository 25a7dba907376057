"""`pyromq broker`, also `mqbroker`: run a broker with RocketMQ's options and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import remoting
from pyromq.broker import Broker, check_settings, important, load_settings
from pyromq.errors import ConfigError, StoreError
from pyromq.metrics import MetricsConfig
from pyromq.settings import dump

from . import logs, serving
from .monitoring import monitor_of, say_where
from .systemd import Systemd

if TYPE_CHECKING:
    from pyromq.settings import Settings

app = serving.new_app()


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "broker", arguments)


def console() -> None:
    """The console script `mqbroker`, RocketMQ's name for the command."""
    sys.exit(serving.run_app(app, "broker", sys.argv[1:], called="mqbroker"))


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def broker(
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that override all others.")
    ] = None,
    *,
    config_file: Annotated[
        Path | None,
        typer.Option("-c", "--configFile", help="Properties file; run-time changes are written back to it."),
    ] = None,
    namesrv_addr: Annotated[
        str | None, typer.Option("-n", "--namesrvAddr", help="Name servers as host:port;host:port.")
    ] = None,
    print_items: Annotated[
        bool, typer.Option("-p", "--printConfigItem", help="Print all settings as key=value and exit.")
    ] = False,
    print_important: Annotated[
        bool, typer.Option("-m", "--printImportantConfig", help="Print the important settings and exit.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings with their origins and exit.")
    ] = False,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key.")] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
    log_level: Annotated[logs.LogLevel, typer.Option(help="Log level.")] = logs.LogLevel.info,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Log format.")] = logs.LogFormat.text,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log to files in this directory (1 GiB at most) instead of stderr."),
    ] = None,
    log_name: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a broker.

    With a verb it inspects and changes running brokers: `pyromq broker help` lists status, config, lag and more.

    Settings come from NAMESRV_ADDR, the file, variables PYROMQ_<UPPER_SNAKE>, --set, bare key=value arguments and -n,
    in this order; the last one wins.

    Example: pyromq broker -c broker.conf -n 10.0.0.5:9876
    """
    serving.set_up_logs("broker", log_level, log_format, log_dir, log_name)
    try:
        settings = load_settings(
            config_file, environ=os.environ, sets=sets or [], arguments=properties or [], namesrv_addr=namesrv_addr
        )
    except ConfigError as exc:
        raise serving.failure("broker", exc, serving.BAD_SETTINGS) from exc
    serving.log_notices(settings)
    if print_config:
        print(settings.listing(), end="")
    elif print_items:
        print(dump(settings.items(reveal=False)), end="")
    elif print_important:
        print(dump(important(settings)), end="")
    else:
        _serve(settings, supervised=supervised)


def _serve(settings: Settings, *, supervised: bool) -> None:
    try:
        check_settings(settings)
    except ConfigError as exc:
        raise serving.failure("broker", exc, serving.BAD_SURROUNDINGS) from exc
    try:
        remoting.run(_run(settings, supervised=supervised))
    except StoreError as exc:
        raise serving.failure("broker", exc, serving.BAD_SURROUNDINGS) from exc
    except ConfigError as exc:
        raise serving.failure("broker", exc, serving.BAD_SETTINGS) from exc


async def _run(settings: Settings, *, supervised: bool) -> None:
    serving_broker = Broker(settings)
    systemd = Systemd.of(os.environ)
    systemd.status("opening the store")

    def listening() -> None:
        config = serving_broker.config
        line = f"The broker[{config.broker_name}, {serving_broker.address}] boot success. serializeType=JSON"
        if config.namesrv_addr:
            line += f" and name server is {config.namesrv_addr}"
        where = [serving.where(serving_broker.listens_on, settings), *say_where(monitor)]
        print("\n".join([line, *where]), flush=True)
        systemd.ready(f"serving at {serving_broker.address}")

    def reload() -> None:
        systemd.reloading()
        serving_broker.reload()
        systemd.reloaded()

    # Its supervisor holds the other end of stdin and may die without warning.
    leash = sys.stdin.fileno() if supervised else None
    # Its supervisor may start many, and can do without this.
    monitor = monitor_of(settings, MetricsConfig, [serving_broker], must_listen=False if supervised else None)

    async def serve() -> None:
        # First, so that a long recovery can be watched; last, so that a long stop can.
        async with monitor:
            await serving_broker.run(listening)

    await serving.until_stopped(serve(), "broker", systemd=systemd, reload=reload, leash=leash)
