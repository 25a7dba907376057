"""`pyromq namesrv`, also as `mqnamesrv`: run a name server with the options and exit codes that RocketMQ's has."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import remoting
from pyromq.errors import ConfigError
from pyromq.namesrv import NameServer, check_folders, load_settings
from pyromq.settings import dump

from . import logs, serving
from .systemd import Systemd

if TYPE_CHECKING:
    from pyromq.settings import Settings

logger = logging.getLogger(__name__)

app = serving.new_app()


def main(arguments: list[str]) -> int:
    """Run the command; the result is the exit code of the process."""
    return serving.run_app(app, "namesrv", arguments)


def console() -> None:
    """The console script `mqnamesrv`, for those who know the command by RocketMQ's name."""
    sys.exit(serving.run_app(app, "namesrv", sys.argv[1:], called="mqnamesrv"))


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def namesrv(
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that win over all others.")
    ] = None,
    *,
    config_file: Annotated[
        Path | None,
        typer.Option("-c", "--configFile", help="Properties file; changes at run time are written back to it."),
    ] = None,
    print_items: Annotated[
        bool, typer.Option("-p", "--printConfigItem", help="Print all settings as key=value and exit.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings with where they came from and exit.")
    ] = False,
    namesrv_addr: Annotated[
        str | None, typer.Option("-n", "--namesrvAddr", help="Taken for RocketMQ's sake; has no effect here.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one setting.")] = None,
    log_level: Annotated[logs.LogLevel, typer.Option(help="How much to log.")] = logs.LogLevel.info,
    log_format: Annotated[logs.LogFormat, typer.Option(help="How to log.")] = logs.LogFormat.text,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Log to files there, at most 1 GiB of them, not to stderr.")
    ] = None,
) -> None:
    """Run a name server.

    With a verb it changes name servers that run: `pyromq namesrv help` lists config and kv.

    Settings are taken from the file, then from variables PYROMQ_<UPPER_SNAKE>, then from --set, then from bare
    key=value arguments; the last one wins.

    Example: pyromq namesrv -c namesrv.properties listenPort=9876
    """
    serving.set_up_logs("namesrv", log_level, log_format, log_dir)
    settings = _settings(config_file, sets or [], properties or [])
    if config_file is not None:
        # Where only settings are asked for, stdout is data for another program.
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
        raise serving.failure("namesrv", exc, serving.BAD_SETTINGS) from exc
    serving.log_notices(settings)
    return settings


def _serve(settings: Settings) -> None:
    try:
        for warning in check_folders(settings):
            logger.warning("%s", warning)
    except ConfigError as exc:
        raise serving.failure("namesrv", exc, serving.BAD_SURROUNDINGS) from exc
    try:
        remoting.run(_run(settings))
    except ConfigError as exc:
        raise serving.failure("namesrv", exc, serving.BAD_SETTINGS) from exc


async def _run(settings: Settings) -> None:
    name_server = NameServer(settings)
    systemd = Systemd.of(os.environ)

    def listening() -> None:
        line = f"The Name Server boot success. serializeType=JSON, address {name_server.address}"
        print(f"{line}\n{serving.where(name_server.address)}", flush=True)
        systemd.ready(f"serving at {name_server.address}")
        if not settings.value("rocketmqHome"):
            logger.warning("ROCKETMQ_HOME is not set; RocketMQ's name server needs it, this one does not")

    def reload() -> None:
        systemd.reloading()
        name_server.reload()
        systemd.reloaded()

    await serving.until_stopped(name_server.run(listening), "name server", systemd=systemd, reload=reload)
