"""`rocketmq_log` in a real Spark: found without registration, rows as the store has them, refusals with a reason."""

from __future__ import annotations

import datetime
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.messages import topics_in
from tests.unit.spark.log.scans import T0, fill, internal_messages, message, misleading_body, scan

from pyromq.protocol import compression, sysflag
from pyromq.protocol.record import MAGIC_V2, MessageRecord
from pyromq.spark.schema import COLUMNS
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    # We import no pandas; pyspark does, and warns about its version.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

V6 = bytes.fromhex("20010db8000000000000000000000001") + (10911).to_bytes(4, "big")


def odd_messages() -> list[MessageRecord]:
    """One of every kind that a store may hold."""
    packed = [
        message(
            900 + kind,
            body=compression.compress(b"packed " * 100, kind),
            sys_flag=sysflag.with_compression(0, kind),
        )
        for kind in (sysflag.ZLIB, sysflag.LZ4, sysflag.ZSTD)
    ]
    return [
        message(800, body=b""),
        message(801, body=b"\xff\x00\xfe"),
        MessageRecord("orders", b"bare"),
        MessageRecord("orders", b"sixes", b"a\x01\x02a\x011\x02a\x012\x02", born_host=V6, store_host=V6),
        MessageRecord("orders", b"bad text", b"KEYS\x01\xff\x02TAGS\x01\xe4\xb8\xad"),
        MessageRecord("%RETRY%" + "g" * 200, b"version 2", magic=MAGIC_V2),
        message(810, body=bytes(range(256)) * (4 << 12)),
        *packed,
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log") / "store"
    plain = [
        message(number, ("orders", "payments")[number % 2], misleading_body(number), queue_id=number % 4)
        for number in range(500)
    ]
    fill(root, plain + odd_messages() + internal_messages(), commit_log_file_size=8 << 20)
    return root


@pytest.fixture(scope="module")
def load(spark: SparkSession, store: Path) -> Callable[..., DataFrame]:
    def loaded(schema: str = "", **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq_log").options(brokerName="broker-a", **options)
        return (reader.schema(schema) if schema else reader).load(str(store))

    return loaded


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """What Spark collected, in the order of the log; times in UTC as Arrow gives them."""
    found = [row.asDict() for row in frame.collect()]
    for row in found:
        for name, value in row.items():
            if isinstance(value, datetime.datetime):
                row[name] = value.astimezone(datetime.UTC)
            elif isinstance(value, bytearray):
                row[name] = bytes(value)
    return sorted(found, key=lambda row: next(row[name] for name in row if name.lower() == "physicaloffset"))


def expected(store: Path, **options: str) -> list[dict[str, Any]]:
    found = scan(store, **options)
    for row in found:
        row["properties"] = dict(row["properties"])
    return found


@pytest.mark.scenario("spark 28")
@pytest.mark.scenario("spark 4")
def test_the_format_is_found_and_gives_every_field_of_every_kind_of_message(load, store):
    found = rows(load(includeInternal="true"))
    assert found == expected(store, includeInternal="true")
    assert [*found[0]] == [*COLUMNS]
    by_key = {row["keys"]: row for row in found}
    assert by_key["k810"]["body"] == bytes(range(256)) * (4 << 12)
    assert {by_key[f"k{900 + kind}"]["body"] for kind in (1, 2, 3)} == {b"packed " * 100}
    assert by_key["\ufffd"]["tags"] == "中"


@pytest.mark.scenario("spark 28")
@pytest.mark.scenario("spark 29")
def test_by_log_in_many_parts_and_by_queue_the_rows_are_the_same(load):
    columns = "topic string, queueId int, queueOffset bigint, physicalOffset bigint, body binary"
    whole = rows(load(columns, topics="orders", via="log"))
    assert len(whole) == 250 + len(odd_messages()) - 1 + 2
    assert rows(load(columns, topics="orders", via="log", partitionBytes="500k")) == whole
    assert rows(load(columns, topics="orders", via="queue", partitionBytes="1m")) == whole


@pytest.mark.scenario("spark 6")
def test_a_user_schema_gives_the_same_values_and_a_wrong_one_is_refused_when_planned(load, store):
    found = rows(load("body binary, PhysicalOffset bigint"))
    assert [(row["body"], row["PhysicalOffset"]) for row in found] == [
        (row["body"], row["physicalOffset"]) for row in expected(store)
    ]
    assert load(columns="tags,queueId").columns == ["tags", "queueId"]
    for schema, problem in (
        ("queueId bigint", "column queueId is int, not bigint"),
        ("queuId int", "did you mean queueId"),
    ):
        with pytest.raises(Exception, match=problem):
            load(schema).collect()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topcs": "orders"}, "unknown option topcs; did you mean topics"),
        ({"via": "air"}, "via must be one of auto, log, queue"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(load, options, problem):
    with pytest.raises(Exception, match=problem):
        load(**options)


@pytest.mark.scenario("spark 31")
def test_messages_inside_the_broker_are_shown_only_when_asked_for(load):
    topics = "topic string, physicalOffset bigint"
    hidden = {row["topic"] for row in rows(load(topics))}
    assert hidden == {"orders", "payments", "%DLQ%g"}
    shown = {row["topic"] for row in rows(load(topics, includeInternal="true"))} - hidden
    assert {name[:8] for name in shown} == {"RMQ_SYS_", "SCHEDULE", "%RETRY%g"}


@pytest.mark.scenario("spark 30")
def test_damage_fails_the_query_with_its_place_or_is_passed_over(spark, store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    (first, *_) = sorted((tmp_path / "store" / "commitlog").iterdir())
    victim = expected(tmp_path / "store")[100]
    with first.open("r+b") as file:
        file.seek(victim["physicalOffset"])
        file.write(b"\x7f")
    frame = spark.read.format("rocketmq_log")
    with pytest.raises(Exception, match=f"{first.name}, byte {victim['physicalOffset']}: record of"):
        frame.load(str(tmp_path / "store")).count()
    whole = len(expected(store))
    assert frame.option("onCorrupt", "skip").load(str(tmp_path / "store")).count() == whole - 1


def test_sql_reads_a_view_and_a_table_that_keeps_its_options(spark, store):
    spark.sql(f"CREATE TEMPORARY VIEW paid USING rocketmq_log OPTIONS (path '{store}', topics 'payments')")
    assert spark.sql("SELECT count(*) FROM paid").first()[0] == 250
    spark.sql(f"CREATE TABLE kept USING rocketmq_log OPTIONS (path '{store}', topics 'payments', columns 'tags,body')")
    try:
        assert spark.sql("SELECT tags, count(*) FROM kept GROUP BY tags").collect() == [("B", 250)]
        assert spark.read.option("topics", "orders").table("kept").count() > 250
    finally:
        spark.sql("DROP TABLE kept")


def test_times_are_compared_as_instants(load):
    at = datetime.datetime.fromtimestamp((T0 + 100) / 1000, datetime.UTC)
    frame = load("storeTimestamp timestamp, physicalOffset bigint")
    assert frame.where(frame.storeTimestamp < at).count() == 100


def test_an_empty_store_is_an_empty_table(spark, tmp_path):
    fill(tmp_path, [])
    frame = spark.read.format("rocketmq_log").load(str(tmp_path))
    assert frame.count() == 0
    assert frame.columns == [*COLUMNS]


@pytest.mark.scenario("spark 28")
def test_the_files_of_a_running_broker_hold_the_rows_that_it_serves(spark):
    with running_cluster() as cluster, topics_in(cluster) as topics:
        topic, other = topics.new(4), topics.new(2)
        topics.send(
            topic, [b"%d" % number for number in range(300)], tags=lambda n: "AB"[n % 2], keys=lambda n: [f"k{n}"]
        )
        topics.send(other, [b"other" * 1000 for _ in range(600)])
        served = rows(spark.read.format("rocketmq").options(**topics.options(topic)).load())
        assert len(served) == 300
        for via in ("log", "queue", "auto"):
            reader = spark.read.format("rocketmq_log").options(topics=topic, via=via)  # the store tells whose it is
            assert rows(reader.load(str(cluster.folder / "broker-a"))) == served
        with pytest.raises(Exception, match=rf"has no topic topik-1; did you mean {topic}\?"):
            spark.read.format("rocketmq_log").option("topics", "topik-1").load(f"{cluster.folder}/broker-a").count()
        with pytest.raises(Exception, match=f"but there are some below it: {cluster.folder}/broker-a"):
            spark.read.format("rocketmq_log").load(str(cluster.folder)).count()
        stream = spark.readStream.format("rocketmq_log").load(f"{cluster.folder}/broker-a")
        with pytest.raises(
            Exception, match="rocketmq_log is for batch reads: stream the topic with the format rocketmq"
        ):
            stream.writeStream.format("noop").start().awaitTermination(90)
