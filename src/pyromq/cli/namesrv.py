"""`pyromq namesrv`: run a name server with the options and exit codes of RocketMQ's `mqnamesrv`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import remoting
from pyromq.errors import ConfigError
from pyromq.namesrv import NameServer, check_folders, load_settings
from pyromq.settings import dump

from . import logs

if TYPE_CHECKING:
    from pyromq.settings import Settings

logger = logging.getLogger(__name__)

# RocketMQ's exit codes: −1 and −3 as a shell sees them, and 1 for a command line that makes no sense.
BAD_SETTINGS = 255
BAD_SURROUNDINGS = 253
BAD_USAGE = 1

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main(arguments: list[str]) -> int:
    """Run the command; the result is the exit code of the process."""
    try:
        app(arguments, prog_name="pyromq namesrv")
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
        return BAD_USAGE if code == 2 else code
    return 0


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def namesrv(
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that win over all others.")
    ] = None,
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
) -> None:
    """Run a name server.

    Settings are taken from the file, then from variables PYROMQ_<UPPER_SNAKE>, then from --set, then from bare
    key=value arguments; the last one wins.
    """
    logs.set_up(log_level, log_format)
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
        raise _failure(exc, BAD_SETTINGS) from exc
    for notice in settings.notices():
        logger.warning("%s", notice)
    return settings


def _serve(settings: Settings) -> None:
    if os.environ.get("JAVA_OPT_EXT"):
        logger.info("JAVA_OPT_EXT is set and has no effect: there is no Java here")
    try:
        for warning in check_folders(settings):
            logger.warning("%s", warning)
    except ConfigError as exc:
        raise _failure(exc, BAD_SURROUNDINGS) from exc
    try:
        remoting.run(_run(settings))
    except ConfigError as exc:
        raise _failure(exc, BAD_SETTINGS) from exc


async def _run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends the process on the spot."""
    loop = asyncio.get_running_loop()
    name_server = NameServer(settings)

    def listening() -> None:
        print(f"The Name Server boot success. serializeType=JSON, address {name_server.address}", flush=True)

    serving = asyncio.create_task(name_server.run(listening), name="name server")

    def stop(number: signal.Signals) -> None:
        if serving.cancelling():
            os._exit(128 + number)
        logger.info("stopping on %s", number.name)
        serving.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        await serving
    except asyncio.CancelledError:
        logger.info("stopped")


def _failure(error: ConfigError, code: int) -> typer.Exit:
    """Say what is wrong in one line; a stack trace would only hide it."""
    print(f"pyromq namesrv: {error}", file=sys.stderr)
    return typer.Exit(code)
