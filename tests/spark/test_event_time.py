"""Windows over event time while a stream catches up: what was written in order is not late when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sql
from tests.spark.messages import Topics, topics_in

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 10_000  # one for each second


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.mark.scenario("spark 11")
def test_a_stream_that_catches_up_in_limited_batches_drops_nothing_as_late(spark, topics, tmp_path):
    topic = topics.new(4)
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=2000)
    rows = spark.range(0, ROWS, 1, 1).select(
        sql.concat_ws(",", sql.timestamp_seconds(sql.col("id") + 1_700_000_000), sql.lit("x" * 60)).alias("body")
    )
    rows.write.format("rocketmq").options(namesrv=topics.cluster.namesrv, topic=topic).mode("append").save()
    counted: dict[object, int] = {}

    def keep(frame, _batch):
        counted.update({row.window.start: row["count"] for row in frame.collect()})

    read = spark.readStream.format("rocketmq").options(**options).load()
    at = sql.split(sql.col("body").cast("string"), ",")[0].cast("timestamp").alias("at")
    minutes = read.select(at).withWatermark("at", "1 minute").groupBy(sql.window("at", "1 minute")).count()
    writer = minutes.writeStream.outputMode("update").foreachBatch(keep)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    progress = query.recentProgress
    assert max(each.numInputRows for each in progress) <= 2000
    assert sum(each.stateOperators[0].numRowsDroppedByWatermark for each in progress) == 0
    assert sum(counted.values()) == ROWS
