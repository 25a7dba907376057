"""`pyromq config validate FILE`: check a settings file as a server would, without starting one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.errors import ConfigError

from ..failures import Exit
from ..session import Session
from ..verbs import new_app, reading, run_app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.settings import Assignment, Option

app = new_app("Check settings files such as broker.conf.")


class Server(StrEnum):
    broker = "broker"
    namesrv = "namesrv"
    controller = "controller"


class Level(StrEnum):
    ERROR = "error"  # the server does not start
    WARNING = "warning"  # it starts, but does not do what was meant
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding about one line of a file; `line` is None for the whole file."""

    line: int | None
    level: Level
    key: str | None
    remark: str


def main(arguments: list[str]) -> int:
    return run_app(app, "config", arguments)


@reading(app, "validate", connects=False)
async def validate(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Properties file, as for `pyromq broker -c`.")],
    server: Annotated[
        Server | None, typer.Option("--for", help="Server that the file is for; guessed from its keys if omitted.")
    ] = None,
) -> Listing[Remark]:
    """Find settings that are malformed, misspelt or without effect.

    The exit code is 0 if a server would start and do what is meant, 1 if not, 2 if the file does not exist.

    Example: pyromq config validate broker.conf
    """
    from pyromq.settings import read_file

    if not file.is_file():
        raise ConfigError("there is no such file", str(file))
    try:
        assignments = read_file(file)
    except ConfigError as exc:
        remarks = [_of_error(exc, file)]
        whose, count = server or Server.broker, 0
    else:
        whose, count = server or _whose(assignments), len(assignments)
        remarks = [*_remarks(assignments, whose)]
        if not any(remark.level is Level.ERROR for remark in remarks):
            remarks += _together(file, whose)
    counts = Counter(remark.level for remark in remarks)
    if counts[Level.ERROR] or counts[Level.WARNING]:
        session.exit_code = Exit.REFUSED
    found = ", ".join(f"{counts[level]} {level}{'s' * (counts[level] != 1)}" for level in Level if counts[level])
    summary = f"{count} settings of a {_NAMES[whose]}: {found or 'no problems'}"
    return Listing.make(Remark, sorted(remarks, key=lambda remark: remark.line or 0), summary=summary)


# A name server with it also runs a controller, which reads the same file.
_EMBEDDED = "enableControllerInNamesrv"
_NAMES = {Server.broker: "broker", Server.namesrv: "name server", Server.controller: "controller"}


def _options(server: Server) -> dict[str, Option]:
    from pyromq.settings import options_of

    if server is Server.broker:
        from pyromq.broker.config import CONFIGS
    elif server is Server.controller:
        from pyromq.controller.config import CONFIGS  # type: ignore[assignment]  # as below
    else:
        from pyromq.namesrv.config import CONFIGS  # type: ignore[assignment]  # other classes, the same use
    return {option.key: option for config in CONFIGS for option in options_of(config)}


def _whose(assignments: list[Assignment]) -> Server:
    keys = {assignment.key for assignment in assignments}
    if _EMBEDDED in keys:
        return Server.namesrv
    known = {server: {*_options(server)} for server in Server}

    def own(server: Server) -> int:
        elsewhere = set().union(*(known[other] for other in Server if other is not server))
        return len(keys & (known[server] - elsewhere))

    return max(Server, key=own)


def _remarks(assignments: list[Assignment], server: Server) -> Iterator[Remark]:
    from pyromq.settings.loading import resembling

    known = _options(server)
    if server is Server.namesrv and any(assignment.key == _EMBEDDED for assignment in assignments):
        known = _options(Server.controller) | known
    last = {assignment.key: _line(assignment.source) for assignment in assignments}
    for key, text, source in assignments:
        line = _line(source)
        if last[key] != line:
            yield Remark(line, Level.WARNING, key, f"overridden by line {last[key]}")
        option = known.get(key)
        if option is None:
            yield Remark(line, Level.WARNING, key, f"is not a {_NAMES[server]} setting{resembling(key, known)}")
            continue
        try:
            option.parse(text)
        except ValueError as exc:
            yield Remark(line, Level.ERROR, key, str(exc))
        else:
            if option.no_effect:
                yield Remark(line, Level.NOTE, key, option.why_no_effect.removeprefix(f"{key} "))


def _together(file: Path, server: Server) -> Iterator[Remark]:
    """Problems with settings that are well formed one by one."""
    try:
        if server is Server.broker:
            from pyromq.broker import cautions, check_settings, load_settings

            settings = load_settings(file)
            check_settings(settings)
            for caution in cautions(settings):
                yield Remark(None, Level.WARNING, None, caution)
            return
        from pyromq import controller, namesrv

        with_controller = server is Server.controller
        if server is Server.namesrv:
            settings = namesrv.load_settings(file)
            namesrv.check_settings(settings)
            with_controller = settings[namesrv.NamesrvConfig].enable_controller
        if with_controller:
            controller.check_settings(controller.load_settings(file))
    except ConfigError as exc:
        yield _of_error(exc, file)


def _of_error(error: ConfigError, file: Path) -> Remark:
    line = _line(error.source) if error.source.startswith(f"{file}:") else None
    return Remark(line, Level.ERROR, None, error.reason if line or error.source == str(file) else str(error))


def _line(source: str) -> int | None:
    number = source.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdecimal() else None
