"""Pipelines on the command line: `pyromq spark archive|replay|transform|audit|lag|latency`, and files of several.

The flags of a command are the settings of its pipeline (`pyromq/spark/pipelines/settings.py`). Exit codes are those of
all commands: 0 done, 1 failed or done in part, 6 an audit or an alarm found something, and so on.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pyromq.spark as mq
from pyromq.errors import ConfigError
from pyromq.spark.option_values import boolean, declared
from pyromq.spark.pipelines.pipelines_file import LakePlace, in_folder, read_pipelines
from pyromq.spark.pipelines.settings import KINDS, LISTS, parse

from ..failures import Exit, exit_code
from ..output import Output, Printer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyromq.spark.option_values import OptionInfo
    from pyromq.spark.pipelines.pipelines_file import PipelinesFile
    from pyromq.spark.pipelines.runner import Result
    from pyromq.spark.pipelines.settings import AnySettings
    from pyromq.spark.pipelines.surroundings import Outcome, Pipeline, Surroundings

# Go on until they are stopped, unless told otherwise; the others do one round, unless --every is given.
_LASTING = ("archive", "transform")

Lake = Annotated[
    str | None, typer.Option("--lake", metavar="ROOT", envvar="PYROMQ_LAKE", help="A folder, or s3://bucket/folder.")
]
LakeFormat = Annotated[
    str | None, typer.Option("--lake-format", metavar="FORMAT", help="delta, or iceberg: the default with a catalog.")
]
LakeOption = Annotated[
    list[str] | None,
    typer.Option("--lake-option", metavar="KEY=VALUE", help="For the storage; env:NAME looks a value up."),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="For the cluster: credentials=env:MQ, tls=true, …"),
]
State = Annotated[Path | None, typer.Option("--state", metavar="FOLDER", help="What has to survive a restart.")]
Once = Annotated[bool, typer.Option("--once", help="Do what there is now, and end.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OutputForm = Annotated[Output, typer.Option("-o", "--output", help="Format of results.")]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to run: what all of these commands have in common."""

    once: bool
    dry_run: bool
    output: Output
    asks: bool = False  # before it changes anything


def add_commands(
    app: typer.Typer, session_options: Mapping[str, tuple[Any, Any]], opened: Callable[..., Any], **settings: Any
) -> None:
    """Add a command for each pipeline. `opened` is a context with a session, by the values of `session_options`."""
    for kind, cls in KINDS.items():
        app.command(kind, **settings)(_command(kind, cls, session_options, opened))


def _command(
    kind: str, cls: type, session_options: Mapping[str, tuple[Any, Any]], opened: Callable[..., Any]
) -> Callable[..., None]:
    flags = dict(declared(cls))
    common: dict[str, tuple[Any, Any]] = {
        "lake": (Lake, None),
        "lake_format": (LakeFormat, None),
        "lake_option": (LakeOption, None),
        "option": (SourceOption, None),
        "state": (State, None),
        **({"once": (Once, False)} if kind in _LASTING else {}),
        **({"yes": (Yes, False)} if kind == "replay" else {}),
        "dry_run": (DryRun, False),
        "output": (OutputForm, Output.table),
        **session_options,
    }

    def command(**given: Any) -> None:
        texts = {info.key: _text(given.pop(name)) for name, info in flags.items() if given[name] is not None}
        options = {name: given.pop(name) for name in session_options}
        with opened(**options) as (session, namesrv):
            settings: AnySettings = parse(cls, texts)
            where = _surroundings(
                {"namesrv": namesrv, **pairs("--option", given["option"])},
                lake_place(given["lake"], given["lake_format"], pairs("--lake-option", given["lake_option"])),
                given["state"],
                Path.cwd(),
            )
            once = given.get("once", kind not in _LASTING and "every" not in texts)
            how = Wanted(once, given["dry_run"], given["output"], asks=kind == "replay" and not given["yes"])
            code = _run([(kind, settings)], where, how, session)
        if code:
            raise typer.Exit(code)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, default=None, annotation=_flag(info)) for name, info in flags.items()
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=default, annotation=form) for name, (form, default) in common.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer looks there
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__ = kind
    command.__doc__ = f"{(cls.__doc__ or '').strip()}\n\n    Example: {_EXAMPLES[kind]}\n    "
    return command


_EXAMPLES = {
    "archive": "pyromq spark archive --topics orders --lake /data/lake --once",
    "replay": "pyromq spark replay --from %DLQ%billing --rate 100",
    "transform": "pyromq spark transform --from orders --to vip --sql \"select * from orders where tags = 'vip'\" "
    "--state /data/vip",
    "audit": "pyromq spark audit --topics orders --lake /data/lake",
    "lag": "pyromq spark lag --groups billing --alarms 'lag>1000'",
    "latency": "pyromq spark latency --since -1h",
}


def _flag(info: OptionInfo) -> Any:
    words = re.sub("([A-Z])", lambda capital: f"-{capital[1].lower()}", info.key)
    if info.parse is boolean:
        return Annotated[bool | None, typer.Option(f"--{words}/--no-{words}", help=info.doc)]
    kind: Any = list[str] | None if info.parse in LISTS else str | None
    return Annotated[kind, typer.Option(f"--{words}", metavar=words.rpartition("-")[2].upper(), help=info.doc)]


