"""Rows into topics: the sink next to a producer that sends the same batches, and what any sink in Python costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from pyromq.client import Message, Producer
from pyromq.sync import AdminClient
from pyromq.testing.cluster import running_cluster

from .broker_machine import ROOT
from .spark_kit import Results, best, folder, is_quick, rate, rounds, session
from .spark_topics import TOPIC, cluster_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

COUNT = 100_000
SENT = 200_000
BODY = 1024
# What the sink puts into one request, and how many of them are under way.
BATCH_BYTES, IN_FLIGHT = 256 << 10, 8


class CountingSink(DataSource):
    """Takes rows and throws them away: what is left is the way to a sink in Python."""

    @classmethod
    def name(cls) -> str:
        return "bench_counting"

    def streamWriter(self, schema: Any, overwrite: bool) -> CountingWriter:
        return CountingWriter()


class CountingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:
        pass

    def abort(self, messages: Any, batchId: int) -> None:
        pass


def main(seconds: float) -> None:
    results = Results("Sinks in Spark")
    share = 4 if is_quick(seconds) else 1
    with folder() as scratch, session(scratch) as spark:
        spark.dataSource.register(CountingSink)
        _through_python(spark, scratch, COUNT // share, results, seconds)
        _into_a_topic(spark, scratch, SENT // share, results, seconds)
    results.show()


def _through_python(spark: SparkSession, scratch: Path, count: int, results: Results, seconds: float) -> None:
    with cluster_with(scratch / "source", count, BODY, 4) as cluster:
        numbers = iter(range(1 << 30))

        def run(sink: str) -> None:
            options = {"namesrv": cluster.namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"}
            stream = spark.readStream.format("rocketmq").options(**options).load()
            query = (
                stream.writeStream.format(sink)
                .option("checkpointLocation", str(scratch / f"checkpoint-{next(numbers)}"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        took = best({"ours": lambda: run("bench_counting"), "noop": lambda: run("noop")}, rounds(seconds))
    sides = rate(count, took["ours"]), rate(count, took["noop"])
    results.at_least("AvailableNow into a Python sink / into noop", *sides, took["noop"] / took["ours"], 0.5)


def _into_a_topic(spark: SparkSession, scratch: Path, count: int, results: Results, seconds: float) -> None:
    """One task, so that both sides are one process that sends."""
    with running_cluster(scratch / "sink", "mappedFileSizeCommitLog=1g") as cluster:
        with AdminClient(cluster.namesrv) as admin:
            for topic in ("from-spark", "from-producer"):
                admin.topics.create(topic, write_queues=4, read_queues=4)
        columns = f"cast(repeat('x', {BODY}) as binary) body", "'paid' tags", "cast(id as string) keys"
        frame = spark.range(0, count, 1, 1).selectExpr(*columns)
        options = {"namesrv": cluster.namesrv, "topic": "from-spark"}

        def sink() -> None:
            frame.write.format("rocketmq").options(**options).mode("append").save()

        def producer() -> float:
            command = [sys.executable, "-m", "bench.spark_sink", cluster.namesrv, str(count)]
            return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)

        took = best({"ours": sink, "producer": producer}, rounds(seconds))
    sides = rate(count, took["ours"]), rate(count, took["producer"])
    results.at_least("sink, 1 KB, one task / producer with equal batches", *sides, took["producer"] / took["ours"], 0.6)


async def produce(namesrv: str, count: int) -> float:
    """Send messages as the sink does, so many in a request and so many requests under way; the seconds it took."""
    per_batch = BATCH_BYTES // BODY
    body = b"x" * BODY
    numbers = iter(range(0, count, per_batch))
    async with Producer("bench", namesrv=namesrv) as producer:

        async def send() -> None:
            for first in numbers:
                chosen = range(first, min(first + per_batch, count))
                messages = [Message("from-producer", body, tags="paid", keys=[str(number)]) for number in chosen]
                await producer.send_batch(messages)

        await producer.send_batch([Message("from-producer", body)])
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(send())
        return time.perf_counter() - begin


if __name__ == "__main__":
    print(asyncio.run(produce(sys.argv[1], int(sys.argv[2]))))
