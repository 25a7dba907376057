"""A cluster of two workers, one of them with a Python that lacks our package."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import pytest
from tests.spark.messages import Topics, bodies, topics_in
from tests.spark.standalone import HASTY, Standalone, environment, java_of_its_own

import pyromq.spark as mq
from pyromq.spark.sessions.programs import reason
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
    whole = environment(folder / "whole")
    lacking = environment(folder / "lacking", without=["pyromq"])
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": HASTY,
        # A task that fails on one executor must not be saved by the other.
        "spark.task.maxFailures": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"{HASTY} -Dderby.system.home={folder}",
    }
    with pytest.MonkeyPatch.context() as patch, Standalone(folder, [whole, lacking]) as cluster, java_of_its_own():
        # What plans runs on the driver's machine, and is started by the same name.
        patch.setenv("PATH", f"{whole}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYSPARK_PYTHON", "python3")
        made = mq.session(topics.cluster.namesrv, master=cluster.master, conf=conf)
        yield made
        made.stop()


@pytest.mark.scenario("spark 42")
def test_an_executor_without_the_package_is_named_and_can_be_sent_it(session, topics, tmp_path):
    topic = topics.new(4)
    topics.send(topic, [b"%d" % number for number in range(40)])

    found = mq.doctor(session)
    assert len(found.places) == 3
    [problem] = found.problems
    assert problem.startswith(f"executor on {platform.node()}: ")
    assert problem.endswith("/lacking/bin/python3 has no module 'pyromq'")

    frame = mq.read(session, topic, minPartitions=8)
    with pytest.raises(Exception, match="which PyroMQ needs there") as caught:
        frame.collect()
    said = reason(str(caught.value))
    assert said.startswith(f"{platform.node()}: ")
    assert "/lacking/bin/python3 has no module 'pyromq'" in said
    assert "pickle" not in said

    mq.enable(session, by_value=True)
    assert bodies(mq.read(session, topic, minPartitions=8)) == sorted(str(number) for number in range(40))
    assert mq.doctor(session).problems == ()
    stream = mq.stream(session, topic, startingOffsets="earliest", minPartitions=6)
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).format("parquet").start(str(tmp_path / "out"))
    assert query.awaitTermination(120)
    assert session.read.parquet(str(tmp_path / "out")).count() == 40
