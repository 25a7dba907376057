"""Tables in a Hive metastore: made by one program, read by another that knows nothing but their names."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.spark.messages import Topics, topics_in
from tests.spark.standalone import HASTY

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

SESSION = """
import sys
from pyspark.sql import SparkSession

folder, java = sys.argv[1:]
conf = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": java,
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": f"{folder}/warehouse",
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local[2]").config(map=conf).enableHiveSupport().getOrCreate()
assert spark.conf.get("spark.sql.catalogImplementation") == "hive"
"""


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


def run(program: str, folder: Path) -> list[str]:
    """Run a program with a session on the metastore in `folder`; gives the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION + program, str(folder), f"{HASTY} -Dderby.system.home={folder}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.scenario("spark 5")
def test_a_table_keeps_its_topic_in_a_metastore_for_programs_to_come(topics, tmp_path):
    orders, payments = topics.new(2), topics.new(1)
    topics.send(orders, [b"order %d" % number for number in range(4)], tags="new")
    topics.send(payments, [b"payment"])
    namesrv = topics.cluster.namesrv
    made = run(
        f"""
for table, options in (("orders", "subscribe '{orders}'"), ("paid", "subscribe '{payments}', columns 'body,tags'")):
    spark.sql(f"CREATE TABLE {{table}} USING rocketmq OPTIONS (namesrv '{namesrv}', {{options}})")
    print(spark.table(table).count())
""",
        tmp_path,
    )
    assert made == ["4", "1"]
    # What is read is what is in the topic now, and not a copy of then.
    topics.send(orders, [b"order 4"], tags="late")

    seen = run(
        """
print(sorted(row.name for row in spark.catalog.listTables()))
print(sorted(bytes(row.body).decode() for row in spark.sql("SELECT * FROM orders").collect()))
print(spark.sql("SELECT CAST(body AS STRING) FROM orders WHERE tags = 'late'").first()[0])
print(spark.table("paid").columns, spark.sql("SELECT CAST(body AS STRING) FROM paid").first()[0])
stream = spark.readStream.option("startingOffsets", "earliest").table("orders")
writer = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
assert writer.format("parquet").start(f"{folder}/rows").awaitTermination(120)
print({row.topic for row in spark.read.parquet(f"{folder}/rows").collect()})
print(spark.read.parquet(f"{folder}/rows").count())

import pyromq.spark as mq
print(mq.describe(spark, "orders").topic)
try:
    spark.sql("INSERT INTO paid SELECT body, tags FROM orders")
except Exception as exc:
    print("no topic to write to" in str(exc))
""",
        tmp_path,
    )
    assert seen == [
        "['orders', 'paid']",
        str([f"order {number}" for number in range(5)]),
        "order 4",
        "['body', 'tags'] payment",
        str({orders}),
        "5",
        orders,
        "True",
    ]
    # The refused statement sent nothing, neither there nor to the topic that it selected from.
    for topic, count in ((orders, 5), (payments, 1)):
        assert sum(ends.max_offset for ends in topics.admin.topics.stats(topic).values()) == count
