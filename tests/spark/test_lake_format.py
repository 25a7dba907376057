"""The format `rocketmq_lake`: a table of the lake read, streamed and written by Spark, without jars."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as sql
from tests.spark.lake_kit import Lake, are_dense, offsets, query
from tests.spark.messages import Topics, bodies, topics_in

import pyromq.spark as mq
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.tables import open_table
from pyromq.spark.sessions.session import PUSH_DOWN
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics(spark) -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        mq.enable(spark, namesrv=cluster.namesrv)
        yield made


@pytest.fixture
def lake(spark, topics, tmp_path):
    return Lake(spark, topics.cluster.namesrv, tmp_path / "lake")


@pytest.fixture
def pushing_down(spark):
    """Filters reach the reader for a while; sessions of ours turn that on where Spark can be trusted with it."""

    @contextlib.contextmanager
    def on():
        before = spark.conf.get(PUSH_DOWN)
        spark.conf.set(PUSH_DOWN, "true")
        try:
            yield
        finally:
            spark.conf.set(PUSH_DOWN, before)

    return on


def load(lake: Lake, folder: Path, **options: Any) -> DataFrame:
    reader: Any = lake.spark.read.format("rocketmq_lake").options(**options)
    return cast("DataFrame", reader.load(str(folder)))


def files_of(frame: DataFrame) -> int:
    """How many tasks a read has; with small parts, that is its files."""
    return int(frame.rdd.getNumPartitions())


def write(frame: DataFrame, folder: Path, checkpoint: Path, **options: Any) -> None:
    query = (
        frame.writeStream.format("rocketmq_lake")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(folder))
    )
    assert query.awaitTermination(120)


def test_a_table_is_read_with_every_column_and_no_more_files_than_needed(lake, topics, pushing_down):
    topic = topics.new(2)
    table = lake.table(topic)
    topics.send(topic, [b"a%d" % n for n in range(100)], keys=lambda n: [f"k{n}"], tags="A")
    lake.archive(topic)
    version = open_table(Storage.of(str(lake.folder)), table.name).snapshot()
    topics.send(topic, [b"b%d" % n for n in range(100)], properties={"k": "v"})
    lake.archive(topic)
    small = {"partitionBytes": "1"}

    frame = load(lake, table, **small)
    live = mq.read(lake.spark, topic)
    assert frame.drop("dt").schema.simpleString() == live.schema.simpleString()
    names = [name for name in live.columns if name != "properties"]
    shown: list[Any] = [*names, sql.map_entries("properties").alias("properties")]
    assert frame.select(shown).exceptAll(live.select(shown)).count() == 0
    assert frame.count() == live.count() == 200
    assert files_of(frame) == 2
    middle = query(table, "SELECT max(storeTimestamp) FROM rows WHERE body::VARCHAR LIKE 'a%'")[0][0]
    with pushing_down():
        assert files_of(frame.where("queueOffset >= 50")) == 1
        assert frame.where("queueOffset >= 50 AND queueId = 1").count() == 50
        assert files_of(frame.where("dt < '2020-01-01'")) == 1  # one with nothing: Spark has no fewer
        assert frame.where("dt < '2020-01-01'").count() == 0
        later = frame.where(sql.col("storeTimestamp") >= sql.lit(middle + timedelta(milliseconds=1)))
        assert files_of(later) == 1
        assert later.count() == 100

    assert bodies(load(lake, table, versionAsOf=version.version)) == sorted(f"a{n}" for n in range(100))
    assert load(lake, table, timestampAsOf=version.time.isoformat()).count() == 100
    assert load(lake, table, columns="queueOffset,body").columns == ["queueOffset", "body"]
    view = "CREATE OR REPLACE TEMPORARY VIEW old USING rocketmq_lake OPTIONS (path '{}')"
    lake.spark.sql(view.format(table))
    assert lake.spark.sql("SELECT count(*), count(DISTINCT msgId) FROM old").collect() == [(200, 200)]
    assert lake.spark.sql("SELECT properties['k'] FROM old WHERE body = 'b1'").collect() == [("v",)]
    for options, said in (
        ({"columns": "bodi"}, "no column 'bodi'; did you mean body"),
        ({"versionAsOf": "99"}, "has no version 99"),
        ({"versonAsOf": "1"}, "did you mean versionAsOf"),
    ):
        with pytest.raises(Exception, match=said):
            load(lake, table, **options).count()
    with pytest.raises(Exception, match="there is no table at"):
        load(lake, table.with_name("nothing")).count()


def test_a_stream_of_a_table_sees_each_message_once_however_files_change(lake, topics, tmp_path):
    from deltalake import DeltaTable

    topic = topics.new(2)
    table, copy = lake.table(topic), lake.folder / "copy"
    checkpoint = tmp_path / "checkpoint"

    def go_on() -> None:
        rows = lake.spark.readStream.format("rocketmq_lake").option("maxOffsetsPerTrigger", "60").load(str(table))
        write(rows.drop("dt"), copy, checkpoint)

    for first in (0, 100):
        topics.send(topic, [b"%d" % n for n in range(first, first + 50)])
        lake.archive(topic)
        topics.send(topic, [b"%d" % n for n in range(first + 50, first + 100)])
        lake.archive(topic)
        go_on()
        # The files are others now, and the old ones are gone. The rows and positions are the same.
        DeltaTable(table).optimize.compact()
        DeltaTable(table).vacuum(0, enforce_retention_duration=False, dry_run=False)
        go_on()
    assert are_dense(offsets(copy), (0, 1))
    assert sorted(int(body) for (body,) in query(copy, "SELECT body FROM rows")) == list(range(200))
    storage = Storage.of(str(lake.folder))
    positions = open_table(storage, table.name).snapshot().positions
    assert open_table(storage, "copy").snapshot().positions == positions
    assert open_table(storage, "copy").topic == topic


def test_a_stream_of_a_topic_is_written_once_whatever_is_repeated(lake, topics, tmp_path):
    topic = topics.new(2)
    topics.send(topic, [b'{"id": %d}' % n for n in range(100)] + [b"?"])
    table = lake.folder / "decoded"
    options = {"decode": "json", "decode.schema": "id int"}
    rows = mq.stream(lake.spark, topic, startingOffsets="earliest")
    write(rows, table, tmp_path / "one", **options)
    assert query(table, "SELECT count(*), sum(id) FROM rows") == [(100, sum(range(100)))]
    assert query(table.with_name("decoded__dlq"), "SELECT body FROM rows") == [(b"?",)]
    # Spark forgets that it committed the last batch, so it comes again.
    [commit] = (tmp_path / "one" / "commits").glob("[0-9]")
    commit.unlink()
    (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
    topics.send(topic, [b'{"id": 100}'])
    write(rows, table, tmp_path / "one", **options)
    assert query(table, "SELECT count(*), count(DISTINCT (queueId, queueOffset)) FROM rows") == [(101, 101)]
    assert len(query(table.with_name("decoded__dlq"), "SELECT body FROM rows")) == 1
    # Another query would bring the same messages: they are refused, not doubled.
    with pytest.raises(Exception, match="some of these messages are in the table already"):
        write(rows, table, tmp_path / "two", **options)
    assert query(table, "SELECT count(*) FROM rows") == [(101,)]
    # The archive goes on from where the query got to.
    topics.send(topic, [b'{"id": 101}'])
    done = lake.archive(topic, aliases={topic: "decoded"})
    assert (done.rows, done.errors) == (1, {})


def test_frames_are_appended_with_new_columns_and_without_queues(lake, tmp_path):
    table = lake.folder / "sums"
    frame = lake.spark.createDataFrame([("a", 1), ("b", 2)], "name string, total int")
    frame.write.format("rocketmq_lake").mode("append").save(str(table))
    wider = lake.spark.createDataFrame(
        [("c", "3", [1.5]), ("d", "many", [])], "name string, total string, more array<double>"
    )
    wider.write.format("rocketmq_lake").mode("append").save(str(table))
    found = load(lake, table).select("name", "total", "more").orderBy("name").collect()
    assert [tuple(row) for row in found] == [("a", 1, None), ("b", 2, None), ("c", 3, [1.5])]
    [(reason,)] = query(table.with_name("sums__dlq"), "SELECT reason FROM rows")
    assert reason == "total: 'many', but the table's column is int"
    with pytest.raises(Exception, match="a table of the lake only grows"):
        frame.write.format("rocketmq_lake").mode("overwrite").save(str(table))
    with pytest.raises(Exception, match="no positions of queues"):
        write(lake.spark.readStream.format("rocketmq_lake").load(str(table)), lake.folder / "x", tmp_path / "c")
