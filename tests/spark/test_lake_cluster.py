"""Archive, history and live on a cluster of two workers, which reach the lake and the broker by themselves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.spark.lake_kit import Lake
from tests.spark.messages import Topics, bodies, topics_in
from tests.spark.standalone import HASTY, Standalone, environment, java_of_its_own

import pyromq.spark as mq
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def session(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("cluster")
    workers = [environment(folder / name) for name in ("one", "two")]
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": HASTY,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"{HASTY} -Dderby.system.home={folder}",
    }
    with pytest.MonkeyPatch.context() as patch, Standalone(folder, workers) as cluster, java_of_its_own():
        patch.setenv("PATH", f"{workers[0]}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYSPARK_PYTHON", "python3")
        made = mq.session(topics.cluster.namesrv, master=cluster.master, conf=conf)
        yield made
        made.stop()


@pytest.mark.scenario("spark 37")
def test_history_and_live_are_one_on_a_cluster(session, topics, tmp_path):
    topic, root = topics.new(4), tmp_path / "lake"
    topics.send(topic, [b"%d" % number for number in range(400)])
    lake = Lake(session, topics.cluster.namesrv, root)
    assert lake.archive(topic, partitionBytes="8k").rows == 400
    topics.send(topic, [b"%d" % number for number in range(400, 450)])
    whole = sorted(map(str, range(450)))
    assert bodies(mq.unified(session, topic, lake=str(root), minPartitions=4)) == whole
    mq.register_topics(session, pattern=topic, lake=str(root))
    assert bodies(session.table(f"`{topic}_all`")) == whole
    assert session.table(f"`{topic}_lake`").count() == 400
    stream = mq.unified_stream(session, topic, lake=str(root), maxOffsetsPerTrigger=200)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert bodies(session.read.parquet(str(tmp_path / "out"))) == whole
