"""`rocketmq_meta` as Spark sees it: typed tables, in SQL as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types
from tests.spark.messages import Topics, topics_in

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


def load(spark: SparkSession, made: Topics, table: str, **options: str) -> DataFrame:
    given = {"namesrv": made.cluster.namesrv, "table": table, **options}
    return spark.read.format("rocketmq_meta").options(**given).load()


def test_every_table_is_found_without_being_registered_and_has_types(spark, topics):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(10)])
    topics.admin.offsets.set("readers", dict.fromkeys(topics.admin.topics.stats(topic), 1))
    queues = load(spark, topics, "queues", topics=topic)
    assert queues.schema["maxOffset"].dataType == types.LongType()
    assert queues.schema["lastStoreTimestamp"].dataType == types.TimestampType()
    assert queues.groupBy().sum("messages").collect() == [(10,)]
    groups = load(spark, topics, "groups", groups="readers")
    assert groups.where("lag > 0").groupBy("group", "topic").sum("lag").collect() == [("readers", topic, 8)]
    [row] = load(spark, topics, "topics", topics=topic).collect()
    assert (row.topic, row.writeQueues, row.ordered, row.attributes, row.error) == (topic, 2, False, {}, None)
    [broker] = load(spark, topics, "brokers").select("brokerName", "diskUsed", "startTimestamp").collect()
    assert broker.brokerName == "broker-a"
    assert 0 < broker.diskUsed < 1
    assert broker.startTimestamp is not None


def test_sql_knows_the_tables_by_view_and_by_catalog(spark, topics):
    topic = topics.new(3)
    options = f"OPTIONS (namesrv '{topics.cluster.namesrv}', table 'queues', topics '{topic}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW queues USING rocketmq_meta {options}")
    spark.sql(f"CREATE TABLE kept_queues USING rocketmq_meta {options}")
    for name in ("queues", "kept_queues"):
        assert spark.sql(f"SELECT max(queueId) AS last FROM {name} WHERE topic = '{topic}'").collect() == [(2,)]
    spark.sql("DROP TABLE kept_queues")


def test_figures_are_those_of_when_the_query_runs(spark, topics):
    topic = topics.new(1)
    queues = load(spark, topics, "queues", topics=topic).select("messages")
    assert queues.collect() == [(0,)]
    topics.send(topic, [b"x"])
    assert queues.collect() == [(1,)]


def test_what_is_not_there_is_refused_with_the_nearest_name(spark, topics):
    with pytest.raises(Exception, match="there is no table 'topcis'; did you mean topics"):
        load(spark, topics, "topcis")
    with pytest.raises(Exception, match="unknown option tabel; did you mean table"):
        spark.read.format("rocketmq_meta").options(namesrv=topics.cluster.namesrv, tabel="topics").load()
    reader = spark.read.format("rocketmq_meta").options(namesrv=topics.cluster.namesrv, table="queues")
    with pytest.raises(Exception, match="table queues has no column 'maxOfset'; did you mean maxOffset"):
        reader.schema("maxOfset bigint").load().collect()
    with pytest.raises(Exception, match="maxOffset is bigint, not int"):
        reader.schema("maxOffset int").load().collect()
    assert reader.schema("queueID int, TOPIC string").load().columns == ["queueID", "TOPIC"]
