"""Source and sink while the master of their topic is replaced, by plan and by accident: no job fails for it.

The source gives every row once. The sink gives every row at least once with the same id, or, with `effectively-once`,
exactly once.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.broker.failover.up_kit import GROUP, UpGroup, up_group
from tests.spark.messages import until

from pyromq.client import MessageQueue
from pyromq.sync import AdminClient, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

QUEUES = 2
# So small that a write takes seconds.
SLOW = {"batchBytes": "600", "inFlight": "1"}
ROWS = 10_000


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpGroup]:
    with up_group(tmp_path_factory.mktemp("group"), longest=900.0) as made:
        yield made


@pytest.fixture
def topic(group: UpGroup, request: pytest.FixtureRequest) -> str:
    """A topic of this test, in a group whose brokers are both in sync."""
    group.whole()
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-60:]
    with AdminClient(group.namesrv) as admin:
        admin.topics.create(name, write_queues=QUEUES, read_queues=QUEUES)
    return name


class Sending:
    """Sends to all queues of a topic, one message after the other, and notes what was acknowledged."""

    def __init__(self, group: UpGroup, topic: str) -> None:
        self._group = group
        self._topic = topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[str] = []

    def _run(self) -> None:
        queues = [MessageQueue(broker_name=GROUP, queue_id=number, topic=self._topic) for number in range(QUEUES)]
        with Producer("tests", namesrv=self._group.namesrv, timeout=60.0) as producer:
            for number in itertools.count():
                if self._ends.wait(0.01):
                    return
                producer.send(self._topic, b"%d" % number, queue=queues[number % QUEUES])
                self.acknowledged.append(str(number))

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._thread.join()

    def wait_for_more(self, count: int = 50) -> None:
        goal = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= goal)


def load(spark: SparkSession, group: UpGroup, topic: str) -> DataFrame:
    return spark.read.format("rocketmq").options(namesrv=group.namesrv, subscribe=topic).load()


def test_a_stream_has_every_message_once_and_in_order(spark, group, topic, tmp_path):
    options = {"namesrv": group.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("parquet").start(str(tmp_path / "out"))

    def wait_for_all(sending: Sending) -> None:
        count = len(sending.acknowledged)

        def arrived() -> bool:
            assert query.isActive, query.exception()
            return bool(sum(progress.numInputRows for progress in query.recentProgress) >= count)

        until(arrived)

    try:
        with Sending(group, topic) as sending:
            sending.wait_for_more()
            for how in ("planned", "killed"):
                group.switch(how)
                sending.wait_for_more()
                wait_for_all(sending)
                group.whole()
        wait_for_all(sending)
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).selectExpr(
        "queueId", "queueOffset", "CAST(body AS STRING) AS body"
    )
    found: dict[int, list[Any]] = {}
    for row in sorted(rows.collect()):
        found.setdefault(row.queueId, []).append(row)
    for queue, held in found.items():
        assert [row.queueOffset for row in held] == list(range(len(held)))  # each place once, none left out
        numbers = list(dict.fromkeys(int(row.body) for row in held))  # an attempt that failed may be stored, too
        assert numbers == sorted(numbers)
        assert set(numbers) >= {int(number) for number in sending.acknowledged if int(number) % QUEUES == queue}


@pytest.mark.parametrize("how", ["planned", "killed"])
def test_batch_reads_go_on(spark, group, topic, how):
    with Sending(group, topic) as sending:
        sending.wait_for_more(100)
    expected = Counter(sending.acknowledged)
    counts: list[Counter[str]] = []

    def read() -> None:
        rows = load(spark, group, topic).selectExpr("CAST(body AS STRING) AS body").collect()
        counts.append(Counter(row.body for row in rows))

    read()
    switching = threading.Thread(target=group.switch, args=(how,))
    switching.start()
    while switching.is_alive():
        read()
    switching.join()
    read()
    assert counts == [expected] * len(counts)


@contextlib.contextmanager
def switched(group: UpGroup, topic: str, how: str, done: Path) -> Iterator[None]:
    """Switch in a thread, once a topic has some messages; then there is a file `done`."""

    def switch() -> None:
        with AdminClient(group.namesrv) as admin:
            until(lambda: sum(each.max_offset for each in admin.topics.stats(topic).values()) > ROWS // 50)
        group.switch(how)
        done.touch()

    switching = threading.Thread(target=switch)
    switching.start()
    yield
    switching.join()
    assert done.exists()


def rows_until(spark: SparkSession, done: Path) -> DataFrame:
    """Rows of which the last ones wait for a file."""

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if ROWS - 1 in batch.column(0).to_pylist():
                until(done.exists)
            yield batch

    rows = spark.range(0, ROWS, 1, QUEUES).mapInArrow(wait, "id long")
    return rows.selectExpr("CAST(id AS STRING) AS body")


@pytest.mark.parametrize(
    ("guarantee", "how"),
    [("at-least-once", "killed"), *(("effectively-once", how) for how in ("planned", "killed", "frozen"))],
)
def test_a_write_has_every_row(spark, group, topic, guarantee, how, tmp_path):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")  # so that the others need not wait, too
    done = tmp_path / "done"
    writer = rows_until(spark, done).write.format("rocketmq").options(namesrv=group.namesrv, topic=topic, **SLOW)
    with switched(group, topic, how, done):
        writer.options(guarantee=guarantee, jobId="nightly").mode("append").save()
    rows = load(spark, group, topic).selectExpr("CAST(body AS STRING) AS body", "msgId", "queueId").collect()
    times = Counter(row.body for row in rows)
    assert times.keys() == {str(number) for number in range(ROWS)}
    # The ids of a row are the same whenever it was sent.
    assert len({(row.body, row.msgId) for row in rows}) == ROWS
    if guarantee == "effectively-once":
        assert {body: count for body, count in times.items() if count > 1} == {}
