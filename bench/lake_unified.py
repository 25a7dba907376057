"""History and live as one DataFrame, next to the history alone; less than 1 % of it is live."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyromq.spark as mq
from pyromq.spark.lake.archive import archive
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.tables import open_table
from pyromq.spark.lake.unified import files_frame
from pyromq.sync import Producer

from .spark_kit import Results, best, consume, folder, is_quick, rate, rounds, session
from .spark_topics import QUEUES, RAISED_CAPS, TOPIC, cluster_with

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COUNTS = {1024: 400_000, 128: 1_600_000}
LIVE = 200  # one message in so many


def main(seconds: float) -> None:
    results = Results("the lake in Spark, two slots")
    with folder() as scratch, session(scratch) as spark:
        unified(spark, scratch, results, seconds)
    results.show()


def unified(spark: SparkSession, scratch: Path, results: Results, seconds: float) -> None:
    """All rows and all columns of both."""
    for body, full in COUNTS.items():
        count = full // 8 if is_quick(seconds) else full
        with cluster_with(scratch / f"unified-{body}", count, body, QUEUES, *RAISED_CAPS) as cluster:
            root = str(scratch / f"lake-{body}")
            archive(spark, [TOPIC], root=root, namesrv=cluster.namesrv, once=True)
            with Producer("bench", namesrv=cluster.namesrv) as producer:
                for sent in [producer.submit(TOPIC, b"x" * body) for _ in range(count // LIVE)]:
                    sent.result()
            table = open_table(Storage.of(root), TOPIC.replace("-", "_"))
            past = files_frame(spark, table, table.files(table.snapshot()))
            both = mq.unified(spark, TOPIC, lake=root, namesrv=cluster.namesrv)
            assert (past.count(), both.count()) == (count, count + count // LIVE)
            took = best({"ours": partial(consume, both), "lake": partial(consume, past)}, rounds(seconds))
        sides = rate(count, took["ours"]), rate(count, took["lake"])
        results.at_most(f"{body} B: unified / lake alone", *sides, took["ours"] / took["lake"], 1.2)
