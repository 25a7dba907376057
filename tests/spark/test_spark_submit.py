"""`spark-submit` to a cluster whose nodes lack the package: an environment goes along as an archive."""

from __future__ import annotations

import os
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from tests.spark.messages import topics_in
from tests.spark.standalone import HASTY, HOME, Standalone, environment

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

PROGRAM = """
import sys
from pyspark.sql import SparkSession

namesrv, topic, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
options = {"namesrv": namesrv, "subscribe": topic, "minPartitions": "4"}
print("read", spark.read.format("rocketmq").options(**options).load().count())
stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
writer = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
assert writer.format("parquet").start(f"{folder}/rows").awaitTermination(120)
print("streamed", spark.read.parquet(f"{folder}/rows").count())

import pyromq.spark as mq
mq.enable(spark, namesrv=namesrv)
print("enabled", mq.read(spark, topic, minPartitions=4).count())
found = mq.doctor(spark)
print(*found.problems, *(place.python[-16:] for place in found.places if place.name == "executor"))
"""


GUARANTEE = "effectively-once"
PIPELINES = """
import sys
from pyspark.sql import SparkSession
import pyromq.spark as mq

namesrv, file = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
mq.enable(spark, namesrv=namesrv)
for result in mq.run_pipelines(spark, file, say=lambda what: None):
    print(result.name, result.rows, result.error, *result.problems)
"""


def submit(cluster: Standalone, folder: Path, driver_path: Path, *arguments: str, text: str = PROGRAM) -> list[str]:
    """Submit the program as docs/spark.md says; gives the lines that it prints."""
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{HASTY} -Dderby.system.home={folder}",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": HASTY,
        "spark.executor.memory": "512m",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
    }
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    archive = f"{folder / 'env.tar.gz'}#env"
    program = folder / "program.py"
    program.write_text(text)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK_"))}
    done = subprocess.run(
        [
            str(HOME / "bin" / "spark-submit"),
            *("--master", cluster.master, "--archives", archive),
            *settings,
            str(program),
            *arguments,
        ],
        env={
            **inherited,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": "./env/bin/python3",
            "PATH": f"{driver_path}{os.pathsep}{os.environ['PATH']}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def archived_environment(folder: Path) -> Path:
    """An environment as an archive; gives the Python of machines that lack the package."""
    bare = environment(folder / "bare", without=["pyromq"])
    # Where the driver runs the archive is unpacked by hand: nobody else does it there.
    environment(folder / "env")
    with tarfile.open(folder / "env.tar.gz", "w:gz") as archive:
        archive.add(folder / "env", arcname=".")
    return bare


@pytest.mark.scenario("spark 41")
def test_a_file_of_pipelines_runs_on_a_cluster_whose_nodes_lack_the_package(tmp_path):
    bare = archived_environment(tmp_path)
    (tmp_path / "shop.py").write_text("def doubled(message):\n    return str(2 * int(message['body']))\n")
    with (
        running_cluster() as cluster,
        topics_in(cluster) as topics,
        Standalone(tmp_path, [bare, bare]) as standalone,
    ):
        topic, to = topics.new(4), topics.new(2)
        topics.send(topic, [*(b"%d" % number for number in range(40)), b"odd"])
        file = tmp_path / "shop.yaml"
        file.write_text(
            "lake: {root: lake}\npipelines:\n"
            f"  - transform: {{name: t, from: {topic}, to: {to}, function: shop.py:doubled, guarantee: {GUARANTEE}}}\n"
            f"  - archive: {{name: a, topics: [{topic}]}}\n"
            f"  - audit: {{name: b, topics: [{topic}], outTopic: {to}, by: spark_txn}}\n"
        )
        for rows in (41, 0):
            printed = submit(standalone, tmp_path, bare, cluster.namesrv, str(file), text=PIPELINES)
            assert printed == [f"t {rows} None", f"a {rows} None", "b 82 None"]
        counts = [
            sum(each.max_offset for each in topics.admin.topics.stats(name).values()) for name in (to, f"{to}__dlq")
        ]
        assert counts == [40, 1]


def test_an_environment_in_an_archive_is_all_that_executors_need(tmp_path):
    bare = archived_environment(tmp_path)
    with (
        running_cluster() as cluster,
        topics_in(cluster) as topics,
        Standalone(tmp_path, [bare, bare]) as standalone,
    ):
        topic = topics.new(4)
        topics.send(topic, [b"%d" % number for number in range(40)])
        printed = submit(standalone, tmp_path, bare, cluster.namesrv, topic, str(tmp_path))
    assert printed == ["read 40", "streamed 40", "enabled 40", "/env/bin/python3 /env/bin/python3"]
