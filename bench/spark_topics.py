"""`rocketmq` in Spark: from our broker, next to the files that the broker reads; and what pipelined pulls gain."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.sync import AdminClient
from pyromq.testing.cluster import running_cluster

from .spark_kit import Results, best, consume, fill, folder, is_quick, rate, rounds, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pyromq.testing.cluster import Cluster

TOPIC = "topic-0"
QUEUES = 4
COUNTS = {1024: 240_000, 128: 800_000}
FAR = 60_000
# What Apache's brokers give to a pull, from memory and from disk.
STOCK_CAPS = (
    "maxTransferCountOnMessageInMemory=32",
    "maxTransferBytesOnMessageInMemory=262144",
    "maxTransferCountOnMessageInDisk=8",
    "maxTransferBytesOnMessageInDisk=65536",
)
# What a broker that serves Spark is better set to: a task reads as fast as its answers are large.
RAISED_CAPS = (
    "maxTransferCountOnMessageInMemory=4096",
    "maxTransferBytesOnMessageInMemory=1m",
    "maxTransferCountOnMessageInDisk=4096",
    "maxTransferBytesOnMessageInDisk=1m",
)
HALF_A_ROUND_TRIP = 0.0005


def main(seconds: float) -> None:
    results = Results("rocketmq in Spark, two slots")
    with folder() as scratch, session(scratch) as spark:
        share = 4 if is_quick(seconds) else 1
        for body, count in COUNTS.items():
            what = f"{body} B: our broker, 4 queues / rocketmq_log"
            near = Near(spark, scratch / f"near-{body}", count // share, body, rounds(seconds))
            results.at_least(f"{what}, raised caps", *near.measured(RAISED_CAPS), 0.5)
            results.at_least(f"{what}, stock caps", *near.measured(STOCK_CAPS), None)
        _pipelined(spark, scratch / "far", FAR // share, results, seconds)
    results.show()


@contextlib.contextmanager
def cluster_with(root: Path, count: int, body: int, queues: int, *settings: str) -> Iterator[Cluster]:
    """A cluster whose broker was given its messages before it started."""
    fill(root / "broker-a", count, body, queues=queues, file_size=1 << 30)
    with running_cluster(root, "mappedFileSizeCommitLog=1g", *settings) as cluster:
        with AdminClient(cluster.namesrv) as admin:
            admin.topics.create(TOPIC, write_queues=queues, read_queues=queues)
        yield cluster


def topic(spark: SparkSession, cluster: Cluster, **options: str) -> DataFrame:
    given = {"namesrv": cluster.namesrv, "subscribe": TOPIC, **options}
    return spark.read.format("rocketmq").options(**given).load()


@dataclass(frozen=True)
class Near:
    """A topic read from our broker, hot, next to its files."""

    spark: SparkSession
    root: Path
    count: int
    body: int
    times: int

    def measured(self, caps: tuple[str, ...]) -> tuple[str, str, float]:
        """Both rates, and the ratio."""
        root = self.root / caps[0].rpartition("=")[2]
        with cluster_with(root, self.count, self.body, QUEUES, *caps) as cluster:
            ours = topic(self.spark, cluster, **{"pull.batchSize": "4096"})
            files = self.spark.read.format("rocketmq_log").option("topics", TOPIC).load(str(root / "broker-a"))
            assert ours.count() == files.count() == self.count
            took = best({"ours": lambda: consume(ours), "files": lambda: consume(files)}, self.times)
        return rate(self.count, took["ours"]), rate(self.count, took["files"]), took["files"] / took["ours"]


def _pipelined(spark: SparkSession, root: Path, count: int, results: Results, seconds: float) -> None:
    with cluster_with(root, count, 1024, 1, *STOCK_CAPS) as cluster, _far_away(cluster.broker.address) as address:
        options = {
            "brokerAddressMap": f"{cluster.broker.address}={address}",
            "partitionBytes": "1g",
            "parallelism": "1",
        }
        ours, one = topic(spark, cluster, **options), topic(spark, cluster, **options, **{"pull.pipeline": "1"})
        assert ours.count() == one.count() == count
        took = best({"ours": lambda: consume(ours), "one": lambda: consume(one)}, rounds(seconds))
    sides = rate(count, took["ours"]), rate(count, took["one"])
    results.at_least("4 pulls under way / 1, stock caps, 1 ms away", *sides, took["one"] / took["ours"], 3)


@contextlib.contextmanager
def _far_away(address: str) -> Iterator[str]:
    """An address at which a server is half a millisecond further away in each direction.

    Threads that sleep: the timers of an event loop are rounded up to whole milliseconds.
    """
    host, _, port = address.rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    here, _ = server.accept()
                    there = socket.create_connection((host, int(port)))
                    for one, other in ((here, there), (there, here)):
                        _in_a_thread(_Way(one, other).carry)

        _in_a_thread(serve)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


class _Way:
    """What comes from one socket goes to another, a little later."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source = source
        self._target = target
        for each in (source, target):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def carry(self) -> None:
        _in_a_thread(self._deliver)
        data = b"."
        while data:
            try:
                data = self._source.recv(1 << 20)
            except OSError:
                data = b""
            self._under_way.put((time.monotonic() + HALF_A_ROUND_TRIP, data))

    def _deliver(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = self._under_way.get()
                if (rest := due - time.monotonic()) > 0:
                    time.sleep(rest)
                if not data:
                    self._target.shutdown(socket.SHUT_WR)
                    return
                self._target.sendall(data)


def _in_a_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, daemon=True).start()
