"""Streams into topics with a real Spark and a real broker, whose tasks and drivers are killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sql
from tests.spark.messages import Topics, bodies, topics_in, until

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = Path(__file__).with_name("sink_driver.py")
WITHIN = 240.0  # seconds that a program of its own may take
SMALL = {"batchBytes": "1000", "inFlight": "2"}
ONCE = {**SMALL, "guarantee": "effectively-once"}


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


class Copy:
    """A query that copies a topic to another one, run here or as a program of its own, with one checkpoint."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, options: dict[str, str]) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder
        self.options = options
        # One queue, so one task: half of its rows can be sent.
        self.source, self.target = topics.new(1), topics.new(4)

    def run(self, frame: DataFrame | None = None) -> StreamingQuery:
        """All that is there now."""
        reader = self.spark.readStream.format("rocketmq")
        rows = reader.options(**self.topics.options(self.source, startingOffsets="earliest")).load()
        query = (
            (rows.select("body", "keys") if frame is None else frame)
            .writeStream.format("rocketmq")
            .options(namesrv=self.topics.cluster.namesrv, topic=self.target, **self.options)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return query

    @contextlib.contextmanager
    def program(self, kind: str, conf: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        order = {
            "namesrv": self.topics.cluster.namesrv,
            "from": self.source,
            "to": self.target,
            "checkpoint": str(self.folder / "checkpoint"),
            "format": kind,
            "options": self.options,
            "conf": {"spark.sql.warehouse.dir": str(self.folder / "warehouse"), **(conf or {})},
        }
        with self.errors.open("w") as errors:
            # A session of its own, so that all of it can be killed: Python, the JVM, and the workers.
            running = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(order)],
                env=os.environ | {"SINK_DRIVER_HELD": str(self.held)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            try:
                yield running
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait()

    @property
    def errors(self) -> Path:
        return self.folder / "errors"

    @property
    def held(self) -> Path:
        return self.folder / "held"

    def written(self) -> DataFrame:
        reader = self.spark.read.format("rocketmq")
        return reader.options(**self.topics.options(self.target)).load()


@pytest.fixture
def copy(spark, topics, tmp_path):
    yield lambda **options: Copy(spark, topics, tmp_path, options)
    for query in spark.streams.active:
        query.stop()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def texts(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


@pytest.mark.scenario("spark 24")
def test_a_stream_writes_every_column_and_says_which_batch_a_message_is_of(copy, topics):
    copied = copy()
    topics.send(copied.source, numbers(100), keys=lambda n: [f"k{n}"], tags="T")
    rows = copied.spark.readStream.format("rocketmq")
    frame = rows.options(**topics.options(copied.source, startingOffsets="earliest")).load()
    frame = frame.withColumn("shardingKey", sql.lit("one"))
    query = copied.run(frame)
    written = copied.written()
    assert bodies(written) == texts(100)
    assert {row.keys for row in written.collect()} == {f"k{n}" for n in range(100)}
    assert [row.tags for row in written.select("tags").distinct().collect()] == ["T"]
    # One key, one queue, and there in the order of the rows.
    assert [int(bytes(row.body)) for row in written.orderBy("queueOffset").collect()] == list(range(100))
    assert written.select("queueId").distinct().count() == 1
    txns = [row.txn for row in written.selectExpr("properties['SPARK_TXN'] AS txn").collect()]
    assert sorted(txns) == sorted(f"{query.id}:0:0:{number}" for number in range(100))
    topics.send(copied.source, [b"later"])
    copied.run(frame)
    assert copied.written().count() == 101


@pytest.mark.long
@pytest.mark.scenario("spark 25")
@pytest.mark.scenario("spark 16")
@pytest.mark.parametrize("options", [SMALL, ONCE], ids=["at-least-once", "effectively-once"])
def test_a_task_that_is_killed_half_way_loses_nothing(copy, topics, options):
    copied = copy(**options)
    topics.send(copied.source, numbers(1000), keys=lambda n: [f"k{n}"])
    with copied.program("rocketmq_killed") as program:
        assert program.wait(WITHIN) == 0, copied.errors.read_text()[-3000:]
    written = copied.written().select("body", "msgId").collect()
    ids = {bytes(row.body): row.msgId for row in written}
    assert sorted(body.decode() for body in ids) == texts(1000)
    if options is ONCE:
        assert len(written) == 1000
    else:
        # What was sent twice has one id.
        assert len(written) > 1000
        assert {(bytes(row.body), row.msgId) for row in written} == set(ids.items())


@pytest.mark.scenario("spark 16")
def test_a_task_that_always_fails_ends_the_query_with_its_own_error_and_moves_no_offset(copy, topics):
    copied = copy(**ONCE)
    # Large enough for the first rows to reach the sink before the one that fails is looked at.
    topics.send(copied.source, [number.ljust(1000) for number in numbers(1000)])
    reader = copied.spark.readStream.format("rocketmq")
    frame = reader.options(**topics.options(copied.source, startingOffsets="earliest")).load()
    broken = "IF(STARTSWITH(CAST(body AS STRING), '700 '), raise_error('row seven hundred'), body) AS body"
    copied.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pytest.raises(Exception, match="row seven hundred"):
            copied.run(frame.selectExpr(broken))
    finally:
        copied.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert not (copied.folder / "checkpoint" / "commits" / "0").exists()
    # Some of the rows were sent, and stay.
    assert 0 < copied.written().count() < 1000
    copied.run()
    assert sorted(body.strip() for body in bodies(copied.written())) == texts(1000)


@pytest.mark.long
@pytest.mark.scenario("spark 26")
def test_a_driver_that_is_killed_between_tasks_and_commit_repeats_nothing(copy, topics):
    copied = copy(**ONCE)
    topics.send(copied.source, numbers(500))
    with copied.program("rocketmq_held") as program:
        until(lambda: copied.held.exists() or program.poll() is not None, WITHIN)
        assert program.poll() is None
        os.killpg(program.pid, signal.SIGKILL)
    assert bodies(copied.written()) == texts(500)
    committed = copied.folder / "checkpoint" / "commits" / "0"
    assert not committed.exists()
    topics.send(copied.source, [b"%d" % number for number in range(500, 600)])
    query = copied.run()
    assert committed.exists()
    # The batch was read again, whole.
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [500, 100]
    assert bodies(copied.written()) == texts(600)


@pytest.mark.scenario("spark 26")
def test_speculation_is_refused_before_anything_is_sent(copy, topics):
    copied = copy(**ONCE)
    topics.send(copied.source, numbers(10))
    with copied.program("rocketmq", {"spark.speculation": "true"}) as program:
        assert program.wait(WITHIN) != 0
    assert "does not work with spark.speculation" in copied.errors.read_text()
    assert copied.written().count() == 0


def test_what_a_stream_cannot_do_is_said(copy, topics):
    copied = copy(**ONCE)
    topics.send(copied.source, numbers(10))
    rows = copied.spark.readStream.format("rocketmq")
    frame = rows.options(**topics.options(copied.source, startingOffsets="earliest")).load()
    with pytest.raises(Exception, match="a column shardingKey is not allowed"):
        copied.run(frame.withColumn("shardingKey", sql.lit("x")))
    counted = frame.groupBy("tags").agg(sql.count("*").cast("string").alias("body"))
    writer = counted.writeStream.format("rocketmq").outputMode("complete")
    options = {"namesrv": topics.cluster.namesrv, "topic": copied.target}
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        writer.options(**options, checkpointLocation=str(copied.folder / "c")).start().awaitTermination(120)


@pytest.mark.scenario("spark 22")
def test_keys_are_in_no_checkpoint(copy, topics):
    copied = copy(accessKey="ACCESS-K3Y", secretKey="S3CR3T-K3Y")
    topics.send(copied.source, numbers(10))
    copied.run()
    files = [path for path in (copied.folder / "checkpoint").rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not any(b"K3Y" in path.read_bytes() for path in files)
    assert bodies(copied.written()) == texts(10)
