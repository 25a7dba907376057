"""Batch reads of topics with a real Spark and a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql
from tests.spark.messages import Topics, bodies, topics_in

from pyromq.spark.schema import COLUMNS
from pyromq.sync import PullConsumer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyromq.client import MessageQueue

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load()


def all_of(consumer: PullConsumer, queue: MessageQueue) -> Iterator[Any]:
    offset = 0
    while (pulled := consumer.pull(queue, offset)).messages:
        yield from pulled.messages
        offset = pulled.next_offset


@pytest.mark.scenario("spark 1")
@pytest.mark.scenario("spark 3")
def test_a_topic_is_a_table_whose_rows_say_what_a_consumer_sees(spark, topics):
    topic = topics.new()
    numbers = range(1000)
    topics.send(topic, [b"body %d" % n for n in numbers], keys=lambda n: [f"k{n}"], tags=lambda n: f"t{n % 3}")
    frame = load(spark, topics.options(topic))
    rows = {(row.queueId, row.queueOffset): row for row in frame.collect()}
    assert tuple(frame.columns) == COLUMNS
    assert len(rows) == 1000

    with PullConsumer("look", namesrv=topics.cluster.namesrv) as consumer:
        seen = 0
        for queue in consumer.queues(topic):
            for message in all_of(consumer, queue):
                row = rows[queue.queue_id, message.offset]
                assert (row.topic, row.brokerName) == (topic, "broker-a")
                assert (row.msgId, row.offsetMsgId) == (message.id, message.offset_id)
                assert (row.keys, row.tags, bytes(row.body)) == (" ".join(message.keys), message.tags, message.body)
                assert (row.bornHost, row.storeHost) == (message.born_host, message.store_host)
                assert (row.bornTimestamp.timestamp(), row.storeTimestamp.timestamp()) == pytest.approx(
                    (message.born_at.timestamp(), message.stored_at.timestamp()), abs=0.00001
                )
                assert row.properties.items() <= message.properties.items()
                seen += 1
        assert seen == 1000


def test_odd_bodies_come_back_byte_by_byte(spark, topics):
    topic = topics.new()
    sent = [b"x", bytes(range(256)), b"\xff\xfe" * 100, b"z" * 20_000, bytes(3 << 20)]
    topics.send(topic, sent, keys=["schlüssel", "键"])
    found = load(spark, topics.options(topic)).select("body", "keys").collect()
    assert sorted(bytes(row.body) for row in found) == sorted(sent)
    assert {row.keys for row in found} == {"schlüssel 键"}


@pytest.mark.scenario("spark 6")
def test_a_user_schema_reads_the_same_values_and_wrong_ones_are_refused(spark, topics):
    topic = topics.new()
    topics.send(topic, [b"%d" % number for number in range(50)])
    options = topics.options(topic)
    whole = load(spark, options)
    reader = spark.read.format("rocketmq").options(**options)
    two = reader.schema("body binary, queueId int").load()
    assert two.columns == ["body", "queueId"]
    assert sorted(map(tuple, two.collect())) == sorted(map(tuple, whole.select("body", "queueId").collect()))
    assert load(spark, {**options, "columns": "tags, queueOffset"}).columns == ["tags", "queueOffset"]
    with pytest.raises(Exception, match="queueId is int, not bigint"):
        spark.read.format("rocketmq").options(**options).schema("queueId bigint").load().collect()
    with pytest.raises(Exception, match="did you mean queueId"):
        spark.read.format("rocketmq").options(**options).schema("queueIdd int").load().collect()


@pytest.mark.scenario("spark 2")
@pytest.mark.parametrize("enabled", ["false", "true"])
def test_filters_select_the_same_rows_with_and_without_push_down(spark, topics, enabled):
    topic = topics.new()
    topics.send(topic, [b"%d" % number for number in range(40)], tags=lambda number: "AB"[number % 2])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    try:
        frame = load(spark, topics.options(topic))
        everything = frame.collect()
        for condition, keep in (
            (sql.col("queueId") == 1, lambda row: row.queueId == 1),
            (sql.col("queueOffset").between(2, 5), lambda row: 2 <= row.queueOffset <= 5),
            (sql.col("queueOffset").isin(0, 1, 7), lambda row: row.queueOffset in (0, 1, 7)),
            (sql.col("tags") == "A", lambda row: row.tags == "A"),
            (
                sql.col("storeTimestamp") > everything[20].storeTimestamp,
                lambda row: row.storeTimestamp > everything[20].storeTimestamp,
            ),
        ):
            chosen = frame.where(condition)
            assert sorted(bytes(row.body) for row in chosen.collect()) == sorted(
                bytes(row.body) for row in everything if keep(row)
            )
        plan = frame.where("queueId = 1")._jdf.queryExecution().executedPlan().toString()
        assert ("Filter (" in plan) is (enabled == "false")
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.scenario("spark 7")
def test_offsets_and_times_choose_exactly_the_ranges_asked_for(spark, topics):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(40)])
    rows = load(spark, topics.options(topic)).select("queueId", "queueOffset", "storeTimestamp").collect()
    ends = {queue: max(row.queueOffset for row in rows if row.queueId == queue) + 1 for queue in (0, 1)}
    starting = json.dumps({topic: {"broker-a": {"0": 3, "1": -2}}})
    ending = json.dumps({topic: {"broker-a": {"0": -1, "1": 4}}})
    frame = load(spark, topics.options(topic, startingOffsets=starting, endingOffsets=ending))
    got = {(row.queueId, row.queueOffset) for row in frame.collect()}
    assert got == {(0, offset) for offset in range(3, ends[0])} | {(1, offset) for offset in range(4)}

    at = sorted(row.storeTimestamp for row in rows)[20]
    ms = round(at.timestamp() * 1000)
    later = load(spark, topics.options(topic, startingTimestamp=at.astimezone().isoformat()))
    sooner = load(spark, topics.options(topic, endingTimestamp=ms))
    assert {(row.queueId, row.queueOffset) for row in later.collect()} == {
        (row.queueId, row.queueOffset) for row in rows if row.storeTimestamp >= at
    }
    assert later.count() + sooner.count() == 40

    unknown = json.dumps({topic: {"broker-a": {"7": 0}}})
    with pytest.raises(Exception, match="there is no queue 7"):
        load(spark, topics.options(topic, startingOffsets=unknown)).collect()
    with pytest.raises(Exception, match="reads nothing in batch"):
        load(spark, topics.options(topic, startingOffsets="latest")).collect()


@pytest.mark.scenario("spark 14")
def test_a_long_queue_is_cut_into_tasks_and_small_ones_share_one(spark, topics):
    topic = topics.new(1)
    topics.send(topic, [b"%d" % number for number in range(3000)])
    cut = load(spark, topics.options(topic, maxRecordsPerPartition=500))
    assert cut.rdd.getNumPartitions() == 6
    assert bodies(cut) == sorted(str(number) for number in range(3000))
    quiet = topics.new(16)
    topics.send(quiet, [b"%d" % number for number in range(32)])
    packed = load(spark, topics.options(quiet))
    assert packed.rdd.getNumPartitions() == 1
    assert packed.count() == 32


@pytest.mark.scenario("spark 20")
def test_a_group_is_resumed_where_it_has_progress_and_elsewhere_the_fallback_counts(spark, topics):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % number for number in range(20)])
    queues = sorted(topics.admin.topics.stats(topic))
    topics.admin.offsets.set("halfway", {queues[0]: 5})
    options = topics.options(topic, startingOffsets="group", consumerGroup="halfway")
    first = load(spark, options).groupBy("queueId").agg(sql.min("queueOffset")).collect()
    assert dict(map(tuple, first)) == {0: 5, 1: 0}
    assert [
        row.queueId
        for row in load(spark, {**options, "groupFallback": "latest"}).select("queueId").distinct().collect()
    ] == [0]


@pytest.mark.scenario("spark 21")
def test_tags_whose_hashes_collide_are_told_apart(spark, topics):
    topic = topics.new()
    for tag in ("Aa", "BB", "Aa", "C"):  # the first two have the same hash in Java
        topics.send(topic, [tag.encode()], tags=tag)
    assert bodies(load(spark, topics.options(topic, tags="Aa"))) == ["Aa", "Aa"]
    assert bodies(load(spark, topics.options(topic, tags="BB || C"))) == ["BB", "C"]


def test_views_in_sql_read_topics(spark, topics):
    topic = topics.new()
    topics.send(topic, [b"one", b"two"])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING rocketmq "
        f"OPTIONS (namesrv '{topics.cluster.namesrv}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT count(*) FROM v").first()[0] == 2
    spark.sql(f"CREATE TABLE t USING rocketmq OPTIONS (namesrv '{topics.cluster.namesrv}', subscribe '{topic}')")
    try:
        assert spark.sql("SELECT count(*) FROM t").first()[0] == 2
    finally:
        spark.sql("DROP TABLE t")


def test_what_is_wrong_with_options_is_said(spark, topics):
    topic = topics.new()
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        load(spark, topics.options(topic, startingOffset="earliest"))
    with pytest.raises(Exception, match="no broker has this topic"):
        load(spark, topics.options("there-is-none")).collect()
    assert load(spark, topics.options(topic)).collect() == []
