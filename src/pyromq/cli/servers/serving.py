"""Shared by the commands that run servers: exit codes, one-line failures, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import typer

from pyromq.auth.assembly import wants_accounts
from pyromq.errors import ConfigError
from pyromq.remoting.addresses import is_loopback, split_address

from . import logs, stacks
from .port_holder import holder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from pyromq.errors import PyroMQError
    from pyromq.remoting.service import Service
    from pyromq.settings import Settings

    from .systemd import Systemd

logger = logging.getLogger(__name__)

# RocketMQ's exit codes: −1 and −3 as a shell sees them, and 1 for a command line that makes no sense.
BAD_SETTINGS = 255
BAD_SURROUNDINGS = 253
BAD_USAGE = 1

_TAKEN = re.compile(r"port ([0-9]{1,5}) is taken")


def new_app() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def run_app(app: typer.Typer, name: str, arguments: list[str], *, called: str | None = None) -> int:
    """Run a command; returns the exit code. `called` is the name its user typed, if it is another one."""
    try:
        app(arguments, prog_name=called or f"pyromq {name}")
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
        return BAD_USAGE if code == 2 else code
    return 0


def failure(name: str, error: PyroMQError, code: int) -> typer.Exit:
    """Report a failure in one line; a stack trace would only hide it. For a taken port, name its holder if known."""
    line = str(error)
    if (taken := _TAKEN.search(line)) and (holder := holder_of(int(taken[1]))):
        line = f"{line[: taken.end()]} by {holder}{line[taken.end() :]}"
    print(f"pyromq {name}: {line}", file=sys.stderr)
    return typer.Exit(code)


def where(address: str, settings: Settings, *, only_changes: bool = False) -> str:
    """The line after the ready line: where the server listens, and whom it lets in."""
    host = split_address(address)[0]
    reach = "this machine only" if is_loopback(host) else "anyone who can reach this machine"
    proof = "nothing is authenticated"
    if wants_accounts(settings):
        proof = "changes need an account" if only_changes else "requests need an account"
    return f"Listening on {address}, open to {reach}; {proof}."


def log_notices(settings: Settings, second: Settings | None = None) -> None:
    """Warn once about settings that are odd but no reason to stop; `second` are those of a server beside it."""
    notices = settings.notices(shared_with=second)
    if second is not None:
        notices += second.notices(shared_with=settings)
    for notice in dict.fromkeys(notices):
        logger.warning("%s", notice)
    if os.environ.get("JAVA_OPT_EXT"):
        logger.info("JAVA_OPT_EXT is set but has no effect: PyroMQ does not run on Java")


def set_up_logs(
    name: str, level: logs.LogLevel, style: logs.LogFormat, folder: Path | None, file: str | None = None
) -> None:
    """Start logging for the command `name`. With a folder, the log file is called `file`, or `name` without one."""
    try:
        logs.set_up(level, style, folder, file or name)
    except ConfigError as exc:
        raise failure(name, exc, BAD_USAGE) from exc


async def first_ended(services: Sequence[Service]) -> None:
    """Wait until one of these running services ends, which none should; raises why it did."""
    endings = [asyncio.create_task(service.ended()) for service in services]
    try:
        done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
    finally:
        for ending in endings:
            ending.cancel()
        await asyncio.gather(*endings, return_exceptions=True)


async def until_stopped(
    service: Coroutine[Any, Any, None],
    name: str,
    *,
    systemd: Systemd,
    reload: Callable[[], None],
    passed_on: Callable[[signal.Signals], None] = lambda number: None,
    leash: int | None = None,
) -> None:
    """Run `service` until SIGTERM or SIGINT cancels it; a second one ends the process at once.

    End of file on `leash`, a descriptor, counts as a signal too. SIGHUP calls `reload`, SIGUSR1 reopens the log files,
    SIGUSR2 writes all stacks to stderr. `passed_on` hears of SIGUSR1, to pass it on to further processes.
    """
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(service, name=name)
    alive = asyncio.create_task(systemd.keep_alive(), name="watchdog")
    stopping = False

    def stop(why: str, code: int) -> None:
        nonlocal stopping
        if stopping:
            os._exit(code)
        stopping = True
        logger.info("stopping on %s", why)
        systemd.stopping()
        serving.cancel()

    def pulled(descriptor: int) -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            if not stopping:
                stop("the end of its supervisor", 1)

    def reopen() -> None:
        try:
            logs.reopen()
        except OSError as exc:
            logger.error("log files cannot be reopened: %s", exc.strerror)
        else:
            logger.info("log files reopened")
        passed_on(signal.SIGUSR1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name, 128 + number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGUSR1, reopen)
    stacks.dump_on(signal.SIGUSR2)
    if leash is not None:
        loop.add_reader(leash, pulled, leash)
    try:
        await serving
    except asyncio.CancelledError:
        logger.info("stopped")
    finally:
        stacks.no_dump_on(signal.SIGUSR2)
        if leash is not None:
            loop.remove_reader(leash)
        alive.cancel()
        await asyncio.wait([alive])
