"""Compaction by tasks of Spark, beside readers that are Spark's."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.spark.lake.lake_rows import NOON, add, messages, queue

from pyromq.spark.lake import care, tables
from pyromq.spark.lake.care import Care, merge_with
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pyromq.spark.lake.merge import Merge
    from pyromq.spark.lake.table import DataFile

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAYS = 2


def seen(frame: DataFrame) -> Any:
    """What a reader counts: rows, distinct places, and a sum over all bodies."""
    places = "count(DISTINCT brokerName, queueId, queueOffset)"
    return frame.selectExpr("count(*)", places, "sum(crc32(body))").first()


@pytest.mark.scenario("spark 36")
def test_spark_compacts_while_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction and vacuum during reads / counts and checksums equal before, during, after."""
    lake = Storage.of(str(tmp_path / "lake"))
    orders = tables.open_or_create(lake, "orders", "orders", "main")
    for number in range(12):
        day = NOON + timedelta(days=number % DAYS)
        add(orders, lake, "orders", queue(), number * 5, number * 5 + 5, stored=day + timedelta(minutes=number))
    lost = write_parts(lake, "orders", "lost", [messages()])[0].path
    os.utime(lake.path(f"orders/{lost}"), (1, 1))
    old = orders.snapshot()

    def read(**options: object) -> Any:
        reader = spark.read.format("rocketmq_lake")
        return seen(reader.options(**{key: str(value) for key, value in options.items()}).load(orders.location))

    before = read()
    assert before[:2] == (60, 60)
    pinned = spark.read.format("rocketmq_lake").load(orders.location)  # planned now, read below
    during = []

    def run(merges: Sequence[Merge]) -> Iterator[tuple[int, DataFile]]:
        for done in merge_with(spark)(merges):
            during.append(read())
            yield done

    done = Care(orders, run).compact(date(2026, 2, 9))
    assert (done.partitions, done.files_before, done.files_after) == (DAYS, 12, DAYS)
    assert care.vacuum(orders) == [lost]
    assert during == [before] * DAYS
    assert [read(), read(versionAsOf=old.version), seen(pinned)] == [before] * 3
    assert orders.snapshot().positions == old.positions
    assert not Path(lake.path(f"orders/{lost}")).exists()
