"""`pyromq spark`: a Spark session with topics as views, as a shell, for a program or pipelines, or for the doctor."""

from __future__ import annotations

import code
import contextlib
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pyromq.spark as mq
from pyromq import __version__
from pyromq.errors import ConfigError, PyroMQError
from pyromq.spark.sessions.programs import named, our_words, run_python, run_sql, wait_for_queries

from ..failures import exit_code
from ..output import Output
from ..servers import serving
from . import spark_pipelines as pipelines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAILED = 1
INTERRUPTED = 130

app = serving.new_app()

Namesrv = Annotated[
    str,
    typer.Option("-n", "--namesrv", metavar="HOST:PORT", envvar="NAMESRV_ADDR", help="Name servers, separated by ';'."),
]
Master = Annotated[str | None, typer.Option(help="Spark master; local[*] by default.")]
Remote = Annotated[str | None, typer.Option(metavar="URL", help="Spark Connect server, sc://host:15002.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting.")]
Pattern = Annotated[str, typer.Option(metavar="REGEX", help="Topics to make views of.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's log.")]

LOCAL = "localhost:9876"

_HELP = {"help_option_names": ["-h", "--help"]}


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "spark", arguments)


@app.callback(no_args_is_help=True, context_settings=_HELP)
def spark() -> None:
    """Work with topics in Spark."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The session that the options ask for."""

    namesrv: str
    master: str | None
    remote: str | None
    conf: dict[str, str]
    verbose: bool

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """A session that ends with the block. Failures are reported in one line."""
        if not self.verbose:
            # Warnings about package versions that the user did not choose.
            warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        made = mq.session(self.namesrv, master=self.master, remote=self.remote, conf=self.conf, verbose=self.verbose)
        try:
            yield made
        finally:
            made.stop()


@app.command(context_settings=_HELP)
def shell(
    namesrv: Namesrv = LOCAL,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    pattern: Pattern = ".*",
    verbose: Verbose = False,
) -> None:
    """Start a Python shell with a Spark session in which every topic is a view.

    Example: pyromq spark shell
    """
    with failures(), wanted_session(namesrv, master, remote, conf, verbose).session() as made:
        topics = register(made, pattern)
        names = {"spark": made, "sql": made.sql, "mq": mq, "namesrv": namesrv}
        _complete(names)
        _Prompt(names).interact(_banner(made, namesrv, topics), exitmsg="")


@app.command(context_settings={"allow_interspersed_args": False, **_HELP})
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Program to run: FILE.py or FILE.sql.", exists=True, dir_okay=False)
    ],
    *,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="Arguments of the program; name=value for SQL.")
    ] = None,
    namesrv: Namesrv = LOCAL,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    pattern: Pattern = ".*",
    rows: Annotated[int, typer.Option(metavar="N", help="Rows to print of each SQL result.", min=1)] = 100,
    once: pipelines.Once = False,
    dry_run: pipelines.DryRun = False,
    output: pipelines.OutputForm = Output.table,
    verbose: Verbose = False,
) -> None:
    """Run a program in a Spark session in which every topic is a view, or the pipelines of a YAML file.

    Python programs find `spark`, `mq` and `namesrv`. SQL results are printed as tables. A streaming query prints a line
    per micro-batch and runs to its end. Pipelines run until Ctrl-C, or --once.

    Example: pyromq spark run report.sql day=2026-01-31
    """
    if file.suffix in (".yaml", ".yml"):
        _run_pipelines(file, wanted_session(namesrv, master, remote, conf, verbose), once, dry_run, output)
        return
    if file.suffix not in (".py", ".sql"):
        raise typer.BadParameter(f"{file} is neither FILE.py nor FILE.sql nor FILE.yaml")
    if once or dry_run:
        raise typer.BadParameter("--once and --dry-run are for FILE.yaml")
    with failures(file), contextlib.ExitStack() as life:
        values = named(arguments or []) if file.suffix == ".sql" else {}
        made = life.enter_context(wanted_session(namesrv, master, remote, conf, verbose).session())
        register(made, pattern)
        made.streams.addListener(mq.LagListener(_say))
        if file.suffix == ".sql":
            run_sql(made, file, values, rows=rows)
        else:
            run_python(file, arguments or [], {"spark": made, "mq": mq, "namesrv": namesrv})
        wait_for_queries(made)


