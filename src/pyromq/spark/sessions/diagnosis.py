"""Diagnoses whether Spark can work with a cluster, from the driver and from every executor.

With Spark Connect the driver is the server, which is checked, too; the client need not reach anything else.
"""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from pyromq import __version__
from pyromq.errors import PyroMQError

from ..meta.cluster_rows import rows_of
from ..options import ConnectionOptions, parse
from .connect import is_connect
from .executors import TasksFailed, visit_executors, visit_server
from .session import namesrv_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# What our tasks import, with the minimum version where it matters.
MODULES = {"pyromq": None, "pyarrow": (18,), "numpy": (2,), "msgspec": None, "lz4": None, "zstandard": None}


@dataclass(frozen=True, slots=True)
class Place:
    """What one of Spark's Python processes reported. `modules` has versions, None for what cannot be imported."""

    name: str  # driver or executor; with Spark Connect client, server or executor
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
            yield f"{who}: pyromq {self.modules['pyromq']} is there, but {__version__} is here"
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
    problems: list[str] = []
    brokers, failures = _brokers(spark, namesrv, options, problems)
    modules = list(MODULES)
    places = [_here("client", {}) if is_connect(spark) else _here("driver", failures)]
    try:
        if is_connect(spark):
            planner, executors = visit_server(spark, modules, brokers)
            places.append(Place(name="server", **planner))
        else:
            executors, expected = visit_executors(spark.sparkContext, modules, brokers)
            if len(executors) < expected:
                took = f"only {len(executors)} of {expected} executors took a task"
                problems.append(f"{took}; the others are busy or stuck")
        places += [Place(name="executor", **seen) for seen in executors]
    except TasksFailed as exc:
        problems.append(str(exc))
    problems = [*problems, *(problem for place in places for problem in place.problems())]
    master = spark.conf.get("spark.master") or "?"
    where = f"{master} through Spark Connect" if is_connect(spark) else master
    return Diagnosis(spark.version, where, tuple(places), tuple(brokers), tuple(problems))


def _here(name: str, unreachable: dict[str, str]) -> Place:
    found = {module: _version(module) for module in MODULES}
    return Place(name, platform.node(), "", sys.executable, platform.python_version(), found, unreachable)


def _brokers(
    spark: SparkSession, namesrv: str | None, options: dict[str, object], problems: list[str]
) -> tuple[list[str], dict[str, str]]:
    """The addresses of all brokers, and those that this process cannot reach."""
    try:
        given = {"namesrv": namesrv_of(spark, namesrv), **{key: str(value) for key, value in options.items()}}
        mapped = parse(ConnectionOptions, given).broker_address_map or {}
        rows = rows_of(spark, "brokers", given)
    except PyroMQError as exc:
        problems.append(f"cannot find the brokers: {exc}")
        return [], {}
    addresses = {str(row["address"]): row.get("error") for row in rows}
    reached = {mapped.get(address, address): error for address, error in addresses.items()}
    return list(reached), {address: error for address, error in reached.items() if error}


def _version(module: str) -> str | None:
    if module == "pyromq":
        return __version__
    try:
        return version(module)
    except PackageNotFoundError:
        return None


def _numbers(found: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", found)[:3])
