"""What Spark's sink sends, as official Java consumers receive it, from our broker and from Apache's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import apache as official
from tests.interop.apache import Broker
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, stop_all, wait_until

from pyromq.client.identity import Credentials
from pyromq.sync import AdminClient, Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from tests.interop.meeting import Meeting

pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SHOW_ROWS = Path(__file__).parent / "java_rows" / "ShowRows.java"
JAVA = "5.5.0"
SOON = 60.0
ROWS = 300
ACCOUNTS = """
accounts:
- accessKey: keeper-one
  secretKey: keeper-s3cr3t
  admin: true
- accessKey: writer-one
  secretKey: wr1ter-s3cr3t
  defaultTopicPerm: DENY
  topicPerms:
  - allowed=PUB
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    # Workers would otherwise be whatever python3 is first on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


def create(meeting: Meeting, topic: str, queues: int = 4) -> str:
    asyncio.run(meeting.create_topic(topic, queues))
    return topic


def save(frame: DataFrame, meeting: Meeting, topic: str, **options: object) -> None:
    given = {"namesrv": meeting.namesrv, "topic": topic, **{name: str(value) for name, value in options.items()}}
    frame.write.format("rocketmq").options(**given).mode("append").save()


def shown_by_java(meeting: Meeting, topic: str, home: Path) -> list[dict[str, Any]]:
    """All that the official client tells of the messages of a topic, those of a queue in their order."""
    command = [*official.java(JAVA, home, (*official.SMALL_CLIENT, official.silent(home))), str(SHOW_ROWS)]
    arguments = [meeting.namesrv, topic]
    log = home / f"{topic}.out"
    with Process("rows", [*command, *arguments], log=log, env=official.environment(home)) as process:
        process.wait_for("all shown", SOON)
        lines = process.lines("row")
    rows = []
    for line in lines:
        pairs = [map(base64.b64decode, word.split(":")) for word in line.split()]
        fields = {name.decode(): value for name, value in pairs}
        rows.append({name: value if name == "body" else value.decode() for name, value in fields.items()})
    return sorted(rows, key=lambda row: (int(row["queueId"]), int(row["queueOffset"])))


def all_columns(spark: SparkSession) -> DataFrame:
    return (
        spark.range(ROWS)
        .coalesce(1)
        .selectExpr(
            "CONCAT('body ', id, ' ü') AS body",
            "CONCAT('t', id % 3) AS tags",
            "ARRAY(CONCAT('k', id), 'all') AS keys",
            "MAP('colour', 'blau', 'size', CAST(id AS STRING)) AS properties",
            "CAST(id AS INT) AS flag",
            "CONCAT('s', id % 5) AS shardingKey",
        )
    )


@pytest.mark.scenario("spark 24")
def test_a_java_consumer_receives_every_column(spark, meeting, tmp_path):
    topic = create(meeting, "sink-columns")
    save(all_columns(spark), meeting, topic, batchBytes=2000)
    rows = shown_by_java(meeting, topic, tmp_path)
    assert len(rows) == ROWS
    order: dict[str, list[int]] = {}
    places: dict[str, set[str]] = {}
    for row in rows:
        number = int(row["body"].split()[1])
        assert row["body"] == f"body {number} ü".encode()
        assert (row["tags"], row["keys"], row["flag"]) == (f"t{number % 3}", f"k{number} all", str(number))
        assert (row["property.colour"], row["property.size"]) == ("blau", str(number))
        order.setdefault(row["property.__SHARDINGKEY"], []).append(number)
        places.setdefault(row["property.__SHARDINGKEY"], set()).add(row["queueId"])
    assert order == {f"s{rest}": list(range(rest, ROWS, 5)) for rest in range(5)}
    assert all(len(queues) == 1 for queues in places.values())


@pytest.mark.scenario("spark 24")
def test_a_java_consumer_receives_delayed_rows_when_they_are_due(spark, meeting):
    topic = create(meeting, "sink-delays", 1)
    java = meeting.java(JAVA)
    java.do("push", name="delays", group="sink-delays-group", topic=topic)
    due = datetime.now(UTC) + timedelta(seconds=20)
    frame = spark.createDataFrame(
        [("now", None, None), ("level", 1, None), ("time", None, due)],
        "body string, delayLevel int, deliverTimestamp timestamp",
    ).coalesce(1)
    save(frame, meeting, topic)
    java.wait_for_bodies("delays", {"now", "level"}, SOON)
    if time.time() < due.timestamp() - 2:
        assert "time" not in java.bodies("delays")
    java.wait_for_bodies("delays", {"time"}, SOON)
    assert time.time() >= due.timestamp() - 1
    java.do("leave", name="delays")


