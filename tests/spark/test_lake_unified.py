"""History and live as one: with a real Spark, a real broker, and an archive that goes on while they are read."""

from __future__ import annotations

import re
import runpy
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.lake_kit import Lake
from tests.spark.messages import Topics, bodies, topics_in, until

import pyromq.spark as mq
from pyromq.client import MessageQueue
from pyromq.client.admin.headroom import Alarm
from pyromq.errors import ConfigError
from pyromq.spark.lake import history as history_module
from pyromq.spark.lake.headroom import archive_group
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.tables import open_table
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOBODY = "127.0.0.1:1"  # no name server listens there


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    # Nothing is kept, and nothing deleted before somebody asks for it: there is no such hour.
    fast = ("cleanResourceInterval=20", "flushConsumeQueueThoroughInterval=20", "deleteCommitLogFilesInterval=0")
    sets = ("mappedFileSizeCommitLog=65536", "fileReservedTime=0", "deleteWhen=99", *fast)
    with running_cluster(None, *sets) as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _enabled(spark, topics):
    mq.enable(spark, namesrv=topics.cluster.namesrv)


@pytest.fixture(scope="module")
def lake(spark, topics, tmp_path_factory):
    """Its folder has a name that Spark would take for a pattern."""
    return Lake(spark, topics.cluster.namesrv, tmp_path_factory.mktemp("a") / "lake [1] {x}")


def dense(frame: DataFrame) -> int:
    """How many messages a frame has; each queue must have every offset once."""
    held: dict[tuple[str, int], list[int]] = {}
    for row in frame.select("brokerName", "queueId", "queueOffset").collect():
        held.setdefault((row.brokerName, row.queueId), []).append(row.queueOffset)
    for queue, found in held.items():
        assert sorted(found) == list(range(len(found))), queue
    return sum(map(len, held.values()))


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


@pytest.mark.scenario("spark 37")
def test_it_is_whole_while_producers_send_and_the_archive_goes_on(spark, lake, topics):
    topic = topics.new(4)
    sent, stop = [0], threading.Event()

    def produce():
        while not stop.wait(0.05):
            topics.send(topic, numbers(0, 50))
            sent[0] += 50

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        until(lambda: sent[0] >= 500)
        lake.archive(topic)
        mq.register_topics(spark, pattern=topic, lake=str(lake.folder))
        versions = set()
        for _ in range(3):
            before = sent[0]
            frame = mq.unified(spark, topic, lake=str(lake.folder))
            # The lake moves on between plan and read.
            versions.add(lake.archive(topic).commits)
            assert dense(frame) >= before
            before = sent[0]
            assert dense(spark.table(f"`{topic}_all`")) >= before
        assert versions == {1}
    finally:
        stop.set()
        producer.join()
    total = sent[0]
    assert dense(mq.unified(spark, topic, lake=str(lake.folder))) == total
    archived = spark.table(f"`{topic}_lake`").count()
    assert 0 < archived < total
    # Without a new archive there is more live, with one there is none, and the whole is the same.
    assert lake.archive(topic).rows == total - archived
    assert spark.table(f"`{topic}_lake`").count() == total
    assert dense(spark.table(f"`{topic}_all`")) == total
    pinned = mq.unified(spark, topic, lake=str(lake.folder), version=1)
    assert dense(pinned) == total


