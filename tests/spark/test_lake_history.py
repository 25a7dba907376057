"""A read that begins in the lake, planned and read with a real broker and real files; no Spark is needed for that."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.ports import free_port
from tests.spark.messages import Topics, topics_in

from pyromq.cli.nouns import lake as lake_command
from pyromq.client import MessageQueue
from pyromq.errors import OffsetOutOfRange, RouteNotFound
from pyromq.spark import options as known
from pyromq.spark.lake import history
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import LakeCommit, LakeError, Move
from pyromq.spark.lake.tables import open_or_create
from pyromq.spark.lake.unified import lake_settings
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.spark.source.batch_plan import tasks
from pyromq.spark.source.pulls import PullPart
from pyromq.spark.source.pushdown import Pushed
from pyromq.spark.source.stream_reader import StreamPlanner, read_part
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyromq.spark.source.offsets import StreamOffset

pytestmark = pytest.mark.slow

ALL = ReadAllAvailable()
Row = tuple[str, int, int]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


class Scene:
    """A topic with two queues, and a lake that has as much of it as a test likes."""

    def __init__(self, topics: Topics, root: Path | str, **settings: str) -> None:
        self.topics = topics
        self.topic = topics.new(2)
        self.root = root
        self.settings = lake_settings(str(root), "t", settings)
        self.storage = Storage.of(str(root), settings)
        self.table = open_or_create(self.storage, "t", self.topic, "DefaultCluster")

    def queue(self, number: int, broker: str = "broker-a") -> MessageQueue:
        return MessageQueue(topic=self.topic, broker_name=broker, queue_id=number)

    def send(self, count: int, **fields: Any) -> None:
        self.topics.send(self.topic, [b"%d" % number for number in range(count)], **fields)

    def options(self, **given: Any) -> known.SourceOptions:
        own = {**self.settings, "offsets.waitMs": 1, **given}
        return known.parse(known.SourceOptions, self.topics.options(self.topic, **own))

    def archive(self, *, complete: datetime | None = None, broker: str = "broker-a") -> None:
        """Everything that the lake lacks, in one commit, as messages of `broker`."""
        plain = known.parse(known.SourceOptions, self.topics.options(self.topic))
        before = self.table.snapshot().positions
        batches, ends = [], dict[MessageQueue, int]()
        for part in tasks(plain, Pushed()):
            for batch in read_part(part, plain, ARROW_SCHEMA):
                new = [
                    {**row, "brokerName": broker}
                    for row in batch.to_pylist(maps_as_pydicts="lossy")
                    if row["queueOffset"] >= before.get(self.queue(row["queueId"], broker), 0)
                ]
                for row in new:
                    queue = self.queue(row["queueId"], broker)
                    ends[queue] = max(ends.get(queue, 0), row["queueOffset"] + 1)
                batches += [type(batch).from_pylist(new, ARROW_SCHEMA)] if new else []
        files = write_parts(self.storage, "t", "test", batches)
        moves = [Move(queue, before.get(queue, 0), end) for queue, end in ends.items()]
        self.table.commit(LakeCommit(files, moves, complete=complete))

    def read(self, parts: list[Any], options: known.SourceOptions) -> list[Row]:
        return sorted(
            (row["brokerName"], row["queueId"], row["queueOffset"])
            for part in parts
            for batch in read_part(part, options, ARROW_SCHEMA)
            for row in batch.to_pylist()
        )

    def batch(self, pushed: Pushed | None = None, **given: Any) -> tuple[int, int, list[Row]]:
        """Rows from the lake and from brokers, and which."""
        options = self.options(**{"lake.history": True, **given})
        parts = tasks(options, pushed or Pushed())
        live = [part for part in parts if isinstance(part, PullPart)]
        past = [part for part in parts if not isinstance(part, PullPart)]
        return len(self.read(past, options)), len(self.read(live, options)), self.read(parts, options)


@pytest.fixture
def scene(topics: Topics, tmp_path: Path) -> Scene:
    return Scene(topics, tmp_path / "lake")


@pytest.fixture
def planner_for(scene: Scene) -> Iterator[Callable[..., StreamPlanner]]:
    made: list[StreamPlanner] = []

    def make(**given: Any) -> StreamPlanner:
        made.append(StreamPlanner(scene.options(**{"lake.history": True, **given})))
        return made[-1]

    yield make
    for planner in made:
        planner.close()


def every(counts: dict[int, int], broker: str = "broker-a") -> list[Row]:
    return [(broker, number, offset) for number, count in sorted(counts.items()) for offset in range(count)]


@pytest.mark.scenario("spark 37")
def test_a_batch_reads_each_message_once_wherever_it_is(scene):
    scene.send(20)
    assert scene.batch() == (0, 20, every({0: 10, 1: 10}))
    scene.archive()
    assert scene.batch() == (20, 0, every({0: 10, 1: 10}))
    scene.send(6)
    assert scene.batch() == (20, 6, every({0: 13, 1: 13}))
    # A table that has moved on since changes nothing for those who hold a version.
    version = scene.table.snapshot().version
    scene.archive()
    assert scene.batch(**{"lake.version": version}) == (20, 6, every({0: 13, 1: 13}))
    assert scene.batch() == (26, 0, every({0: 13, 1: 13}))


def test_filters_apply_to_both_halves(scene):
    scene.send(20, tags="a")
    scene.archive()
    scene.send(10, tags="b")
    one = Pushed(queue_ids=frozenset((1,)), first=8, end=12)
    assert scene.batch(one) == (2, 2, [("broker-a", 1, offset) for offset in range(8, 12)])
    some = Pushed(queue_ids=frozenset((0,)), offsets=frozenset((1, 5, 14, 99)))
    assert scene.batch(some) == (2, 1, [("broker-a", 0, offset) for offset in (1, 5, 14)])
    assert scene.batch(tags="a")[:2] == (20, 0)
    assert scene.batch(tags="b || c")[:2] == (0, 10)


def test_no_broker_is_asked_for_what_the_lake_has_completely(scene, monkeypatch):
    scene.send(20)
    now = datetime.now(UTC)
    scene.archive(complete=now)
    until = Pushed(until=int(now.timestamp() * 1000) - 300_000)
    assert scene.batch(until, namesrv="127.0.0.1:1")[0] == 0  # the messages are younger, so no file is read
    monkeypatch.setattr(history, "_SKEW", 0.0)
    until = Pushed(until=int(now.timestamp() * 1000) - 1)
    assert scene.batch(until, namesrv="127.0.0.1:1") == (20, 0, every({0: 10, 1: 10}))
    with pytest.raises(Exception, match="none can be reached"):
        scene.batch(Pushed(until=int((now + timedelta(seconds=1)).timestamp() * 1000)), namesrv="127.0.0.1:1")


def test_times_bound_both_halves_exactly(scene):
    scene.send(20)
    scene.archive()
    options = scene.options(**{"lake.history": True})
    rows = [
        row["storeTimestamp"].timestamp()
        for part in tasks(options, Pushed())
        for batch in read_part(part, options, ARROW_SCHEMA)
        for row in batch.to_pylist()
    ]
    time.sleep(0.005)
    middle = int(time.time() * 1000)
    scene.send(10)
    assert scene.batch(startingTimestamp=middle) == (0, 10, [(b, q, o) for b, q, o in every({0: 15, 1: 15}) if o >= 10])
    assert scene.batch(endingTimestamp=middle) == (20, 0, every({0: 10, 1: 10}))
    first, last = round(min(rows) * 1000), round(max(rows) * 1000)
    assert scene.batch(startingTimestamp=first, endingTimestamp=last + 1)[:2] == (20, 0)
    exact = scene.batch(startingTimestamp=first, endingTimestamp=last)
    assert exact[0] == sum(round(row * 1000) < last for row in rows)
    # With startingOffsets=lake the later of the two counts.
    given = {"lake.history": False, "startingOffsets": "lake"}
    assert scene.batch(**given, startingTimestamp=first)[:2] == (0, 10)
    assert scene.batch(**given, startingTimestamp=middle + 60_000)[:2] == (0, 0)
    assert scene.batch(**given, endingTimestamp=middle)[:2] == (0, 0)


def test_a_queue_that_only_the_lake_has_is_refused_or_read(scene, planner_for, caplog):
    scene.send(10)
    scene.archive(broker="broker-gone")
    scene.archive()
    scene.send(4)
    gone, there = every({0: 5, 1: 5}, "broker-gone"), every({0: 7, 1: 7})
    with pytest.raises(RouteNotFound, match="on broker-gone is in the lake, but no broker has it"):
        scene.batch()
    assert scene.batch(failOnDataLoss=False) == (20, 4, sorted(there + gone))
    with pytest.raises(RouteNotFound, match="on broker-gone is in the lake, but no broker has it"):
        planner_for().initial()
    assert "reading the others without it" in caplog.text
    planner = planner_for(failOnDataLoss=False)
    start = planner.initial()
    end = planner.latest(start, ALL)
    assert scene.read(planner.tasks(start, end), scene.options(**{"lake.history": True})) == sorted(there + gone)
    assert planner.latest(end, ALL) == end


@pytest.mark.scenario("spark 37")
def test_a_stream_goes_from_the_lake_to_the_broker_in_steps(scene, planner_for):
    scene.send(20)
    scene.archive()
    scene.send(10)
    options = scene.options(**{"lake.history": True})
    planner = planner_for()
    at = planner.initial()
    assert set(at.ends.values()) == {0}
    found: list[Row] = []
    batches: list[tuple[StreamOffset, StreamOffset]] = []
    while (end := planner.latest(at, ReadMaxRows(7))) != at:
        rows = scene.read(planner.tasks(at, end), options)
        assert len(rows) <= 7
        found += rows
        batches.append((at, end))
        at = end
    assert sorted(found) == every({0: 15, 1: 15})
    # After a restart a batch is read again, and its messages are the same, though the lake has them all by now.
    scene.archive()
    again = planner_for()
    for start, end in batches:
        parts = again.tasks(start, end)
        assert not any(isinstance(part, PullPart) for part in parts)
    rows = [row for start, end in batches for row in scene.read(again.tasks(start, end), options)]
    assert rows == found
    scene.send(2)
    end = again.latest(at, ALL)
    assert len(scene.read(again.tasks(at, end), options)) == 2


def test_a_stream_that_starts_at_the_end_of_the_lake(scene, planner_for):
    scene.send(20)
    scene.archive()
    scene.send(10)
    planner = planner_for(**{"lake.history": False, "startingOffsets": "lake"})
    start = planner.initial()
    assert start.ends == {scene.queue(0): 10, scene.queue(1): 10}
    # It is pinned: the lake may go on before the first batch is logged.
    scene.archive()
    assert planner.initial() == start
    end = planner.latest(start, ALL)
    assert len(scene.read(planner.tasks(start, end), scene.options())) == 10
    with pytest.raises(LakeError, match="there is no table"):
        planner_for(**{"lake.history": False, "startingOffsets": "lake", "lake.name": "none"}).initial()


def test_a_topic_that_was_created_again_is_told_apart(scene, planner_for):
    scene.send(20)
    scene.archive()
    scene.topics.admin.topics.delete(scene.topic)
    scene.topics.admin.topics.create(scene.topic, write_queues=2, read_queues=2)
    scene.send(4)
    with pytest.raises(OffsetOutOfRange, match="offset 10 was wanted, but the queue ends at 2"):
        scene.batch()
    assert scene.batch(failOnDataLoss=False)[:2] == (20, 0)
    planner = planner_for(**{"lake.history": False, "startingOffsets": "lake"})
    with pytest.raises(OffsetOutOfRange, match="offset 10 was wanted, but the queue ends at 2"):
        planner.latest(planner.initial(), ALL)


@pytest.mark.scenario("spark 34")
def test_the_command_line_tells_how_long_brokers_keep_what_is_not_archived(scene, capsys):
    def headroom(*more: str) -> tuple[int, list[Any], str]:
        given = ["headroom", "--root", str(scene.root), "--namesrv", scene.topics.cluster.namesrv, "-o", "json", *more]
        code = lake_command.main(given)
        said = capsys.readouterr()
        return code, json.loads(said.out or "[]"), said.err

    scene.send(20)
    scene.archive()
    code, [row], said = headroom()
    assert (code, row["topic"], row["alarm"], row["unarchived"], said) == (0, scene.topic, "none", 0, "")
    scene.send(10)
    code, [row], said = headroom("t")
    assert (code, row["alarm"], row["unarchived"], row["lost"]) == (0, "none", 10, 0)
    assert 72 * 3600 - 600 < row["lakeHeadroomSeconds"] <= 72 * 3600
    admin = scene.topics.admin.brokers
    admin.set_config({"fileReservedTime": "0"}, brokers="broker-a")
    try:
        code, [row], said = headroom()
        assert (code, row["alarm"]) == (1, "error")
        assert f"{scene.topic}: 10 messages are not archived" in said
    finally:
        admin.set_config({"fileReservedTime": "72"}, brokers="broker-a")


def test_a_lake_in_a_bucket_is_read_by_tasks_and_its_keys_are_shown_nowhere(topics, monkeypatch, caplog):
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys).create_bucket(Bucket="history")
        monkeypatch.setenv("LAKE_ACCESS_KEY", "key")
        monkeypatch.setenv("LAKE_SECRET_KEY", "never-to-be-seen")
        scene = Scene(topics, "s3://history/mq", endpoint=endpoint, credentials="env:LAKE")
        scene.send(20)
        scene.archive()
        scene.send(10)
        assert scene.batch() == (20, 10, every({0: 15, 1: 15}))
        parts = tasks(scene.options(**{"lake.history": True}), Pushed())
        assert b"never-to-be-seen" not in pickle.dumps(parts)
        with pytest.raises(LakeError) as caught:
            scene.batch(None, **{"lake.name": "none"})
        assert "never-to-be-seen" not in f"{caught.value} {caplog.text} {parts!r}"
    finally:
        server.stop()