@app.command(context_settings=_HELP)
def doctor(
    namesrv: Namesrv = LOCAL,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Check that the driver and every executor have what they need and reach every broker.

    The exit code is 1 if there is a problem.

    Example: pyromq spark doctor
    """
    with failures(), wanted_session(namesrv, master, remote, conf, verbose).session() as made:
        found = mq.doctor(made, namesrv)
        print(found)
        if not found.is_well:
            raise typer.Exit(FAILED)


def _run_pipelines(file: Path, wanted: Wanted, once: bool, dry_run: bool, output: Output) -> None:
    with failures():
        found = pipelines.read_file(file, wanted.namesrv)
        with wanted.session() as made:
            code = pipelines.run_file(found, made, once=once, dry_run=dry_run, output=output)
        if code:
            raise typer.Exit(code)


@contextlib.contextmanager
def _opened(
    namesrv: str, master: str | None, remote: str | None, conf: list[str] | None, verbose: bool
) -> Iterator[tuple[Callable[[], contextlib.AbstractContextManager[Any]], str]]:
    """A way to open the session that options ask for, and its name servers; failures are reported."""
    with failures():
        wanted = wanted_session(namesrv, master, remote, conf, verbose)
        yield wanted.session, wanted.namesrv


pipelines.add_commands(
    app,
    {
        "namesrv": (Namesrv, LOCAL),
        "master": (Master, None),
        "remote": (Remote, None),
        "conf": (Conf, None),
        "verbose": (Verbose, False),
    },
    _opened,
    context_settings=_HELP,
)


class _Prompt(code.InteractiveConsole):
    """Shows our error in one line: Spark wraps it in two stacks."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, PyroMQError):
            self.write(f"{type(error).__name__}: {error}\n")
        elif ours := our_words(str(error)):
            self.write(f"{type(error).__name__}: {ours}\n")
        else:
            super().showtraceback()


def wanted_session(
    namesrv: str, master: str | None, remote: str | None, conf: list[str] | None, verbose: bool
) -> Wanted:
    """The session that options ask for. Raises ConfigError for those that make no sense."""
    pairs = [pair.partition("=") for pair in conf or ()]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise ConfigError(f"--conf must be KEY=VALUE, not {key!r}")
    if master and remote:
        raise ConfigError("use either --master or --remote")
    return Wanted(namesrv, master, remote, {key: value for key, _, value in pairs}, verbose)


@contextlib.contextmanager
def failures(file: Path | None = None, *, noun: str = "spark") -> Iterator[None]:
    """Report errors: ours in one line, a program's as Python shows them, without our own frames."""
    try:
        yield
    except PyroMQError as exc:
        raise serving.failure(noun, exc, exit_code(exc)) from exc
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, SystemExit):
        raise
    except Exception as exc:
        trace = exc.__traceback__
        while trace is not None and file is not None and trace.tb_frame.f_code.co_filename != str(file):
            trace = trace.tb_next
        if (ours := our_words(str(exc))) is not None:
            # Spark wraps our sentence in its own words and stacks, which say nothing that the user could change.
            where = f" ({file}, line {trace.tb_lineno})" if trace is not None and file is not None else ""
            raise serving.failure("spark", PyroMQError(f"{ours}{where}"), FAILED) from exc
        traceback.print_exception(exc.with_traceback(trace or exc.__traceback__))
        raise typer.Exit(FAILED) from exc


def register(made: Any, pattern: str) -> list[str]:
    try:
        return mq.register_topics(made, pattern=pattern)
    except ConfigError:
        raise
    except PyroMQError as exc:
        # A program may do without; and a shell is a good place to find out why.
        _say(f"pyromq spark: no topic is a view: {exc}")
        return []


def _banner(made: Any, namesrv: str, topics: list[str]) -> str:
    listed = ", ".join(topics[:5]) + (", …" if len(topics) > 5 else "")
    views = f"{len(topics)} topics of {namesrv} are views: {listed}" if topics else f"{namesrv} has no topics yet"
    topic = topics[0] if topics else "orders"
    return "\n".join(
        [
            f"PyroMQ {__version__} on Spark {made.version}; {views}",
            f'  sql("SELECT queueId, count(*) FROM `{topic}` GROUP BY queueId").show()',
            f'  mq.describe(spark, "{topic}")   mq.stream(spark, "{topic}")   mq.doctor(spark)   help(mq)',
        ]
    )


def _complete(names: dict[str, Any]) -> None:
    try:
        import readline
        import rlcompleter
    except ImportError:  # not available on Windows
        return
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")


def _say(what: object) -> None:
    print(what, file=sys.stderr, flush=True)