def _text(value: Any) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        # A flag may be given several times, and each time with commas.
        return value if len(value) > 1 else str(value[0])
    return str(value)


# Files


def read_file(file: Path, namesrv: str) -> PipelinesFile:
    return read_pipelines(file, namesrv=namesrv)


def run_file(found: PipelinesFile, spark: Any, *, once: bool, dry_run: bool, output: Output) -> int:
    """Run the pipelines of a file; gives the exit code."""
    where = _surroundings(found.connection, found.lake, found.state, found.folder)
    entries = [(entry.kind, entry.settings) for entry in found.entries]
    return _run(entries, where, Wanted(once, dry_run, output), lambda: contextlib.nullcontext(spark))


# Running


def _surroundings(
    connection: Mapping[str, str], lake: LakePlace | None, state: Path | None, folder: Path
) -> Callable[[Any], Surroundings]:
    # Not made before there is a session: its module imports Spark.
    def made(session: Any) -> Surroundings:
        from pyromq.spark.pipelines.surroundings import Surroundings

        where = Surroundings(session, dict(connection), lake, state, folder)
        where.say = where.report = _say
        return where

    return made


def _run(
    entries: Sequence[tuple[str, AnySettings]],
    made: Callable[[Any], Surroundings],
    how: Wanted,
    session: Callable[[], contextlib.AbstractContextManager[Any]],
) -> int:
    with session() as spark:
        from pyromq.spark.pipelines.progress import streamed
        from pyromq.spark.pipelines.runner import keep_running, make, run_once

        where = made(spark)
        spark.streams.addListener(mq.LagListener(lambda at: where.report(streamed(at))))
        pipelines = [make(kind, settings, where) for kind, settings in entries]
        if how.dry_run or how.asks:
            planned = [_planned(pipeline) for pipeline in pipelines]
            if how.dry_run:
                return Exit.OK
            if all(planned):
                return Exit.OK
            _agree()
        printer = Printer(how.output)
        lock = threading.Lock()

        def tell(outcome: Outcome) -> None:
            with lock:
                _tell(outcome, printer)

        if how.once:
            results = run_once(pipelines, tell)
            _report_errors(results)
        else:
            with _stopped_by_signals(where):
                results = keep_running(pipelines, where, tell)
            _say_ends(results)
        return _code(results)


def _planned(pipeline: Pipeline) -> bool:
    """Print a plan; gives whether there is nothing to do."""
    plan = pipeline.plan()
    for line in plan.lines:
        print(line)
    return plan.is_idle


def _agree() -> None:
    if not sys.stdin.isatty():
        raise ConfigError("nothing was sent: --yes sends without asking")
    if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was sent")


def _tell(outcome: Outcome, printer: Printer) -> None:
    if outcome.row_type is not None:
        printer.rows(outcome.row_type, outcome.table)
    _say(outcome.summary)
    for problem in outcome.problems:
        _say(f"  found: {problem}")
    for failure in outcome.failures:
        _say(f"  failed: {failure}")


def _report_errors(results: Sequence[Result]) -> None:
    for result in results:
        if result.error is not None:
            _say(f"{result.name}: {result.error}")


def _say_ends(results: Sequence[Result]) -> None:
    for result in results:
        how = f"failed: {result.error}" if result.error is not None else "stopped"
        _say(f"{result.name}: {how}; {result.rounds:,} rounds, {result.rows:,} rows")


def _code(results: Sequence[Result]) -> int:
    for result in results:
        if result.error is not None:
            return exit_code(result.error)
        if result.is_failed:
            return Exit.REFUSED
    # Alarms of earlier rounds were told then; the end is judged by the last.
    return Exit.THRESHOLD if any(each.outcome is not None and each.outcome.problems for each in results) else Exit.OK


@contextlib.contextmanager
def _stopped_by_signals(where: Surroundings) -> Iterator[None]:
    """Ctrl-C and SIGTERM let every pipeline come to rest; a second one ends at once."""

    def stop(number: int, _frame: object) -> None:
        if where.stopping.is_set():
            raise KeyboardInterrupt
        _say(f"stopping on {signal.Signals(number).name}; once more ends at once")
        where.stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pairs(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise ConfigError(f"{flag} must be KEY=VALUE, not {each!r}")
        found[key] = value
    return found


def lake_place(root: str | None, kind: str | None, options: Mapping[str, str]) -> LakePlace | None:
    """The lake that options name; None if they name none."""
    if root is None:
        return None
    values = {}
    for key, value in options.items():
        name = value.removeprefix("env:")
        if key == "credentials" or name == value:
            values[key] = value
        elif name in os.environ:
            values[key] = os.environ[name]
        else:
            raise ConfigError(f"--lake-option {key}: the environment has no variable {name}")
    return LakePlace(in_folder(root, Path.cwd()), kind, values)


def _say(what: object) -> None:
    print(what, file=sys.stderr, flush=True)
