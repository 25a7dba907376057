"""Topics become tables, each message once: with a real Spark and a real broker, read back by others' code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.lake_kit import Lake, offsets, query
from tests.spark.messages import Topics, topics_in

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.spark.lake.archive import ArchiveProgress

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture
def lake(spark, topics, tmp_path):
    return Lake(spark, topics.cluster.namesrv, tmp_path / "lake")


def test_an_archive_goes_on_where_its_table_is(lake, topics):
    topic = topics.new(4)
    topics.send(topic, [b"%d" % n for n in range(1000)], keys=lambda n: [f"k{n}"], tags="T")
    seen: list[ArchiveProgress] = []
    done = lake.archive(topic, progress=seen.append)
    assert (done.rows, done.errors, done.gaps, done.lag) == (1000, {}, [], {topic: 0})
    assert (seen[-1].rows, seen[-1].lag, seen[-1].time_left) == (1000, 0, 0.0)
    assert done.is_complete
    table = lake.folder / topic.replace("-", "_")
    assert query(table, "SELECT count(*), count(DISTINCT msgId), min(tags), min(topic) FROM rows") == [
        (1000, 1000, "T", topic)
    ]
    topics.send(topic, [b"%d" % n for n in range(1000, 1500)])
    done = lake.archive(topic)
    assert (done.rows, done.commits) == (500, 1)
    assert lake.archive(topic).commits == 0
    found = offsets(table)
    assert sum(map(len, found.values())) == 1500
    assert all(each == list(range(len(each))) for each in found.values())
    bodies = query(table, "SELECT body FROM rows")
    assert sorted(int(body) for (body,) in bodies) == list(range(1500))
