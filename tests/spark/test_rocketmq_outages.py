"""A stream, or an archive, whose broker or name server goes away and comes back: no failure, nothing lost or twice."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.lake_kit import Lake, are_dense, offsets
from tests.spark.messages import bodies, until
from tests.spark.outages_kit import Pair, is_answering

from pyromq.sync import AdminClient, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.spark.lake.archive import ArchiveProgress, ArchiveSummary

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

# Longer than a client believes a connection, shorter than a test may take. What the driver asks is asked anew all the
# time, so an outage of a minute is this one, several times.
OUTAGE = 8.0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        made.name_server.start()
        made.broker.start()
        yield made
    finally:
        made.broker.stop()
        made.name_server.stop()


def stay_away(query: Any) -> None:
    """The outage: all the while the query must go on."""
    ends = time.monotonic() + OUTAGE
    until(lambda: time.monotonic() > ends or not query.isActive)
    assert query.isActive, query.exception()


@pytest.mark.scenario("spark 17")
def test_a_stream_outlives_its_broker_and_its_name_server(spark, pair, tmp_path):
    with AdminClient(pair.namesrv) as admin:
        until(lambda: bool(admin.brokers.cluster_info().broker_addr_table))
        admin.topics.create("lasting", write_queues=2, read_queues=2)
    until(lambda: is_answering(pair, "lasting"))
    pair.send("lasting", range(50))
    options = {"namesrv": pair.namesrv, "subscribe": "lasting", "startingOffsets": "earliest"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("parquet").start(str(tmp_path / "out"))

    def arrived() -> int:
        assert query.isActive, query.exception()
        return sum(progress.numInputRows for progress in query.recentProgress)

    try:
        until(lambda: arrived() == 50)

        pair.broker.stop()
        stay_away(query)
        pair.broker.start()
        until(lambda: is_answering(pair, "lasting"))
        pair.send("lasting", range(50, 100))
        until(lambda: arrived() >= 100)

        pair.name_server.stop()
        stay_away(query)
        pair.name_server.start()
        until(lambda: is_answering(pair, "lasting"))
        pair.send("lasting", range(100, 150))
        until(lambda: arrived() >= 150)
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == sorted(str(number) for number in range(150))


@pytest.mark.scenario("spark 17")
def test_messages_keep_coming_while_the_name_server_is_down(spark, pair, tmp_path):
    with AdminClient(pair.namesrv) as admin:
        until(lambda: bool(admin.brokers.cluster_info().broker_addr_table))
        admin.topics.create("steady", write_queues=1, read_queues=1)
    until(lambda: is_answering(pair, "steady"))
    options = {"namesrv": pair.namesrv, "subscribe": "steady", "startingOffsets": "earliest"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with Producer("tests", namesrv=pair.namesrv) as producer:
        producer.send("steady", b"before")
        query = writer.format("memory").queryName("steady").start()
        try:
            until(lambda: spark.table("steady").count() == 1)
            pair.name_server.stop()
            # Past the time that routes are believed, so that the driver asks for them in vain.
            stay_away(query)
            producer.send("steady", b"meanwhile")
            until(lambda: spark.table("steady").count() == 2)
        finally:
            query.stop()
    assert bodies(spark.table("steady")) == ["before", "meanwhile"]


def test_an_archive_outlives_its_broker_and_its_name_server(spark, pair, tmp_path):
    with AdminClient(pair.namesrv) as admin:
        until(lambda: bool(admin.brokers.cluster_info().broker_addr_table))
        admin.topics.create("kept", write_queues=2, read_queues=2)
    until(lambda: is_answering(pair, "kept"))
    pair.send("kept", range(50))
    lake = Lake(spark, pair.namesrv, tmp_path / "lake")
    ends = threading.Event()
    seen: list[ArchiveProgress] = []
    results: list[ArchiveSummary] = []
    impatient = {"every": 0.1, "max_lag": 0.1, "stop": ends.is_set, "progress": seen.append}
    thread = threading.Thread(target=lambda: results.append(lake.archive("kept", once=False, **impatient)))
    thread.start()

    def archived() -> int:
        return sum(map(len, offsets(lake.table("kept")).values()))

    try:
        until(lambda: archived() == 50)
        pair.broker.stop()
        until(lambda: seen[-1].error is not None)
        pair.broker.start()
        until(lambda: is_answering(pair, "kept"))
        pair.send("kept", range(50, 100))
        until(lambda: archived() == 100)
        # Without a name server it goes on with the routes that it knows.
        with Producer("steady", namesrv=pair.namesrv) as producer:
            producer.send("kept", b"100", timeout=20.0)
            pair.name_server.stop()
            for number in range(101, 150):
                producer.send("kept", b"%d" % number, timeout=20.0)
            until(lambda: archived() == 150)
        pair.name_server.start()
        assert thread.is_alive()
    finally:
        ends.set()
        thread.join()
    [done] = results
    assert (done.rows, done.errors, done.gaps) == (150, {}, [])
    assert are_dense(offsets(lake.table("kept")))
