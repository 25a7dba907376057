"""The lake next to Apache's brokers: archived, asked about as one with what is live, and no harm done."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire

import pyromq.spark as mq
from pyromq.client.admin.headroom import Alarm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.interop.apache_with_client import Apache

pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

QUEUES = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = mq.session(master="local[2]", conf={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()


def sent(connection: wire.Connection, topic: str, count: int) -> None:
    for number in range(count):
        wire.send(connection, topic, number % QUEUES, b"%d" % number)


def dense(frame: DataFrame) -> int:
    """How many messages; each queue must have every offset once."""
    held: dict[int, list[int]] = {}
    for row in frame.select("queueId", "queueOffset").collect():
        held.setdefault(row.queueId, []).append(row.queueOffset)
    assert all(sorted(found) == list(range(len(found))) for found in held.values()), held
    return sum(map(len, held.values()))


@pytest.mark.scenario("spark 34")
@pytest.mark.scenario("spark 37")
def test_history_and_live_are_one(apache: Apache, spark: SparkSession, tmp_path: Path, caplog) -> None:
    topic = f"lake-{apache.version.replace('.', '_')}"
    place: dict[str, Any] = {"lake": str(tmp_path / "lake"), "namesrv": apache.namesrv}
    with wire.Connection(apache.broker.address) as connection:
        wire.create_topic(connection, topic, QUEUES)
        sent(connection, topic, 200)
        done = mq.archive(spark, [topic], root=place["lake"], namesrv=apache.namesrv, once=True)
        assert (done.rows, done.errors) == (200, {})
        # 4.9 keeps what it is told as a group's offsets, 5.x knows no such group: neither is worth a word.
        assert "does not know how far" not in caplog.text
        frame = mq.unified(spark, topic, **place)
        sent(connection, topic, 60)
        assert mq.archive(spark, [topic], root=place["lake"], namesrv=apache.namesrv, once=True).rows == 60
        sent(connection, topic, 20)
    assert dense(frame) == 280
    behind = mq.headroom(apache.namesrv, topic, lake=place["lake"])
    assert (behind.unarchived, behind.lost, behind.alarm) == (20, 0, Alarm.NONE)
    assert behind.retention_seconds - 600 < behind.lake_headroom_seconds <= behind.retention_seconds
    mq.register_topics(spark, apache.namesrv, pattern=topic, lake=place["lake"])
    assert (spark.table(f"`{topic}_lake`").count(), dense(spark.table(f"`{topic}_all`"))) == (260, 280)
    stream = mq.unified_stream(spark, topic, **place, maxOffsetsPerTrigger=100)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert dense(spark.read.parquet(str(tmp_path / "out"))) == 280
