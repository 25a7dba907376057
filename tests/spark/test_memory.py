"""Large messages and many queues: what the workers of Spark hold in memory at a time, and how long plans take."""

from __future__ import annotations

import json
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.lake_kit import Lake, are_dense, offsets, query
from tests.spark.messages import Topics, topics_in

from pyromq.client import MessageQueue
from pyromq.spark import options as known
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.spark.source.stream_reader import RocketMQStreamReader
from pyromq.sync import Producer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from /proc"),
]

MIB = 1 << 20
LARGE = 4 * MIB  # as much as a broker takes
QUEUES = 100
# Half of it is Python with its packages. Batches have 8 MiB, and a few are on their way at a time: pulled, decoded,
# written to the JVM. All messages together have 400 MiB.
BOUND = 256 * MIB
MOST = 352 * MIB
_WORKER = rb"\S*python\S*\0-m\0pyspark\."


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def large(topics: Topics) -> str:
    """A topic with one message of 4 MiB in each of a hundred queues."""
    topic = topics.new(QUEUES)
    with Producer("large", namesrv=topics.cluster.namesrv, compress_over=2 * LARGE) as producer:
        for number in range(QUEUES):
            queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=number)
            producer.send(topic, os.urandom(LARGE), queue=queue)
    return topic


def workers() -> list[Path]:
    """The Python processes of Spark below this one."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(entry.name)] = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [Path(f"/proc/{pid}") for pid, name in names.items() if re.match(_WORKER, name) and is_ours(pid)]


def memory(process: Path, line: str) -> int:
    """Bytes of a process by a line of its status; 0 if it has ended."""
    try:
        found = [text for text in (process / "status").read_text().splitlines() if text.startswith(f"{line}:")]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[0].split()[1]) * 1024 if found else 0


def most_memory(frame: DataFrame) -> int:
    """The most memory that a worker had, all of it, while every row was read."""
    return most_memory_of(lambda: frame.write.format("noop").mode("overwrite").save())


def most_memory_of(work: Callable[[], object]) -> int:
    """The most memory that a worker had meanwhile."""
    for process in workers():
        (process / "clear_refs").write_text("5")  # forget the peak of what was before
    work()
    return max(memory(process, "VmHWM") for process in workers())


@pytest.mark.scenario("spark 43")
def test_large_messages_of_many_queues_are_read_from_brokers_in_bounded_memory(spark, topics, large):
    frame = spark.read.format("rocketmq").options(**topics.options(large)).load()
    assert frame.selectExpr("sum(length(body))").first()[0] == QUEUES * LARGE
    assert most_memory(frame) < BOUND


@pytest.mark.scenario("spark 43")
@pytest.mark.parametrize("via", ["log", "queue"])
def test_large_messages_are_read_from_files_in_bounded_memory(spark, topics, large, via):
    root = topics.cluster.folder / "broker-a"
    frame = spark.read.format("rocketmq_log").options(topics=large, via=via).load(str(root))
    assert frame.selectExpr("sum(length(body))").first()[0] == QUEUES * LARGE
    assert most_memory(frame) < BOUND


@pytest.mark.scenario("spark 43")
def test_large_messages_are_archived_in_bounded_memory(spark, topics, large, tmp_path):
    lake = Lake(spark, topics.cluster.namesrv, tmp_path / "lake")
    stores = {"broker-a": str(topics.cluster.folder / "broker-a")}
    ways: dict[str, dict[str, Any]] = {"pulled": {}, "read": {"stores": stores, "direct_log_over": 0}}
    for name, options in ways.items():
        # A row group on its way in addition to the batches.
        assert most_memory_of(partial(lake.archive, large, aliases={large: name}, **options)) < MOST
        found = query(lake.folder / name, "SELECT count(*), sum(octet_length(body)) FROM rows")
        assert found == [(QUEUES, QUEUES * LARGE)]


@pytest.mark.scenario("spark 43")
def test_a_thousand_queues_are_archived_by_a_few_tasks(spark, topics, tmp_path):
    topic = topics.new(1000)
    topics.send(topic, [b"%d" % number for number in range(2000)])
    lake = Lake(spark, topics.cluster.namesrv, tmp_path / "lake")
    for _ in range(2):
        done = lake.archive(topic)
        assert (done.rows, done.files, done.commits, done.errors) == (2000, 1, 1, {})
        topics.send(topic, [b"%d" % number for number in range(2000)])
    assert are_dense(offsets(lake.table(topic)), range(1000))


@pytest.mark.scenario("spark 43")
def test_a_stream_of_a_thousand_queues_is_planned_in_a_second_with_short_checkpoints(topics):
    topic = topics.new(1000)
    topics.send(topic, [b"%d" % number for number in range(2000)])
    options = topics.options(topic, startingOffsets="earliest")
    reader = RocketMQStreamReader(known.parse(known.SourceOptions, options), ARROW_SCHEMA)
    try:
        start = reader.initialOffset()
        begin = time.process_time()  # of this process, which is broker, driver and reader
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, end)
        took = time.process_time() - begin
    finally:
        reader.stop()
    assert took < 1.0
    assert len(parts) <= 8
    assert len(json.dumps(end)) < 200_000
