"""A Spark program of its own for the tests of the sink: one that can be killed, whole or a task of it.

    python sink_driver.py '{"namesrv": …, "from": …, "to": …, "checkpoint": …, "format": …, "options": {…}}'

`format` is `rocketmq`, or one of those below, which are the same sink and fail where a test wants it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from pyromq.spark.sink import writers as sink
from pyromq.spark.source.source import RocketMQDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS_AT_A_TIME = 100


class ProgramsWriter(sink.RocketMQStreamWriter):
    """One that only this program has, so that it goes to executors with its code."""

    __reduce_ex__ = object.__reduce_ex__  # type: ignore[assignment]  # with the code, not by name


class ProgramsSource(RocketMQDataSource):
    __reduce_ex__ = object.__reduce_ex__  # type: ignore[assignment]  # with the code, not by name


class KilledWriter(ProgramsWriter):
    """Its task's process is killed, the first time, when half of its rows are stored and the rest is under way."""

    def write(self, iterator: Iterator[Any]) -> Any:
        return super().write(_killing(iterator, self._plan.options))


def _killing(iterator: Iterator[Any], options: Any) -> Iterator[Any]:
    from pyspark import TaskContext

    from pyromq.sync import AdminClient

    task = TaskContext.get()
    assert task is not None
    is_first = task.attemptNumber() == 0
    for number, batch in enumerate(iterator):
        yield batch
        if is_first and number == 4:
            with AdminClient(options.namesrv) as admin:
                while sum(each.max_offset for each in admin.topics.stats(options.topic).values()) < 2 * ROWS_AT_A_TIME:
                    time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)


class HeldWriter(ProgramsWriter):
    """Its tasks end, and then nothing is committed, ever."""

    def commit(self, messages: Any, batchId: int) -> None:
        Path(os.environ["SINK_DRIVER_HELD"]).write_text(str(batchId))
        time.sleep(600)


class Killed(ProgramsSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_killed"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        writer: Any = super().streamWriter(schema, overwrite)
        return KilledWriter(writer._plan)


class Held(ProgramsSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_held"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        writer: Any = super().streamWriter(schema, overwrite)
        return HeldWriter(writer._plan)


def main(order: dict[str, Any]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_AT_A_TIME))
        .config("spark.log.level", "ERROR")
    )
    for key, value in order.get("conf", {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for source in (Killed, Held):
        spark.dataSource.register(source)
    rows = spark.readStream.format("rocketmq").options(
        namesrv=order["namesrv"], subscribe=order["from"], startingOffsets="earliest"
    )
    query = (
        rows.load()
        .select("body", "keys")
        .writeStream.format(order["format"])
        .options(namesrv=order["namesrv"], topic=order["to"], **order["options"])
        .option("checkpointLocation", order["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
