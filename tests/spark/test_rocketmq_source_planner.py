"""How far a micro-batch goes, decided against a real broker; no Spark is needed for that."""

from __future__ import annotations

import functools
import json
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from tests.spark.messages import Topics, topics_in, until

from pyromq.client import MessageQueue
from pyromq.errors import ConfigError, OffsetOutOfRange, RouteNotFound, TopicNotFound
from pyromq.spark import options as known
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.spark.source import time_alignment
from pyromq.spark.source.batch_plan import tasks
from pyromq.spark.source.offsets import StreamOffset, ranges
from pyromq.spark.source.pulls import read
from pyromq.spark.source.pushdown import Pushed
from pyromq.spark.source.stream_reader import RocketMQStreamReader, StreamPlanner
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyromq.spark.options import SourceOptions
    from pyromq.spark.source.pulls import PullPart

pytestmark = pytest.mark.slow

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture
def options_for(topics: Topics) -> Callable[..., SourceOptions]:
    return lambda topic, **given: known.parse(known.SourceOptions, topics.options(topic, **given))


@pytest.fixture
def planner_for(options_for: Callable[..., SourceOptions]) -> Iterator[Callable[..., StreamPlanner]]:
    made: list[StreamPlanner] = []

    def make(topic: str, **given: Any) -> StreamPlanner:
        made.append(StreamPlanner(options_for(topic, **given)))
        return made[-1]

    yield make
    for planner in made:
        planner.close()


def queue(topic: str, number: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=number)


def _is_past(moment: float) -> bool:
    return time.monotonic() > moment


def through_json(offset: StreamOffset) -> StreamOffset:
    return StreamOffset.from_json(offset.to_json())


@pytest.mark.scenario("spark 8")
def test_the_start_of_a_new_query_is_decided_once_and_travels_in_the_end_of_its_first_batch(topics, planner_for):
    topic = topics.new(1)
    topics.send(topic, [b"old"] * 3)
    planner = planner_for(topic)
    first = planner.initial()
    topics.send(topic, [b"new"] * 4)
    end = through_json(planner.latest(first, ALL))
    assert planner.initial() == first
    later = planner_for(topic).initial()  # as after a crash: it knows nothing of the first
    assert later.ends == {queue(topic, 0): 7}
    assert ranges(later, end) == {queue(topic, 0): (3, 7)}


def test_while_nothing_is_new_the_answer_waits_and_then_is_the_start(topics, options_for):
    topic = topics.new(2)
    reader = RocketMQStreamReader(options_for(topic, **{"offsets.waitMs": 20}), ARROW_SCHEMA)
    try:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert reader.latestOffset(end, ALL) is end
        topics.send(topic, [b"x"])
        assert reader.latestOffset(end, ALL) != end
    finally:
        reader.stop()


@pytest.mark.scenario("spark 11")
def test_a_limit_holds_for_every_batch_and_small_queues_do_not_wait(topics, planner_for):
    topic = topics.new(2)
    large, small = queue(topic, 0), queue(topic, 1)
    topics.send(topic, [b"x"] * 30, queue=small)  # not later than the others: older messages come first
    topics.send(topic, [b"x"] * 3000, queue=large)
    planner = planner_for(topic, startingOffsets="earliest", maxOffsetsPerTrigger=1000)
    at = planner.initial()
    sizes, of_small = [], []
    for _ in range(4):
        end = through_json(planner.latest(at, ReadMaxRows(1000)))
        found = ranges(at, end)
        sizes.append(sum(stop - start for start, stop in found.values()))
        of_small.append(end.ends[small])
        at = end
    assert max(sizes) <= 1000
    assert sum(sizes) == 3030
    assert of_small[2] == 30
    # Spark's own limit counts too, and all that is there means all.
    assert planner.latest(planner.initial(), ALL).ends == {large: 3000, small: 30}


