"""Topics become tables, each message once: with a real Spark and a real broker, read back by others' code."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.spark.lake_kit import Lake, are_dense, iceberg_offsets, offsets, query
from tests.spark.messages import Topics, topics_in, until

from pyromq.errors import ConfigError
from pyromq.spark.lake import archive_tasks
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.tables import open_table
from pyromq.sync import Producer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pyromq.spark.lake.archive import ArchiveProgress, ArchiveSummary
    from pyromq.spark.lake.archive_tasks import Job, Report

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture
def lake(spark, topics, tmp_path):
    return Lake(spark, topics.cluster.namesrv, tmp_path / "lake")


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_an_archive_goes_on_where_its_table_is(lake, topics):
    topic = topics.new(4)
    topics.send(topic, numbers(1000), keys=lambda n: [f"k{n}"], tags="T")
    seen: list[ArchiveProgress] = []
    done = lake.archive(topic, progress=seen.append)
    assert (done.rows, done.errors, done.gaps, done.lag) == (1000, {}, [], {topic: 0})
    assert (seen[-1].rows, seen[-1].lag, seen[-1].time_left) == (1000, 0, 0.0)
    assert done.is_complete
    table = lake.table(topic)
    assert query(table, "SELECT count(*), count(DISTINCT msgId), min(tags), min(topic) FROM rows") == [
        (1000, 1000, "T", topic)
    ]
    # A queue that is new, and messages in all of them.
    topics.admin.topics.create(topic, write_queues=6, read_queues=6)
    until(lambda: len(topics.admin.topics.stats(topic)) == 6)
    with Producer("others", namesrv=lake.namesrv) as newcomer:  # who has not known it with four queues
        Topics(topics.cluster, topics.admin, newcomer).send(topic, numbers(500, 1000))
    done = lake.archive(topic)
    assert (done.rows, done.commits) == (500, 1)
    assert lake.archive(topic).commits == 0
    assert are_dense(offsets(table), range(6))
    bodies = query(table, "SELECT body FROM rows")
    assert sorted(int(body) for (body,) in bodies) == list(range(1500))


def test_a_topic_that_cannot_be_archived_keeps_no_other_from_it(lake, topics):
    good, again = topics.new(1), topics.new(1)
    topics.send(good, numbers(10))
    topics.send(again, numbers(10))
    pattern = f"{again}|no such.*"
    assert lake.archive(pattern, aliases={again: "renamed"}).rows == 10
    topics.admin.topics.delete(again)
    topics.admin.topics.create(again, write_queues=1, read_queues=1)
    topics.send(again, numbers(3))
    seen: list[ArchiveProgress] = []
    done = lake.archive(again, "nowhere", good, aliases={again: "renamed"}, progress=seen.append)
    assert done.rows == 10
    assert not done.is_complete
    assert {*done.errors} == {again, "nowhere"}
    assert "ends at 3, but the table has messages up to 10: the topic was created again" in done.errors[again]
    assert "no broker has this topic" in done.errors["nowhere"]
    assert {each.topic: each.error for each in seen} == {**done.errors, good: None}
    assert offsets(lake.folder / "renamed") == {("broker-a", 0): list(range(10))}
    # A table is one topic's.
    done = lake.archive(good, aliases={good: "renamed"})
    assert f"table renamed has the messages of topic {again}" in done.errors[good]
    with pytest.raises(ConfigError, match="would both be table ONE"):
        lake.archive(good, again, aliases={good: "one", again: "ONE"})


@pytest.mark.scenario("spark 35")
def test_what_the_broker_deleted_is_a_gap_and_the_archive_goes_on(spark, tmp_path):
    small = ("mappedFileSizeCommitLog=64k", "fileReservedTime=0", "cleanResourceInterval=50")
    with running_cluster(None, *small) as cluster, topics_in(cluster) as topics:
        lake = Lake(spark, cluster.namesrv, tmp_path / "lake")
        topic = topics.new(2)
        topics.send(topic, numbers(100))
        assert lake.archive(topic).rows == 100
        topics.send(topic, [bytes(1000)] * 300)
        topics.admin.brokers.clean_log()
        until(lambda: all(each.min_offset > 60 for each in topics.admin.topics.stats(topic).values()))
        stats = {queue.queue_id: each for queue, each in topics.admin.topics.stats(topic).items()}
        lost = {number: (50, each.min_offset) for number, each in stats.items()}
        assert all(start < end for start, end in lost.values())
        done = lake.archive(topic)
        assert not done.errors
        assert not done.is_complete
        assert {gap.queue.queue_id: (gap.start, gap.end) for gap in done.gaps} == lost
        assert done.rows == 300 - sum(end - start for start, end in lost.values())
        found = {number: each for (_, number), each in offsets(lake.table(topic)).items()}
        for number, (start, end) in lost.items():
            assert found[number] == [*range(start), *range(end, stats[number].max_offset)]
        kept = open_table(Storage.of(str(lake.folder)), topic.replace("-", "_")).gaps()
        assert {gap.queue.queue_id: (gap.start, gap.end) for gap in kept} == lost


@pytest.mark.scenario("spark 33")
@pytest.mark.scenario("spark 38")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_archives_of_one_topic_double_nothing(lake, topics, monkeypatch, kind):
    topic = topics.new(4)
    catalog = {"type": "sql", "uri": f"sqlite:///{lake.folder}.db"}
    options = {f"catalog.{key}": value for key, value in catalog.items()} if kind == "iceberg" else {}
    if kind == "iceberg":
        lake.folder.mkdir()

    def found() -> dict[tuple[str, int], list[int]]:
        if kind == "iceberg":
            return iceberg_offsets(catalog, lake.table(topic).name)
        return offsets(lake.table(topic))

    topics.send(topic, numbers(200))
    both = threading.Barrier(2)
    met: list[bool] = []

    def run(spark: SparkSession, job: Job) -> list[Report]:
        """As it is, but the first step of both is planned before either is read."""
        if len(met) < 2:
            met.append(True)
            both.wait(60)
        return archive_tasks.run(spark, job)

    monkeypatch.setattr("pyromq.spark.lake.archive.run", run)
    ends = threading.Event()
    results: list[ArchiveSummary] = []

    def go_on() -> None:
        impatient = {"every": 0.01, "max_lag": 0.01, "stop": ends.is_set}
        results.append(lake.archive(topic, once=False, lake_options=options, **impatient))

    threads = [threading.Thread(target=go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for first in range(200, 1000, 200):
            topics.send(topic, numbers(200, first))
        until(lambda: sum(map(len, found().values())) == 1000)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert are_dense(found(), range(4))
    assert sum(each.rows for each in results) == 1000
    assert sum(each.conflicts for each in results) >= 1
    assert not any(each.errors for each in results)


def test_bodies_are_decoded_and_those_that_cannot_be_are_kept_apart(lake, topics):
    topic = topics.new(2)
    table = lake.table(topic)
    bad = table.with_name(f"{table.name}__dlq")
    first = {"decode": "json", "decode.schema": "id bigint, name string"}
    topics.send(topic, [b'{"id": %d, "name": "n", "more": 1.5}' % n for n in range(50)] + [b"{", b'{"id": "x"}'])
    done = lake.archive(topic, decode=first)
    assert (done.rows, done.bad_rows, done.errors) == (50, 2, {})
    assert query(table, "SELECT sum(id), count(name), count(body) FROM rows") == [(sum(range(50)), 50, 50)]
    [(_, damaged), (_, changed)] = query(bad, "SELECT body, reason FROM rows ORDER BY body")
    assert "truncated" in damaged
    assert changed == "id: 'x' is not bigint"

    # The schema has grown, and thinks differently of a column.
    topics.send(topic, [b'{"id": "51", "more": 2.5}', b'{"id": "fifty"}'])
    grown = {"decode": "json", "decode.schema": "id string, more double, parts array<string>", "keepBody": "false"}
    done = lake.archive(topic, decode=grown)
    assert (done.rows, done.bad_rows, done.errors) == (1, 1, {})
    assert query(table, "SELECT id, more, body FROM rows WHERE more IS NOT NULL") == [(51, 2.5, None)]
    said = query(bad, "SELECT body, reason FROM rows WHERE reason LIKE '%fifty%'")
    assert said == [(b'{"id": "fifty"}', "id: 'fifty', but the table's column is bigint")]

    # The same again, with a column that is not simple: the table's names for its insides are not ours.
    topics.send(topic, [b'{"id": "52", "parts": ["a"]}'])
    assert lake.archive(topic, decode=grown).errors == {}
    assert query(table, "SELECT parts FROM rows WHERE id = 52") == [(["a"],)]
    topics.send(topic, [b"["])
    done = lake.archive(topic, decode={**grown, "onError": "fail"})
    assert "onError=dlq or skip goes on" in done.errors[topic]
    done = lake.archive(topic, decode={**grown, "onError": "skip"})
    assert (done.rows, done.bad_rows, done.errors) == (0, 0, {})
    assert len(query(bad, "SELECT 1 FROM rows")) == 3


def test_a_backlog_is_read_from_the_stores_files(lake, topics):
    topic, other = topics.new(3), topics.new(1)
    topics.send(topic, numbers(3000), keys=lambda n: [f"k{n}"])
    topics.send(other, numbers(10))
    store = topics.cluster.folder / "broker-a"
    stores = {"broker-a": str(store)}
    by_files, by_pulls = (
        Lake(lake.spark, lake.namesrv, lake.folder / "f"),
        Lake(lake.spark, lake.namesrv, lake.folder / "p"),
    )
    assert by_pulls.archive(topic).rows == 3000
    done = by_files.archive(topic, stores=stores, direct_log_over=0)
    assert (done.rows, done.errors, done.gaps) == (3000, {}, [])
    everything = "SELECT * FROM rows ORDER BY brokerName, queueId, queueOffset"
    assert query(by_files.table(topic), everything) == query(by_pulls.table(topic), everything)