@pytest.mark.scenario("spark 24")
def test_a_java_consumer_receives_a_stream_with_the_ids_of_its_batches(spark, meeting, tmp_path):
    first, second = create(meeting, "sink-stream-from"), create(meeting, "sink-stream-to")
    save(all_columns(spark), meeting, first)
    reader = spark.readStream.format("rocketmq").options(namesrv=meeting.namesrv, subscribe=first)
    query = (
        reader.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("rocketmq")
        .options(namesrv=meeting.namesrv, topic=second, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    sent, copied = (shown_by_java(meeting, topic, tmp_path) for topic in (first, second))
    same = ("body", "tags", "keys", "flag", "property.colour", "property.size", "property.__SHARDINGKEY")
    assert sorted([row[name] for name in same[1:]] for row in copied) == sorted(
        [row[name] for name in same[1:]] for row in sent
    )
    assert {row["property.SPARK_TXN"].rsplit(":", 3)[0] for row in copied} == {query.id}
    assert len({row["msgId"] for row in copied}) == ROWS
    # The sharding key went along, and so did its meaning.
    numbers = [int(row["body"].split()[1]) for row in copied if row["property.__SHARDINGKEY"] == "s2"]
    assert numbers == list(range(2, ROWS, 5))


@pytest.mark.scenario("spark 25")
def test_a_job_that_runs_again_sends_nothing_twice(spark, meeting, tmp_path):
    topic = create(meeting, "sink-once")
    frame = spark.range(ROWS).coalesce(2).selectExpr("CAST(id AS STRING) AS body")
    for part in (frame.where(f"id < {ROWS // 2} OR id % 3 = 0"), frame, frame):
        # The first run is not the whole of the job, so that its rows are keyed.
        keyed = part.selectExpr("body", "body AS dedupKey")
        save(keyed, meeting, topic, guarantee="effectively-once", jobId="once", batchBytes=1000)
    bodies = sorted(int(row["body"]) for row in shown_by_java(meeting, topic, tmp_path))
    assert bodies == list(range(ROWS))


@contextlib.contextmanager
def keeper(namesrv: str) -> Iterator[Any]:
    """Somebody who may do everything."""
    with (
        Client(namesrv, credentials=Credentials("keeper-one", "keeper-s3cr3t")) as client,
        AdminClient(client=client) as admin,
    ):
        yield admin


@pytest.mark.scenario("spark 22")
def test_a_wrong_key_fails_naming_the_topic_and_no_key_is_shown(spark, java_packages, tmp_path):
    conf = tmp_path / "broker" / "conf"
    conf.mkdir(parents=True)
    conf.joinpath("plain_acl.yml").write_text(ACCOUNTS)
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS body").coalesce(1)
    broker = None
    with NameServer(OURS, tmp_path / "namesrv") as namesrv:
        try:
            broker = Broker("4.9.7", tmp_path / "broker", namesrv.address, aclEnable="true")
            broker.wait_until_booted()
            with keeper(namesrv.address) as admin:
                wait_until(lambda: bool(admin.brokers.cluster_info().broker_addr_table), SOON, "the broker is known")
                for topic in ("allowed", "denied"):
                    admin.topics.create(topic, read_queues=1, write_queues=1)
                wait_until(lambda: {"allowed", "denied"} <= set(admin.topics.names()), SOON, "the topics are known")
            given = {
                "namesrv": namesrv.address,
                "topic": "allowed",
                "accessKey": "writer-one",
                "secretKey": "wr1ter-s3cr3t",
            }

            def write(rows: DataFrame = frame, **options: str) -> None:
                rows.write.format("rocketmq").options(**{**given, **options}).mode("append").save()

            with pytest.raises(Exception, match="writing to topic allowed needs the PUB permission") as wrong:
                write(secretKey="wr0ng-s3cr3t")
            with pytest.raises(Exception, match="writing to topic denied needs the PUB permission") as denied:
                write(frame.where("body = '3'"), topic="denied")  # alone: brokers of 4.9 do not ask at batches
            for caught in (wrong, denied):
                assert "s3cr3t" not in str(caught.value)
            write()
            conf.joinpath("keys").write_text("accessKey=writer-one\nsecretKey=wr1ter-s3cr3t\n")
            looked_up = {"namesrv": namesrv.address, "topic": "allowed", "credentials": f"file:{conf / 'keys'}"}
            frame.write.format("rocketmq").options(**looked_up).mode("append").save()
            with keeper(namesrv.address) as admin:
                assert sum(offset.max_offset for offset in admin.topics.stats("allowed").values()) == 20
        finally:
            if broker is not None:
                stop_all([broker.process])