def test_a_limited_batch_takes_messages_in_the_order_of_their_store_times(topics, planner_for, monkeypatch):
    monkeypatch.setattr(time_alignment, "TOLERANCE", 5)  # ms
    topic = topics.new(2)
    left, right = queue(topic, 0), queue(topic, 1)
    for each in (left, right, left, right):
        topics.send(topic, [b"x"] * 100, queue=each)
        until(functools.partial(_is_past, time.monotonic() + 0.05))
    planner = planner_for(topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    at, seen = planner.initial(), []
    for _ in range(4):
        at = through_json(planner.latest(at, ReadMaxRows(100)))
        seen.append((at.ends[left], at.ends[right]))
    assert seen == [(100, 0), (100, 100), (200, 100), (200, 200)]


def test_a_limit_in_bytes_goes_by_the_size_that_messages_have(topics, planner_for):
    topic = topics.new(1)
    topics.send(topic, [bytes(4000)] * 100)  # not large enough to be compressed
    planner = planner_for(topic, startingOffsets="earliest", maxBytesPerTrigger="100k")
    end = planner.latest(planner.initial(), ReadMaxBytes(100 << 10))
    assert 15 <= end.ends[queue(topic, 0)] <= 25


@pytest.mark.scenario("spark 12")
def test_available_now_goes_to_what_was_there_and_not_beyond(topics, planner_for):
    topic = topics.new(1)
    topics.send(topic, [b"x"] * 5)
    planner = planner_for(topic, startingOffsets="earliest", minOffsetsPerTrigger=1000)
    planner.pin()
    topics.send(topic, [b"x"] * 5)
    end = planner.latest(planner.initial(), ReadMinRows(1000))
    assert end.ends == {queue(topic, 0): 5}
    assert planner.latest(end, ReadMinRows(1000)) == end


@pytest.mark.scenario("spark 14")
def test_quiet_queues_share_a_task_and_a_long_one_has_many(topics, planner_for):
    topic = topics.new(16)
    topics.send(topic, [b"x"] * 64)
    planner = planner_for(topic, startingOffsets="earliest")
    start = planner.initial()
    [task] = planner.tasks(start, planner.latest(start, ALL))
    assert sum(map(len, task.ranges)) == 64
    long = topics.new(1)
    topics.send(long, [bytes(1000)] * 6000)
    planner = planner_for(long, startingOffsets="earliest", partitionBytes="1m")
    start = planner.initial()
    parts = planner.tasks(start, planner.latest(start, ALL))
    assert len(parts) > 5
    covered = sorted((each.start, each.end) for part in parts for each in part.ranges)
    assert [start for start, _ in covered] == [0, *(end for _, end in covered[:-1])]
    assert covered[-1][1] == 6000


@pytest.mark.scenario("spark 2")
def test_queues_that_a_filter_excludes_are_not_pulled(topics, options_for):
    topic = topics.new(4)
    topics.send(topic, [b"x"] * 40)
    [task] = tasks(options_for(topic), Pushed(queue_ids=frozenset((1,))))
    assert [each.queue for each in task.ranges] == [queue(topic, 1)]


def test_a_task_that_is_repeated_reads_the_same_rows(topics, planner_for, options_for):
    topic = topics.new(4)
    topics.send(topic, [b"%d" % number for number in range(200)])
    planner = planner_for(topic, startingOffsets="earliest")
    start = planner.initial()
    [task] = planner.tasks(start, planner.latest(start, ALL))
    topics.send(topic, [b"later"])
    sent = pickle.loads(pickle.dumps(task))

    def rows() -> list[Any]:
        return [row for batch in read(sent, options_for(topic), ARROW_SCHEMA) for row in batch.to_pylist()]

    first = rows()
    assert len(first) == 200
    assert rows() == first


def test_a_task_that_is_given_up_leaves_nothing_behind(topics, planner_for, options_for):
    topic = topics.new(1)
    topics.send(topic, [bytes(1000)] * 12_000)
    planner = planner_for(topic, startingOffsets="earliest")
    start = planner.initial()
    task = planner.tasks(start, planner.latest(start, ALL))[0]
    batches = read(task, options_for(topic), ARROW_SCHEMA)
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]  # a generator: what Spark does when a LIMIT is reached