@pytest.mark.scenario("spark 37")
def test_times_prune_both_sides_and_brokers_are_asked_only_if_they_have_something(spark, lake, topics, monkeypatch):
    topic, root = topics.new(2), str(lake.folder)
    topics.send(topic, numbers(0, 100), tags="a")
    lake.archive(topic)
    middle = datetime.now(UTC)
    time.sleep(0.01)
    topics.send(topic, numbers(100, 150), tags="b")

    def read(**given):
        return bodies(mq.unified(spark, topic, lake=root, **given))

    first, second = sorted(map(str, range(100))), sorted(map(str, range(100, 150)))
    assert read() == sorted(first + second)
    assert read(since=middle) == second
    assert read(until=middle) == first
    assert read(since=middle - timedelta(days=1), until=middle.isoformat()) == first
    assert read(until=(middle - timedelta(days=1)).date()) == []
    frame = mq.unified(spark, topic, lake=root, columns="queueOffset,storeTimestamp,tags")
    assert frame.columns == ["queueOffset", "storeTimestamp", "tags"]
    assert frame.where("tags = 'b'").count() == 50
    # What is complete up to then needs no broker. Clocks may be five minutes apart.
    monkeypatch.setattr(history_module, "_SKEW", 0.0)
    assert read(until=_table(lake, topic).snapshot().complete, namesrv=NOBODY) == first
    with pytest.raises(Exception, match="none can be reached"):
        read(until=datetime.now(UTC), namesrv=NOBODY)
    whole = spark.read.format("rocketmq").options(**topics.options(topic, **{"lake.root": root, "lake.history": True}))
    assert bodies(whole.load().where(f"storeTimestamp >= '{middle.isoformat()}'")) == second
    # The lake has the first fifty of each queue, the broker the other 25.
    some = (
        whole.load().where("queueId = 1 AND queueOffset IN (1, 2, 40, 60, 99)").select("queueOffset", "tags").collect()
    )
    assert sorted((row.queueOffset, row.tags) for row in some) == [(1, "a"), (2, "a"), (40, "a"), (60, "b")]
    assert whole.load().where("tags = 'b' AND queueId = 1 AND queueOffset IN (1, 60)").count() == 1
    assert bodies(whole.option("tags", "b || c").option("columns", "body").load()) == second


def _table(lake, topic):
    return open_table(Storage.of(str(lake.folder)), topic.replace("-", "_"))


def test_what_cannot_be_whole_is_refused(spark, lake, topics):
    topic, root = topics.new(1), str(lake.folder)
    with pytest.raises(Exception, match="there is no table"):
        mq.unified(spark, topic, lake=root)
    with pytest.raises(ConfigError, match="since and until"):
        mq.unified(spark, topic, lake=root, startingOffsets="earliest")
    with pytest.raises(ConfigError, match="since must be a time"):
        mq.unified(spark, topic, lake=root, since="yesterday")
    with pytest.raises(ConfigError, match="looks like seconds"):
        mq.unified(spark, topic, lake=root, until=1_700_000_000)
    topics.send(topic, numbers(0, 10))
    lake.archive(topic)
    topics.admin.topics.delete(topic)
    topics.admin.topics.create(topic, write_queues=1, read_queues=1)
    topics.send(topic, numbers(0, 3))
    # The topic was created again: offset 3 is not what follows the lake's offset 9.
    with pytest.raises(Exception, match="offset 10 was wanted, but the queue ends at 3"):
        mq.unified(spark, topic, lake=root).collect()
    assert mq.unified(spark, topic, lake=root, failOnDataLoss=False).count() == 10


@pytest.mark.scenario("spark 37")
def test_a_stream_begins_in_the_lake_and_goes_on_live(spark, lake, topics, tmp_path):
    topic = topics.new(2)
    topics.send(topic, numbers(0, 400))
    lake.archive(topic)
    # The broker forgets what is archived.
    topics.send(topic, [b"%d" % number + b" " * 20_000 for number in range(400, 410)])
    topics.admin.brokers.clean_log()
    until(lambda: min(each.min_offset for each in topics.admin.topics.stats(topic).values()) > 0)
    table = tmp_path / "out"

    def run(rows):
        frame = mq.unified_stream(spark, topic, lake=str(lake.folder), maxOffsetsPerTrigger=150)
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(table))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert dense(spark.read.parquet(str(table))) == rows

    run(410)
    topics.send(topic, numbers(410, 500))
    lake.archive(topic)
    topics.send(topic, numbers(500, 550))
    run(550)


