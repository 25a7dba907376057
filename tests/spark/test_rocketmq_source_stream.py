"""Streams of topics with a real Spark and a real broker: nothing lost, nothing twice, whatever stops in between."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.messages import Topics, bodies, topics_in, until

from pyromq.sync import Consumer, Producer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


class Stream:
    """A query over a topic, its checkpoint and its files, and everything that its batches brought."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self.spark = spark
        self.folder = folder
        self.options = options

    def _writer(self) -> Any:
        frame = self.spark.readStream.format("rocketmq").options(**self.options).load()
        return frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))

    def start(self, each: Callable[[DataFrame, int], None] | None = None, **trigger: Any) -> StreamingQuery:
        """Into files, or into `each`."""
        writer = self._writer()
        if trigger:
            writer = writer.trigger(**trigger)
        if each is not None:
            return writer.foreachBatch(each).start()  # type: ignore[no-any-return]
        return writer.format("parquet").start(str(self.folder / "out"))  # type: ignore[no-any-return]

    def run(self, each: Callable[[DataFrame, int], None] | None = None) -> StreamingQuery:
        """All that is there now."""
        query = self.start(each, availableNow=True)
        assert query.awaitTermination(120)
        return query

    def written(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "out"))

    def logged(self, batch: int) -> dict[str, Any]:
        """The end of a batch as the checkpoint has it."""
        lines = (self.folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        return json.loads(lines[2])  # type: ignore[no-any-return]


@pytest.fixture
def stream(spark, topics, tmp_path):
    yield lambda topic, **options: Stream(spark, tmp_path, topics.options(topic, **options))
    for query in spark.streams.active:
        query.stop()


class Sending:
    """Somebody who sends all the time."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(topics, topic))
        self.count = 0

    def _work(self, topics: Topics, topic: str) -> None:
        while not self._stop.wait(0.01):
            topics.send(topic, [b"%d" % (self.count + number) for number in range(5)])
            self.count += 5

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.scenario("spark 8")
def test_a_stream_from_latest_misses_nothing_while_messages_keep_coming(stream, topics):
    topic = topics.new(2)
    topics.send(topic, [b"old"] * 10)
    streamed = stream(topic)
    with Sending(topics, topic) as sending:
        query = streamed.start()
        until(lambda: sum(progress.numInputRows > 0 for progress in query.recentProgress) > 2 and sending.count > 50)
    ends = {str(queue.queue_id): offset.max_offset for queue, offset in topics.admin.topics.stats(topic).items()}
    query.processAllAvailable()
    query.stop()
    starts = streamed.logged(0)["from"][topic]["broker-a"]
    rows = [(row.queueId, row.queueOffset) for row in streamed.written().select("queueId", "queueOffset").collect()]
    assert sorted(rows) == [(int(queue), at) for queue in sorted(ends) for at in range(starts[queue], ends[queue])]
    assert sum(starts.values()) >= 10


@pytest.mark.scenario("spark 9")
def test_a_first_batch_that_was_not_finished_is_repeated_with_the_same_rows(stream, topics):
    topic = topics.new(2)
    topics.send(topic, [b"old"] * 10)
    streamed = stream(topic)
    seen: list[list[str]] = []

    def fail(frame: DataFrame, batch: int) -> None:
        assert batch == 0
        seen.append(bodies(frame))
        raise RuntimeError("killed here")

    with Sending(topics, topic):
        query = streamed.start(fail)
        with pytest.raises(Exception, match="killed here"):
            query.awaitTermination(90)
    assert seen[0]
    starts = streamed.logged(0)["from"][topic]["broker-a"]
    again: dict[int, list[tuple[int, int, str]]] = {}

    def keep(frame: DataFrame, batch: int) -> None:
        again[batch] = [(row.queueId, row.queueOffset, bytes(row.body).decode()) for row in frame.collect()]

    streamed.run(keep)
    assert sorted(body for _, _, body in again[0]) == seen[0]
    ends = {queue.queue_id: offset.max_offset for queue, offset in topics.admin.topics.stats(topic).items()}
    assert sorted((queue, at) for rows in again.values() for queue, at, _ in rows) == [
        (queue, at) for queue in sorted(ends) for at in range(starts[str(queue)], ends[queue])
    ]


@pytest.mark.scenario("spark 10")
def test_a_restart_brings_exactly_what_came_while_the_query_was_stopped(stream, topics):
    topic = topics.new()
    streamed = stream(topic, startingOffsets="earliest")
    topics.send(topic, [b"%d" % number for number in range(100)])
    streamed.run()
    assert streamed.written().count() == 100
    topics.send(topic, [b"%d" % number for number in range(100, 10_100)])
    query = streamed.run()
    assert sum(progress.numInputRows for progress in query.recentProgress) == 10_000
    assert bodies(streamed.written()) == sorted(str(number) for number in range(10_100))


@pytest.mark.scenario("spark 11")
@pytest.mark.scenario("spark 12")
def test_available_now_ends_in_bounded_batches_although_messages_keep_coming(stream, topics):
    topic = topics.new(4)
    topics.send(topic, [b"first %d" % number for number in range(250)])
    streamed = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=100, consumerGroup="spark-now")
    with Sending(topics, topic):
        query = streamed.run()
    sizes = [progress.numInputRows for progress in query.recentProgress]
    assert max(sizes) <= 100
    got = bodies(streamed.written())
    assert len([body for body in got if body.startswith("first")]) == 250
    assert len(got) == sum(sizes)
    last = streamed.logged(max(progress.batchId for progress in query.recentProgress if progress.numInputRows))
    progress = topics.admin.groups.progress("spark-now", topic)
    assert {str(row.queue.queue_id): row.consumer_offset for row in progress.rows} == last["offsets"][topic]["broker-a"]


@pytest.mark.scenario("spark 13")
def test_too_little_data_holds_a_batch_back_but_no_longer_than_the_delay(stream, topics):
    topic = topics.new()
    topics.send(topic, [b"a", b"b"])
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 1000}
    patient = stream(topic, **options, maxTriggerDelay="1s")
    query = patient.start()
    until(lambda: any(progress.numInputRows for progress in query.recentProgress))
    query.stop()
    assert bodies(patient.written()) == ["a", "b"]


@pytest.mark.scenario("spark 13")
def test_too_little_data_does_not_hold_back_available_now(stream, topics):
    topic = topics.new()
    topics.send(topic, [b"a", b"b"])
    hurried = stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=1000)
    hurried.run()
    assert bodies(hurried.written()) == ["a", "b"]


@pytest.mark.scenario("spark 19")
def test_progress_shows_as_that_of_a_group_without_a_further_batch(stream, topics):
    topic = topics.new()
    topics.send(topic, [b"%d" % number for number in range(50)])
    query = stream(topic, startingOffsets="earliest", consumerGroup="spark-lag").start()
    query.processAllAvailable()
    until(lambda: topics.admin.groups.progress("spark-lag", topic).lag == 0)
    query.stop()


@pytest.mark.scenario("spark 19")
def test_a_group_with_live_consumers_is_refused(stream, topics):
    topic = topics.new()
    topics.send(topic, [b"x"])
    consumer = Consumer("alive", namesrv=topics.cluster.namesrv)
    consumer.subscribe(topic)
    with consumer:
        until(lambda: bool(topics.admin.groups.connections("alive").connection_set))
        with pytest.raises(Exception, match="consumerGroup=alive has live consumers"):
            stream(topic, consumerGroup="alive").run()


@pytest.mark.scenario("spark 15")
def test_queues_that_are_added_are_read_from_their_beginning(stream, topics):
    topic = topics.new(1)
    streamed = stream(topic)
    query = streamed.start()

    def has_begun():
        # What is sent before it has looked where the end is, is not for it.
        topics.send(topic, [b"is anybody there"])
        return any(progress.numInputRows for progress in query.recentProgress) or not query.isActive

    until(has_begun)
    topics.admin.topics.create(topic, write_queues=3, read_queues=3)
    until(lambda: len(topics.admin.topics.stats(topic)) == 3)
    with Producer("others", namesrv=topics.cluster.namesrv) as newcomer:  # who has not known it with one queue
        Topics(topics.cluster, topics.admin, newcomer).send(topic, [b"%d" % number for number in range(60)])
    expected = sorted(str(number) for number in range(60))

    def found():
        return streamed.written().where("string(body) NOT LIKE 'is%'")

    until(lambda: found().count() >= len(expected) or not query.isActive)
    query.stop()
    assert bodies(found()) == expected
    assert found().select("queueId").distinct().count() == 3


@pytest.mark.scenario("spark 18")
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_was_made_anew_is_loss_and_told_or_passed_over(stream, topics, fail):
    topic = topics.new(1)
    topics.send(topic, [b"old %d" % number for number in range(30)])
    streamed = stream(topic, startingOffsets="earliest", failOnDataLoss=fail)
    streamed.run()
    topics.admin.topics.delete(topic)
    topics.admin.topics.create(topic, write_queues=1, read_queues=1)
    topics.send(topic, [b"new %d" % number for number in range(5)])
    if fail == "true":
        with pytest.raises(Exception, match="offset 30 was wanted, but the queue ends at 5"):
            streamed.run()
        return
    streamed.run()
    topics.send(topic, [b"newer"])
    streamed.run()
    assert bodies(streamed.written())[0] == "newer"
