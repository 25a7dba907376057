"""A stream whose broker or name server goes away and comes back: no failure, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from tests.ports import free_port
from tests.spark.messages import bodies, until

from pyromq import broker, namesrv
from pyromq.sync import AdminClient, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

# Longer than a client believes a connection, shorter than a test may take. What the driver asks is asked anew all the
# time, so an outage of a minute is this one, several times.
OUTAGE = 8.0


class Server:
    """A server in a thread of its own, that can be stopped and started again with the same port and the same files."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        started: Future[None] = Future()

        async def live() -> None:
            self._loop = asyncio.get_running_loop()
            self._ended = asyncio.Event()
            async with self._make():
                started.set_result(None)
                await self._ended.wait()

        def work() -> None:
            try:
                asyncio.run(live())
            except BaseException as exc:
                if started.done():
                    raise
                started.set_exception(exc)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        started.result(60)

    def stop(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()
            self._thread = None


class Pair:
    """A name server and a broker, each with a life of its own."""

    def __init__(self, folder: Path) -> None:
        first, second = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{first}"
        of_name_server = (
            "bindAddress=127.0.0.1",
            f"listenPort={first}",
            f"kvConfigPath={folder / 'kvConfig.json'}",
            f"configStorePath={folder / 'namesrv.properties'}",
        )
        of_broker = (
            "bindAddress=127.0.0.1",
            f"listenPort={second}",
            "brokerIP1=127.0.0.1",
            "brokerName=broker-a",
            f"storePathRootDir={folder / 'store'}",
            f"brokerConfigPath={folder / 'broker.properties'}",
            "mappedFileSizeCommitLog=64m",
            "drainSeconds=0",
            "registerNameServerPeriod=10000",
            "brokerFastFailureEnable=false",
        )
        self.name_server = Server(
            lambda: namesrv.NameServer(namesrv.load_settings(environ={}, sets=list(of_name_server)))
        )
        self.broker = Server(
            lambda: broker.Broker(broker.load_settings(environ={}, sets=list(of_broker), namesrv_addr=self.namesrv))
        )

    def send(self, topic: str, numbers: range) -> None:
        with Producer("tests", namesrv=self.namesrv) as producer:
            for number in numbers:
                producer.send(topic, b"%d" % number, timeout=20.0)


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


def is_answering(pair: Pair, topic: str) -> bool:
    from pyromq.errors import PyroMQError

    try:
        with AdminClient(pair.namesrv) as admin:
            return bool(admin.topics.stats(topic))
    except PyroMQError:
        return False


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
