"""Batch writes to topics with a real Spark and a real broker: DataFrames, views and tables, and what is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql
from tests.spark.messages import Topics, bodies, topics_in, until

from pyromq.sync import Consumer, PullConsumer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


def save(frame: DataFrame, topics: Topics, topic: str | None, mode: str = "append", **options: Any) -> None:
    given = {"namesrv": topics.cluster.namesrv, **({} if topic is None else {"topic": topic}), **options}
    frame.write.format("rocketmq").options(**{key: str(given[key]) for key in given}).mode(mode).save()


def load(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    return spark.read.format("rocketmq").options(**topics.options(topic, **options)).load()


def stored(topics: Topics, topic: str) -> dict[int, list[Any]]:
    """Of each queue its messages, as our client sees them."""
    found: dict[int, list[Any]] = {}
    with PullConsumer("look", namesrv=topics.cluster.namesrv) as consumer:
        for queue in consumer.queues(topic):
            held = found[queue.queue_id] = []
            offset = 0
            while (pulled := consumer.pull(queue, offset)).messages:
                held += pulled.messages
                offset = pulled.next_offset
    return found


def total(topics: Topics, topic: str) -> int:
    return sum(offset.max_offset for offset in topics.admin.topics.stats(topic).values())


@pytest.mark.scenario("spark 24")
def test_every_column_of_a_row_reaches_a_consumer(spark, topics):
    topic = topics.new()
    frame = spark.range(200).select(
        sql.concat(sql.lit("body "), "id").alias("body"),
        sql.concat(sql.lit("t"), sql.col("id") % 3).alias("tags"),
        sql.array(sql.concat(sql.lit("k"), "id"), sql.lit("all")).alias("keys"),
        sql.create_map(sql.lit("colour"), sql.lit("blue")).alias("properties"),
        sql.col("id").cast("int").alias("flag"),
        sql.concat(sql.lit("s"), sql.col("id") % 5).alias("shardingKey"),
    )
    save(frame.coalesce(1), topics, topic, batchBytes=2000)
    seen: dict[str, list[int]] = {}
    for held in stored(topics, topic).values():
        for message in held:
            number = int(message.body.split()[1])
            assert (message.tags, message.keys, message.flag) == (f"t{number % 3}", [f"k{number}", "all"], number)
            assert message.properties["colour"] == "blue"
            seen.setdefault(f"s{number % 5}", []).append(number)
    # Same key, same queue, in the order of the rows.
    assert seen == {f"s{rest}": list(range(rest, 200, 5)) for rest in range(5)}
    queues = {queue: {int(m.body.split()[1]) % 5 for m in held} for queue, held in stored(topics, topic).items()}
    assert sum(map(len, queues.values())) == 5


@pytest.mark.scenario("spark 24")
def test_delayed_rows_are_seen_when_they_are_due(spark, topics):
    topic = topics.new(1)
    due = datetime.now(UTC) + timedelta(seconds=4)
    frame = spark.createDataFrame(
        [("at once", None, None), ("by level", 1, None), ("at a time", None, due)],
        "body string, delayLevel int, deliverTimestamp timestamp",
    )
    seen: dict[bytes, float] = {}
    consumer = Consumer("delays", namesrv=topics.cluster.namesrv)
    consumer.subscribe(topic, "*", lambda message: seen.update({message.body: time.time()}))
    with consumer:
        save(frame, topics, topic)
        until(lambda: len(seen) == 3)
    assert seen[b"at a time"] >= due.timestamp() - 0.05
    assert seen[b"at once"] < seen[b"by level"]


@pytest.mark.scenario("spark 5")
def test_a_view_in_sql_is_written_and_copied(spark, topics):
    first, second = topics.new(), topics.new()
    for name, topic in (("v1", first), ("v2", second)):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {name} USING rocketmq "
            f"OPTIONS (namesrv '{topics.cluster.namesrv}', subscribe '{topic}')"
        )
    spark.sql("INSERT INTO v1 (body, tags) VALUES (X'6162', 'T'), (CAST('cd' AS BINARY), NULL)")
    spark.sql("INSERT INTO v1 BY NAME SELECT 'k' AS keys, CAST('ef' AS BINARY) AS body")
    rows = sorted((bytes(row.body), row.tags) for row in spark.table("v1").collect())
    assert rows == [(b"ab", "T"), (b"cd", None), (b"ef", None)]
    spark.sql("INSERT INTO v2 SELECT * FROM v1")
    assert bodies(load(spark, topics, second)) == ["ab", "cd", "ef"]
    assert total(topics, first) == 3
    copied = load(spark, topics, second).where("keys = 'k'").first()
    original = load(spark, topics, first).where("keys = 'k'").first()
    assert copied is not None
    assert original is not None
    assert copied.msgId != original.msgId
    assert copied.topic == second
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        spark.sql("INSERT OVERWRITE v2 SELECT * FROM v1")
    assert total(topics, second) == 3


@pytest.mark.scenario("spark 5")
def test_a_table_is_written_only_when_the_statement_says_where_to(spark, topics, tmp_path):
    first, second = topics.new(), topics.new()
    topics.send(first, [b"one", b"two"])
    namesrv = topics.cluster.namesrv
    for name, topic in (("t1", first), ("t2", second)):
        spark.sql(f"CREATE TABLE {name} USING rocketmq OPTIONS (namesrv '{namesrv}', topic '{topic}')")
    spark.sql(f"CREATE TABLE t3 (body STRING) USING rocketmq OPTIONS (namesrv '{namesrv}', topic '{second}')")
    try:
        for refused in (
            lambda: spark.sql("INSERT INTO t2 SELECT * FROM t1"),
            lambda: spark.table("t1").write.insertInto("t2"),
            lambda: spark.sql("INSERT INTO t3 VALUES ('x')"),
            lambda: spark.sql("INSERT INTO t1 SELECT * FROM t1"),
        ):
            with pytest.raises(Exception, match=r"INSERT INTO t WITH \(namesrv"):
                refused()
        with pytest.raises(Exception, match="use the option columns instead"):
            spark.table("t3").collect()
        with pytest.raises(Exception, match="a topic cannot be overwritten"):
            spark.sql(f"INSERT OVERWRITE t2 WITH (namesrv = '{namesrv}', topic = '{second}') SELECT * FROM t1")
        assert (total(topics, first), total(topics, second)) == (2, 0)

        spark.sql(f"INSERT INTO t2 WITH (namesrv = '{namesrv}', topic = '{second}') SELECT * FROM t1")
        assert (total(topics, first), total(topics, second)) == (2, 2)
        spark.table("t1").writeTo("t2").option("namesrv", namesrv).option("topic", second).append()
        assert bodies(spark.table("t2")) == ["one", "one", "two", "two"]

        query = (
            spark.readStream.option("startingOffsets", "earliest")
            .table("t1")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("namesrv", namesrv)
            .option("topic", second)
            .trigger(availableNow=True)
            .toTable("t2")
        )
        assert query.awaitTermination(120)
        assert (total(topics, first), total(topics, second)) == (2, 6)
    finally:
        for name in ("t1", "t2", "t3"):
            spark.sql(f"DROP TABLE {name}")


@pytest.mark.scenario("spark 27")
def test_bad_rows_fail_are_skipped_or_kept_elsewhere(spark, topics):
    topic, dead = topics.new(), topics.new()
    frame = spark.createDataFrame(
        [("k1", "good", None), ("k2", None, None), ("k3", "mine", {"UNIQ_KEY": "x"})],
        "keys string, body string, properties map<string,string>",
    ).coalesce(1)
    with pytest.raises(Exception, match=r"keys 'k2' to topic-\d+: its body is null"):
        save(frame, topics, topic)
    before = total(topics, topic)
    save(frame, topics, topic, onBadRow="skip")
    assert total(topics, topic) == before + 1
    save(frame, topics, topic, onBadRow=f"dlq:{dead}")
    assert total(topics, topic) == before + 2
    letters = {row.keys: row.properties["SPARK_BAD_ROW"] for row in load(spark, topics, dead).collect()}
    assert letters["k2"] == "its body is null"
    assert "property UNIQ_KEY" in letters["k3"]
    large = spark.createDataFrame([("big", "x" * (5 << 20))], "keys string, body string")
    with pytest.raises(Exception, match=r"keys 'big' to .*: its body has 5242880 bytes; at most 4194304 can be sent"):
        save(large, topics, topic)
    with pytest.raises(Exception, match=r"keys 'big' to .*broker-a refuses it.*its body has 5242880 bytes"):
        save(large, topics, topic, maxMessageBytes="8m", compressOver="8m")


def test_what_is_wrong_is_said_before_anything_is_sent(spark, topics):
    topic = topics.new()
    rows = spark.createDataFrame([("x", 1.5)], "body string, price double")
    for frame, options, said in (
        (rows, {}, "column price is not a message column"),
        (rows.select("price"), {"ignoreExtraColumns": "true"}, "column body is missing"),
        (rows.selectExpr("price as body"), {}, "column body must be binary or string, not double"),
        (rows.select("body"), {"batchByte": "1"}, "did you mean batchBytes"),
        (rows.select("body"), {"topic": "there-is-none"}, "there-is-none: no broker has this topic"),
        (rows.select("body"), {"mode": "overwrite"}, "a topic cannot be overwritten"),
        (rows.select("body"), {"onBadRow": "dlq:no-such-topic"}, "no-such-topic: no broker has this topic"),
    ):
        with pytest.raises(Exception, match=said):
            save(frame, topics, **{"topic": topic, **options})
    assert total(topics, topic) == 0
    save(rows, topics, topic, ignoreExtraColumns="true")
    save(rows.selectExpr("body", f"'{topic}' as topic"), topics, None)
    save(rows.select("body"), topics, "made-by-the-sink", createTopic=2)
    assert (total(topics, topic), total(topics, "made-by-the-sink")) == (2, 1)


@pytest.mark.scenario("spark 16")
def test_a_task_that_always_fails_ends_the_write_with_its_own_error(spark, topics):
    topic = topics.new()
    broken = spark.range(10).selectExpr("IF(id = 7, raise_error('row seven'), 'x') AS body")
    with pytest.raises(Exception, match="row seven"):
        save(broken, topics, topic)


def test_a_job_with_a_name_gives_the_same_ids_when_it_runs_again(spark, topics):
    topic = topics.new()
    frame = spark.range(50).selectExpr("CAST(id AS STRING) AS body").coalesce(2)
    save(frame, topics, topic, jobId="nightly")
    save(frame, topics, topic, jobId="nightly")
    rows = load(spark, topics, topic)
    assert (rows.count(), rows.dropDuplicates(["msgId"]).count()) == (100, 50)
    assert rows.selectExpr("properties['SPARK_TXN'] AS txn").where("txn LIKE 'nightly:0:%'").count() == 100
    once = topics.new()
    for _ in range(2):
        save(frame, topics, once, jobId="nightly", guarantee="effectively-once")
    assert bodies(load(spark, topics, once)) == sorted(str(number) for number in range(50))


@pytest.mark.scenario("spark 22")
def test_keys_are_in_no_plan_and_no_error(spark, topics, monkeypatch):
    topic = topics.new()
    frame = spark.createDataFrame([("x",)], "body string")
    secrets = {"accessKey": "ACCESS-K3Y", "secretKey": "S3CR3T-K3Y"}
    with pytest.raises(Exception, match="no broker has this topic") as caught:
        save(frame, topics, "there-is-none", **secrets)
    with pytest.raises(Exception, match="its body is null") as failed:
        save(frame.selectExpr("CAST(NULL AS STRING) AS body"), topics, topic, **secrets)
    for text in (str(caught.value), str(failed.value)):
        assert not any(secret in text for secret in secrets.values())
    with pytest.raises(Exception, match="would be stored in the catalog") as table:
        spark.sql(
            f"CREATE TABLE secret USING rocketmq OPTIONS (namesrv '{topics.cluster.namesrv}', topic '{topic}', "
            "accessKey 'ACCESS-K3Y', secretKey 'S3CR3T-K3Y')"
        )
    assert "S3CR3T-K3Y" not in str(table.value)
    # Keys that are looked up where they are used go nowhere else.
    with pytest.raises(Exception, match="env:SINKTEST has no access key"):
        save(frame, topics, topic, credentials="env:SINKTEST")
