"""The archive into the lake: tasks that write files themselves, next to a DataFrame, and next to Spark from Parquet."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyromq.spark as mq
from pyromq.spark.lake.archive import archive
from pyromq.testing.cluster import running_cluster

from .spark_kit import Results, best, fill, folder, is_quick, rate, rounds, session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

BROKER = "broker-a"
COUNTS = {1024: 480_000, 128: 1_600_000}


def main(seconds: float) -> None:
    results = Results("archive into Delta tables, two slots")
    with folder() as scratch, session(scratch) as spark:
        mq.enable(spark)
        for body, count in COUNTS.items():
            if is_quick(seconds):
                count //= 8
            root = scratch / f"store-{body}"
            [topic] = fill(root, count, body)
            contest(spark, root, topic, scratch / "lake", count, f"{body} B", results, rounds(seconds))
    results.show()


def contest(
    spark: SparkSession, root: Path, topic: str, lake: Path, count: int, what: str, results: Results, times: int
) -> None:
    ready = str(lake.with_name(f"{root.name}-ready"))
    log = spark.read.format("rocketmq_log").options(topics=topic, brokerName=BROKER).load(str(root))
    # As a job would find rows that somebody else has decoded: as many files as there are tasks here.
    log.write.mode("overwrite").option("compression", "none").parquet(ready)

    def direct() -> None:
        done = archive(spark, [topic], root=_fresh(lake), stores={BROKER: str(root)}, once=True)
        assert (done.rows, done.errors) == (count, {})

    def frame() -> None:
        log.write.format("rocketmq_lake").mode("append").save(f"{_fresh(lake)}/frame")

    def plain() -> None:
        _by_day(spark.read.parquet(ready)).parquet(f"{_fresh(lake)}/plain")

    took = best({"direct": direct, "frame": frame, "plain": plain}, times)
    speeds = {name: rate(count, seconds) for name, seconds in took.items()}
    results.at_least(
        f"{what}, from files: direct / DataFrame",
        *(speeds["direct"], speeds["frame"], took["frame"] / took["direct"], 2.5),
    )
    results.at_least(
        f"{what}, from files: direct / Spark, Parquet to Parquet",
        *(speeds["direct"], speeds["plain"], took["plain"] / took["direct"], 0.5),
    )
    shutil.rmtree(ready)
    _over_the_network(spark, root, topic, lake, count, what, results, times)


def _over_the_network(
    spark: SparkSession, root: Path, topic: str, lake: Path, count: int, what: str, results: Results, times: int
) -> None:
    home = root.with_name(f"{root.name}-home")
    home.mkdir()
    shutil.move(root, home / BROKER)
    with running_cluster(home, "mappedFileSizeCommitLog=1g") as cluster:

        def direct() -> None:
            done = archive(spark, [topic], root=_fresh(lake), namesrv=cluster.namesrv, once=True)
            assert (done.rows, done.errors) == (count, {})

        def frame() -> None:
            rows = mq.read(spark, topic, cluster.namesrv)
            rows.write.format("rocketmq_lake").mode("append").save(f"{_fresh(lake)}/frame")

        took = best({"direct": direct, "frame": frame}, times)
    speeds = {name: rate(count, seconds) for name, seconds in took.items()}
    results.at_least(
        f"{what}, from a broker in this process: direct / DataFrame",
        *(speeds["direct"], speeds["frame"], took["frame"] / took["direct"], None),
    )
    shutil.rmtree(home)


def _by_day(frame: DataFrame) -> DataFrameWriter:
    rows = frame.selectExpr("*", "to_date(storeTimestamp) AS dt")
    return rows.write.partitionBy("dt").option("compression", "zstd")


def _fresh(lake: Path) -> str:
    shutil.rmtree(lake, ignore_errors=True)
    return str(lake)