def test_a_namespace_stays_out_of_sight(topics, planner_for, options_for):
    topics.admin.topics.create("shop%sales", write_queues=1, read_queues=1)
    topics.send("shop%sales", [b"x"])
    planner = planner_for("sales", startingOffsets="earliest", namespace="shop", consumerGroup="eyes")
    start = planner.initial()
    assert start.ends == {queue("sales", 0): 0}
    end = planner.latest(start, ALL)
    [task] = planner.tasks(start, end)
    [batch] = read(task, options_for("sales", namespace="shop"), ARROW_SCHEMA)
    assert batch.column("topic").to_pylist() == ["sales"]
    planner.latest(end, ALL)
    [row] = topics.admin.groups.progress("shop%eyes").rows
    assert (row.queue.topic, row.consumer_offset) == ("shop%sales", 1)


@pytest.mark.scenario("spark 15")
def test_a_queue_that_is_new_begins_at_its_minimum_and_says_so_in_the_offset(topics, planner_for):
    topic = topics.new(2)
    topics.send(topic, [b"x"] * 6, queue=queue(topic, 1))
    planner = planner_for(topic)
    start = StreamOffset({queue(topic, 0): 0})  # from a checkpoint that knows one queue
    end = through_json(planner.latest(start, ALL))
    assert ranges(start, end) == {queue(topic, 1): (0, 6)}
    assert end.starts == {queue(topic, 1): 0}


@pytest.mark.scenario("spark 18")
def test_a_batch_outside_of_a_queue_is_loss_and_told_or_passed_over(topics, options_for, caplog):
    topic = topics.new(1)
    topics.send(topic, [b"x"] * 5)

    def planned(start: int, end: int, fail: str) -> list[PullPart]:
        given = {
            "startingOffsets": json.dumps({topic: {"broker-a": {"0": start}}}),
            "endingOffsets": json.dumps({topic: {"broker-a": {"0": end}}}),
        }
        return tasks(options_for(topic, **given, failOnDataLoss=fail), Pushed())

    for start, end in ((50, -1), (2, 9)):
        with pytest.raises(OffsetOutOfRange, match="but the queue ends at 5"):
            planned(start, end, "true")
    assert planned(50, -1, "false") == []
    [task] = planned(2, 9, "false")
    assert [(each.start, each.end) for each in task.ranges] == [(2, 5)]
    assert "4 messages are lost" in caplog.text


@pytest.mark.scenario("spark 21")
def test_an_sql_expression_that_a_broker_will_not_serve_is_refused_when_a_read_is_planned(
    topics, options_for, planner_for
):
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    off = "option sql needs enablePropertyFilter=true in the settings of broker-a"
    with pytest.raises(ConfigError, match=off):
        tasks(options_for(topic, sql="a > 5"), Pushed())
    planner = planner_for(topic, sql="a > 5")
    with pytest.raises(ConfigError, match=off):
        planner.latest(planner.initial(), ALL)
    with running_cluster(None, "enablePropertyFilter=true") as cluster, topics_in(cluster) as others:
        topic = others.new(1)
        others.send(topic, [b"4", b"6"], properties=lambda number: {"a": str(4 + 2 * number)})
        wrong = known.parse(known.SourceOptions, others.options(topic, sql="a > 5 AND b >> 7"))
        with pytest.raises(ConfigError, match=r"column 14: .*; 'a > 5 AND b >> 7'"):
            tasks(wrong, Pushed())
        right = known.parse(known.SourceOptions, others.options(topic, sql="a > 5"))
        [task] = tasks(right, Pushed())
        [batch] = read(task, right, ARROW_SCHEMA)
        assert batch.column("body").to_pylist() == [b"6"]