@pytest.mark.scenario("spark 38")
def test_iceberg_tables_do_the_same(spark, topics, tmp_path):
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    topic = topics.new(2)
    place: dict[str, Any] = {"lake": str(tmp_path / "lake"), "lake_options": catalog}
    lake = Lake(spark, topics.cluster.namesrv, tmp_path / "lake")
    topics.send(topic, numbers(0, 60))
    lake.archive(topic, lake_options=catalog)
    topics.send(topic, numbers(60, 100))
    frame = mq.unified(spark, topic, **place)
    for pin in (True, False):
        views = mq.register_topics(spark, pattern=topic, **place, pin=pin)
        assert views == [topic, f"{topic}_lake", f"{topic}_all"]
        assert (spark.table(f"`{topic}_lake`").count(), dense(spark.table(f"`{topic}_all`"))) == (60, 100)
    lake.archive(topic, lake_options=catalog)
    topics.send(topic, numbers(100, 110))
    assert dense(frame) == 110
    assert (spark.table(f"`{topic}_lake`").count(), dense(spark.table(f"`{topic}_all`"))) == (100, 110)


def test_a_stream_starts_where_a_version_of_the_lake_ends(spark, lake, topics, tmp_path):
    topic = topics.new(2)
    topics.send(topic, numbers(0, 40))
    lake.archive(topic)
    first = _table(lake, topic).snapshot()
    topics.send(topic, numbers(40, 60))
    lake.archive(topic)
    topics.send(topic, numbers(60, 70))

    def rows(name, **more):
        given = {"startingOffsets": "lake", "lake.root": lake.folder, "parallelism": 2, **more}
        frame = spark.readStream.format("rocketmq").options(**topics.options(topic, **given)).load()
        out = tmp_path / name
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"{name}.c"))
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
        return len(bodies(spark.read.parquet(str(out))))

    assert rows("newest") == 10
    assert rows("first", **{"lake.version": first.version}) == 30
    # A checkpoint counts more than where the lake is now.
    lake.archive(topic)
    topics.send(topic, numbers(70, 75))
    assert rows("newest") == 15


@pytest.mark.scenario("spark 34")
def test_an_archive_tells_brokers_how_far_it_is_and_raises_the_alarm(lake, topics, caplog):
    topic = topics.new(1)
    seen: list[Any] = []
    topics.send(topic, numbers(0, 20))
    lake.archive(topic, progress=seen.append)
    # Nothing is kept for any time by this broker, so there is none left.
    assert seen[-1].headroom.alarm is Alarm.ERROR
    assert f"{topic}: 20 messages are not archived; the oldest, in queue 0 of {topic} on broker-a" in caplog.text
    assert mq.headroom(topics.cluster.namesrv, topic, lake=str(lake.folder)).alarm is Alarm.NONE
    until(lambda: int(_runtime(topics).get("archives", 0)) > 0)
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    assert topics.admin.offsets.committed(archive_group(str(lake.folder)), queue) == 20


def _runtime(topics):
    return topics.admin.brokers.runtime(topics.cluster.broker.address)


def test_the_example_does_what_the_guide_says(spark, topics, tmp_path, capsys):
    if "orders" not in topics.admin.topics.names():
        topics.admin.topics.create("orders", write_queues=2, read_queues=2)
    topics.send("orders", numbers(0, 30), tags=lambda number: "paid" if number % 3 else "open")
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lake.py"))
    example["main"](topics.cluster.namesrv, str(tmp_path / "lake"))
    said = capsys.readouterr().out
    assert "archived 30 messages" in said
    assert re.search(r"\|\s*paid\|\s+20\|", said)
    assert "sent 20 again" in said
    assert said.endswith("orders: all is archived\n")
    assert bodies(mq.read(spark, "orders-again", topics.cluster.namesrv)) == sorted(str(n) for n in range(30) if n % 3)
