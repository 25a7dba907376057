"""A look from every Python that works for a Spark: executors, and with Spark Connect what plans on the server.

What runs there is sent by its code and needs nothing but Python, so one without our package can say so.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    Look = Callable[[Iterable[Any]], Iterator[dict[str, Any]]]

_ROUNDS = 5  # of tasks, until every executor had one: Spark does not let anybody choose
_PAUSE = 0.2  # seconds that a task stays, so that the next one goes elsewhere
_CONNECT = 3.0
_LOST_TASK = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(([^)]+)\):? ?")
_BELOW_A_STACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")


class TasksFailed(Exception):
    """Not one task could be run, or one failed as often as Spark lets it. Says where and why, in a line."""


def visit_executors(context: SparkContext, modules: list[str], brokers: list[str]) -> tuple[list[dict[str, Any]], int]:
    """What each executor says, and how many executors there are."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
    from pyspark.errors import PySparkException

    found: dict[tuple[str, str], dict[str, Any]] = {}
    expected = 1
    for _ in range(_ROUNDS):
        tasks = max(context.defaultParallelism, 2 * _executors(context))
        try:
            rows = context.parallelize(range(tasks), tasks).mapPartitions(_look(modules, brokers)).collect()
        except (Py4JJavaError, PySparkException) as exc:
            raise TasksFailed(why(str(exc))) from exc
        found |= {_place(row): row for row in rows}
        expected = _executors(context)
        if len(found) >= expected:
            break
    return [found[place] for place in sorted(found)], expected


def visit_server(
    spark: SparkSession, modules: list[str], brokers: list[str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the Python says that plans on a Connect server, and what each executor says that took a task.

    A server does not tell how many executors it has, so rounds go on until one finds nobody new.
    """
    from pyspark.errors import PySparkException

    found: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        spark.dataSource.register(_looking_source(_look(modules, brokers)))
        # What has no number of partitions given has as many as there are cores.
        cores = spark.range(1 << 16).selectExpr("spark_partition_id() AS part").agg({"part": "max"}).collect()[0][0] + 1
        for _ in range(_ROUNDS):
            rows = spark.read.format("pyromq_visit").option("tasks", str(2 * cores)).load().collect()
            planner = json.loads(rows[0]["planner"])
            seen = [json.loads(row["executor"]) for row in rows]
            is_news = any(_place(row) not in found for row in seen)
            found |= {_place(row): row for row in seen}
            if not is_news:
                break
    except PySparkException as exc:
        raise TasksFailed(why(str(exc))) from exc
    return planner, [found[place] for place in sorted(found)]


def _looking_source(look: Look) -> type[DataSource]:
    """A format whose rows are what was seen where it was planned and where it was read.

    Made inside a function, as `_look` is.
    """
    from pyspark.sql import datasource as api

    class Reader(api.DataSourceReader):
        def __init__(self, tasks: int) -> None:
            self.tasks = tasks

        def partitions(self) -> Sequence[InputPartition]:
            import json

            [seen] = look(())
            return [api.InputPartition(json.dumps(seen)) for _ in range(self.tasks)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
            import json

            [seen] = look(())
            yield partition.value, json.dumps(seen)

    class Source(api.DataSource):
        @classmethod
        def name(cls) -> str:
            return "pyromq_visit"

        def schema(self) -> str:
            return "planner string, executor string"

        def reader(self, schema: object) -> DataSourceReader:
            return Reader(int(self.options["tasks"]))

    return Source


def _executors(context: SparkContext) -> int:
    # The driver is among them; in local mode it is the only one, and the executor.
    known = len(context._jsc.sc().statusTracker().getExecutorInfos())
    return max(1, known - 1)


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return row["host"], row["folder"]


def _look(modules: list[str], brokers: list[str]) -> Look:
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
