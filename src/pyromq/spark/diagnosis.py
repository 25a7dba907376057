"""Whether a Spark can work with a cluster: looked at from the driver and from every executor.

What runs on executors is sent by its code and needs nothing but Python, so one without our package can say so.
"""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from pyromq import __version__
from pyromq.errors import ConfigError, PyroMQError

from .link import Link
from .meta_rows import MetaRows
from .options import ConnectionOptions, parse
from .sessions import namesrv_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# What a task of ours imports, with the least version where one matters.
MODULES = {"pyromq": None, "pyarrow": (18,), "numpy": (2,), "msgspec": None, "lz4": None, "zstandard": None}

_ROUNDS = 5  # of tasks, until every executor had one: Spark does not let anybody choose
_PAUSE = 0.2  # seconds that a task stays, so that the next one goes elsewhere
_CONNECT = 3.0
_LOST_TASK = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(([^)]+)\):? ?")
_BELOW_A_STACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")


@dataclass(frozen=True, slots=True)
class Place:
    """What one Python process of Spark said. `modules` has the versions, None for what cannot be imported."""

    name: str  # driver, or executor
    host: str
    folder: str
    python: str
    python_version: str
    modules: dict[str, str | None] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)  # addresses of brokers, and why

    def problems(self) -> Iterator[str]:
        who = f"{self.name} on {self.host}"
        for module, found in self.modules.items():
            least = MODULES.get(module)
            if found is None:
                yield f"{who}: {self.python} has no module {module!r}"
            elif least is not None and _numbers(found) < least:
                yield f"{who}: {module} {found} is too old, it must be {'.'.join(map(str, least))} or newer"
        if self.modules.get("pyromq") not in (None, __version__):
            yield f"{who}: pyromq {self.modules['pyromq']} is there, but the driver has {__version__}"
        for address, why in self.unreachable.items():
            yield f"{who}: broker {address} cannot be reached: {why}"

    def __str__(self) -> str:
        modules = ", ".join(f"{name} {found or 'missing'}" for name, found in self.modules.items())
        return f"{self.name} on {self.host}: Python {self.python_version} ({self.python}); {modules}"


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """What the doctor found. `problems` is empty if all is well."""

    spark_version: str
    master: str
    places: tuple[Place, ...]
    brokers: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        seen = f"{len(self.brokers)} broker{'' if len(self.brokers) == 1 else 's'}: {', '.join(self.brokers) or '-'}"
        lines = [f"Spark {self.spark_version}, {self.master}", *map(str, self.places), seen]
        ends = [f"problem: {each}" for each in self.problems] or ["all is well"]
        return "\n".join([*lines, *ends])

    __repr__ = __str__  # a prompt shows it


def doctor(spark: SparkSession, namesrv: str | None = None, **options: object) -> Diagnosis:
    """See `pyromq.spark.doctor`."""
    context = _context(spark)
    problems: list[str] = []
    brokers, failures = _brokers(spark, namesrv, options, problems)
    here = Place(
        "driver",
        platform.node(),
        "",
        sys.executable,
        platform.python_version(),
        {module: _version(module) for module in MODULES},
        failures,
    )
    places = [here]
    try:
        executors, expected = _visit(context, brokers)
    except _TasksFailed as exc:
        problems.append(str(exc))
    else:
        places += executors
        if len(executors) < expected:
            problems.append(f"only {len(executors)} of {expected} executors took a task; the others are busy or stuck")
    problems = [*problems, *(problem for place in places for problem in place.problems())]
    return Diagnosis(spark.version, str(context.master), tuple(places), tuple(brokers), tuple(problems))


class _TasksFailed(Exception):
    """Not one task could be run, or one failed as often as Spark lets it. Says where and why, in a line."""


def _context(spark: SparkSession) -> SparkContext:
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException as exc:
        raise ConfigError("the doctor cannot look through Spark Connect; run it where the Connect server runs") from exc


def _brokers(
    spark: SparkSession, namesrv: str | None, options: dict[str, object], problems: list[str]
) -> tuple[list[str], dict[str, str]]:
    """The addresses of all brokers, and those that the driver cannot reach."""
    try:
        given = {"namesrv": namesrv_of(spark, namesrv), **{key: str(value) for key, value in options.items()}}
        with Link(parse(ConnectionOptions, given)) as link:
            rows = link.run(MetaRows(link).of("brokers"))
            reached = {link.reached_at(row["address"]): row.get("error") for row in rows}
    except PyroMQError as exc:
        problems.append(f"the brokers are not known: {exc}")
        return [], {}
    return list(reached), {address: error for address, error in reached.items() if error}


def _visit(context: SparkContext, brokers: list[str]) -> tuple[list[Place], int]:
    """One look from every executor, and how many executors there are."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
    from pyspark.errors import PySparkException

    found: dict[tuple[str, str], Place] = {}
    expected = 1
    for _ in range(_ROUNDS):
        tasks = max(context.defaultParallelism, 2 * _executors(context))
        try:
            rows = context.parallelize(range(tasks), tasks).mapPartitions(_look(list(MODULES), brokers)).collect()
        except (Py4JJavaError, PySparkException) as exc:
            raise _TasksFailed(why(str(exc))) from exc
        for row in rows:
            found[row["host"], row["folder"]] = Place(name="executor", **row)
        expected = _executors(context)
        if len(found) >= expected:
            break
    return sorted(found.values(), key=lambda place: (place.host, place.folder)), expected


def _executors(context: SparkContext) -> int:
    # The driver is among them; in local mode it is the only one, and the executor.
    known = len(context._jsc.sc().statusTracker().getExecutorInfos())
    return max(1, known - 1)


def _look(modules: list[str], brokers: list[str]) -> Callable[[Iterable[Any]], Iterator[dict[str, Any]]]:
    """What a task does. Made inside a function, so that it is sent by its code and not by its name."""
    pause, patience = _PAUSE, _CONNECT

    def look(_rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
        import importlib
        import os
        import pathlib
        import platform
        import socket
        import sys
        import time

        versions: dict[str, str | None] = {}
        for module in modules:
            try:
                versions[module] = str(getattr(importlib.import_module(module), "__version__", "?"))
            except ImportError:
                versions[module] = None
        unreachable = {}
        for address in brokers:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), patience).close()
            except (OSError, ValueError) as exc:
                unreachable[address] = str(exc)
        time.sleep(pause)
        yield {
            "host": platform.node(),
            # Of its own for every executor, which has no name that Python could ask for.
            "folder": os.environ.get("SPARK_LOCAL_DIRS") or str(pathlib.Path.cwd()),
            "python": sys.executable,
            "python_version": platform.python_version(),
            "modules": versions,
            "unreachable": unreachable,
        }

    return look


def why(said: str) -> str:
    """Of a failed job, in Spark's many lines, where it failed and the last words there."""
    place = _LOST_TASK.search(said)
    words = said[place.end() :] if place else said
    # Of a Python error the line below its stack, of a Java one the line above.
    python = _BELOW_A_STACK.search(words)
    reason = python[1] if python else words.strip().partition("\n")[0]
    return f"tasks fail on {place[1] if place else 'an executor'}: {reason.strip()[:300]}"


def _version(module: str) -> str | None:
    if module == "pyromq":
        return __version__
    try:
        return version(module)
    except PackageNotFoundError:
        return None


def _numbers(found: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", found)[:3])
