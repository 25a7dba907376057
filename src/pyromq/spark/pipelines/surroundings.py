"""What a pipeline works with, what it says it would do, and what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pyromq.errors import ConfigError

from ..sessions.connect import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from .pipelines_file import LakePlace
    from .progress import Progress


@dataclass(slots=True)
class Surroundings:
    """The session, the cluster, the lake, and how to tell the user. One for all pipelines of a run."""

    spark: SparkSession
    connection: Mapping[str, str] = field(repr=False)  # options of the format `rocketmq`
    lake: LakePlace | None = None
    state: Path | None = None  # folder for what has to survive a restart
    folder: Path = field(default_factory=Path.cwd)  # where relative paths start
    say: Callable[[object], None] = lambda what: None
    report: Callable[[Progress], None] = lambda progress: None
    stopping: threading.Event = field(default_factory=threading.Event)

    def read(self, topic: str, **options: object) -> DataFrame:
        """A topic as a DataFrame. `topic` may be a list with commas."""
        return self.spark.read.format("rocketmq").options(**self.options(topic, **options)).load()

    def options(self, topic: str, **options: object) -> dict[str, Any]:
        """The options to read a topic with."""
        from ..sessions.views import parallelism

        given = {key: str(value) for key, value in options.items() if value is not None}
        return {**self.connection, "subscribe": topic, **parallelism(self.spark), **given}

    def state_of(self, name: str) -> Path:
        """The folder of one pipeline's state. Raises ConfigError if there is nowhere to keep it."""
        if self.state is None:
            raise ConfigError(f"{name} has to remember how far it got: give --state FOLDER")
        return self.state / name

    def needed_lake(self) -> LakePlace:
        if self.lake is None:
            raise ConfigError("no lake is given: --lake ROOT, or lake: {root: …} in the file")
        return self.lake


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pipeline would do, in lines for people. `rows` is how many, if that is known."""

    lines: tuple[str, ...]
    rows: int | None = None
    # A pipeline that is done, or has nothing to do, says so here.
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did. `table` is a result to show: rows are dataclasses of one type.

    `problems` are what it was to find: an audit's differences, alarms. `failures` are what kept it from doing its work.
    """

    summary: str
    rows: int = 0
    table: Sequence[Any] = ()
    row_type: type | None = None
    problems: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class Pipeline(Protocol):
    """One pipeline. `plan` changes nothing anywhere; `run` does one round, to the end of what there is now."""

    @property
    def name(self) -> str: ...

    @property
    def every(self) -> float | None:
        """Seconds between rounds; None if one is all there is."""

    def plan(self) -> Plan: ...

    def run(self) -> Outcome: ...


@runtime_checkable
class Lasting(Protocol):
    """A pipeline that goes on by itself, until `stopping` is set."""

    def keep(self) -> Outcome: ...


@contextlib.contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the active session of this thread: in any other thread than its own, Spark finds no formats."""
    if not is_connect(spark):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    yield


def append_table(spark: SparkSession, rows: Sequence[Any], row_type: type, path: str) -> None:
    """Append result rows to a folder of Parquet files."""
    if rows:
        frame = spark.createDataFrame([dataclasses.asdict(row) for row in rows], _schema(row_type))
        frame.coalesce(1).write.mode("append").parquet(path)


_TYPES = {
    "str": "string",
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "datetime": "timestamp",
}


def _schema(row_type: type) -> str:
    """The columns of a result, in Spark's words, from the annotations of its rows."""
    columns = []
    for each in dataclasses.fields(row_type):
        kind = str(each.type).partition(" | ")[0]
        columns.append(f"`{each.name}` {_TYPES[kind]}")
    return ", ".join(columns)