@pytest.mark.scenario("spark 18")
def test_a_deleted_topic_ends_the_query_or_leaves_it(topics, planner_for):
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    strict, lenient = (
        planner_for(topic, startingOffsets="earliest", failOnDataLoss=fail) for fail in ("true", "false")
    )
    end = strict.latest(strict.initial(), ALL)
    topics.admin.topics.delete(topic)
    strict = planner_for(topic)
    with pytest.raises(TopicNotFound, match=f"{topic} was deleted"):
        strict.latest(end, ALL)
    assert lenient.latest(end, ALL).ends == {}


def test_a_queue_that_is_away_is_waited_for_but_not_for_ever(topics, planner_for):
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    away = MessageQueue(topic=topic, broker_name="broker-b", queue_id=0)
    start = StreamOffset({queue(topic, 0): 0, away: 17})
    assert planner_for(topic).latest(start, ALL).ends == {queue(topic, 0): 1, away: 17}
    impatient = planner_for(topic, brokerGoneTimeout="0s")
    with pytest.raises(RouteNotFound, match=r"queue 0 of .* on broker-b has been unreachable"):
        impatient.latest(start, ALL)


@pytest.mark.scenario("spark 23")
def test_an_idle_query_asks_brokers_a_few_times_a_second(topics, planner_for):
    topic = topics.new(16)
    topics.send(topic, [b"x"] * 32)
    planner = planner_for(topic, startingOffsets="earliest")
    end = planner.latest(planner.initial(), ALL)
    asked: list[int] = []

    class Counting:
        def before_request(self, peer: str, request: Any) -> None:
            asked.append(request.code)

        def after_response(self, peer: str, request: Any, response: Any) -> None:
            pass

    hooks = planner._link.client.remoting.endpoint
    hooks.hooks = [*hooks.hooks, Counting()]
    for _ in range(4):  # two seconds, as waiting for news takes half a second
        assert planner.latest(end, ALL) == end
    assert asked
    # The first time a pull for each queue is left with the broker.
    assert len(asked) <= 16 + 2 * 10


def test_what_would_silently_read_nothing_is_refused_or_told(topics, options_for, planner_for, caplog):
    topic = topics.new(1)
    topics.send(topic, [b"x"])
    no_topic = known.parse(known.SourceOptions, {"namesrv": topics.cluster.namesrv, "subscribePattern": "no-such-.*"})
    with pytest.raises(ConfigError, match=r"subscribePattern no-such-\.\* matches no topic of"):
        tasks(no_topic, Pushed())
    planner = StreamPlanner(no_topic)
    try:
        assert planner.initial().ends == {}
    finally:
        planner.close()
    assert "subscribePattern no-such-.* matches no topic yet; waiting for one" in caplog.text
    given = {"namesrv": topics.cluster.namesrv, "assign": json.dumps({topic: {"broker-a": [0, 7]}})}
    with pytest.raises(ConfigError, match=f"assign: there is no queue 7 of {topic} on broker-a"):
        tasks(known.parse(known.SourceOptions, given), Pushed())
    assert tasks(options_for(topic, startingTimestamp="2999-01-01"), Pushed()) == []
    assert "startingTimestamp: nothing was stored at 2999-01-01" in caplog.text


def test_system_topics_do_not_match_a_pattern(topics, planner_for, options_for):
    one, other = topics.new(1), topics.new(1)
    given = {"namesrv": topics.cluster.namesrv, "subscribePattern": "topic-.*|.*TRACE.*|TBW.*|broker.*"}
    planner = StreamPlanner(known.parse(known.SourceOptions, given))
    try:
        found = {each.topic for each in planner.initial().ends}
    finally:
        planner.close()
    assert {one, other} <= found
    assert all(topic.startswith("topic-") for topic in found)
