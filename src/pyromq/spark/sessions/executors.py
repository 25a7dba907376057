"""Runs a check in every Python of a Spark: on executors and, with Spark Connect, on the server.

The check is sent as code and needs only Python, so it works where our package is missing.
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

_ROUNDS = 5  # rounds of tasks, until every executor had one: Spark does not let us choose
_PAUSE = 0.2  # seconds that a task waits, so that the next one goes elsewhere
_CONNECT = 3.0
_LOST_TASK = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(([^)]+)\):? ?")
_BELOW_A_STACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")


class TasksFailed(Exception):
    """No task could run, or one failed as often as Spark allows. Says where and why, in one line."""


def visit_executors(context: SparkContext, modules: list[str], brokers: list[str]) -> tuple[list[dict[str, Any]], int]:
    """The report of each executor, and how many executors there are."""
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
    """The report of a Connect server's Python, and of each executor that took a task.

    A server does not tell how many executors it has, so rounds continue until one finds no new executor.
    """
    from pyspark.errors import PySparkException

    found: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        spark.dataSource.register(_looking_source(_look(modules, brokers)))
        # Without a given number of partitions there are as many as cores.
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
    """A format whose rows are the reports from where it was planned and where it was read.

    Defined inside a function, like `_look`.
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
    # The driver is among them; in local mode it is the only one and also the executor.
    known = len(context._jsc.sc().statusTracker().getExecutorInfos())
    return max(1, known - 1)


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return row["host"], row["folder"]


def _look(modules: list[str], brokers: list[str]) -> Look:
    """The task. Defined inside a function, so that it is sent as code and not by name."""
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
            # Unique for every executor; Python cannot ask for its name.
            "folder": os.environ.get("SPARK_LOCAL_DIRS") or str(pathlib.Path.cwd()),
            "python": sys.executable,
            "python_version": platform.python_version(),
            "modules": versions,
            "unreachable": unreachable,
        }

    return look


def why(said: str) -> str:
    """Where a job failed and its last error, extracted from Spark's many lines."""
    place = _LOST_TASK.search(said)
    words = said[place.end() :] if place else said
    # For a Python error the line below its stack, for a Java error the line above.
    python = _BELOW_A_STACK.search(words)
    reason = python[1] if python else words.strip().partition("\n")[0]
    return f"tasks fail on {place[1] if place else 'an executor'}: {reason.strip()[:300]}"
