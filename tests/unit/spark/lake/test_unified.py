"""What history and live as one need to know, decided without Spark, brokers or a lake."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from pyromq.client import MessageQueue
from pyromq.errors import ConfigError, RouteNotFound
from pyromq.spark import options as known
from pyromq.spark.lake.history import _layers, check_all_there, is_complete, storage_of
from pyromq.spark.lake.table import Snapshot
from pyromq.spark.lake.unified import lake_settings, moment
from pyromq.spark.source.planning import QueueRange

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def queue(number: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic="orders", broker_name=broker, queue_id=number)


def options(**given: str) -> known.SourceOptions:
    return known.parse(known.SourceOptions, {"namesrv": "a:1", "subscribe": "orders", **given})


@pytest.mark.parametrize(
    "written",
    [
        NOON,
        NOON.astimezone().replace(tzinfo=None),
        "2026-01-31T12:00:00Z",
        "2026-01-31T13:00:00+01:00",
        NOON.astimezone(timezone(timedelta(hours=5))),
        1_769_860_800_000,
        "1769860800000",
    ],
)
def test_a_time_may_be_written_in_many_ways(written):
    assert moment(written, "since") == NOON


def test_a_date_is_its_midnight_and_what_is_no_time_is_refused():
    assert moment(date(2026, 1, 31), "since") == moment("2026-01-31", "until") == datetime(2026, 1, 31).astimezone()
    assert moment(None, "since") is None
    with pytest.raises(ConfigError, match=r"until must be a time such as .*, not 'soon'"):
        moment("soon", "until")
    with pytest.raises(ConfigError, match="since must be in milliseconds, and this looks like seconds"):
        moment(1_769_860_800, "since")


def test_a_version_is_complete_up_to_a_time_that_it_knows_and_clocks_may_differ():
    def version(complete):
        return Snapshot(3, NOON, {}, pa.schema([]), complete)

    assert not is_complete(version(None), NOON)
    assert is_complete(version(NOON), NOON - timedelta(minutes=5))
    assert not is_complete(version(NOON), NOON - timedelta(minutes=4, seconds=59))


def test_a_lake_is_the_same_whether_options_or_keywords_name_it():
    settings = {"endpoint": "http://minio:9000", "accessKey": "one", "secretKey": "other", "AWS_X": "y"}
    made = lake_settings("s3://bucket/mq", "alias", {**settings, "format": "delta"})
    assert made == {
        "lake.root": "s3://bucket/mq",
        "lake.name": "alias",
        "lake.endpoint": "http://minio:9000",
        "lake.accessKey": "one",
        "lake.secretKey": "other",
        "lake.storage.AWS_X": "y",
        "lake.format": "delta",
    }
    parsed = options(**made)
    storage = storage_of(parsed)
    assert (storage.root, storage.endpoint, storage.access_key) == ("s3://bucket/mq", "http://minio:9000", "one")
    assert dict(storage.options) == {"AWS_X": "y"}
    assert (parsed.lake_name, parsed.lake_format) == ("alias", "delta")
    for shown in (repr(parsed), str(known.shown((known.SourceOptions,), made)), repr(storage)):
        assert "other" not in shown
    catalog = lake_settings("/lake", None, {"catalog.uri": "sqlite:///x.db", "catalog.type": "sql"})
    assert dict(storage_of(options(**catalog)).options) == {"catalog.uri": "sqlite:///x.db", "catalog.type": "sql"}
    with pytest.raises(ConfigError, match="root is missing"):
        lake_settings(" ", None, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lake.history": "true"}, "lake.history needs lake.root"),
        ({"startingOffsets": "lake"}, "startingOffsets=lake needs lake.root"),
        ({"lake.root": "/l", "lake.name": "t", "subscribe": "a,b"}, "one topic"),
        ({"lake.root": "/l", "lake.history": "true", "sql": "a > 1"}, "WHERE"),
        ({"lake.rot": "/l"}, "did you mean lake.root"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        options(**given)


def test_a_batch_with_history_takes_no_ends_and_a_sink_ignores_the_lake():
    whole = {"lake.root": "/l", "lake.history": "true"}
    with pytest.raises(ConfigError, match="use startingTimestamp, endingTimestamp or WHERE"):
        options(**whole, startingOffsets='{"orders":{"broker-a":{"0":1}}}').check_batch()
    with pytest.raises(ConfigError, match=r"a stream with lake\.history begins with the lake"):
        options(**whole, startingTimestamp="1700000000000").check_stream()
    options(**whole, startingTimestamp="1700000000000", endingTimestamp="1700000000001").check_batch()
    options(**whole).check_stream()
    given = {"namesrv": "a:1", "topic": "t", "lake.root": "/l", "lake.storage.AWS_X": "y"}
    assert known.parse(known.SinkOptions, given, others=(known.SourceOptions,)).topic == "t"


def test_ranges_of_one_queue_are_read_one_after_the_other():
    ranges = [QueueRange(queue(0), 0, 5), QueueRange(queue(1), 0, 9), QueueRange(queue(0), 7, 8)]
    assert _layers(ranges) == [{queue(0): (0, 5), queue(1): (0, 9)}, {queue(0): (7, 8)}]


def test_a_queue_that_only_the_lake_has_is_told(caplog):
    positions = {queue(0): 5, queue(3, "broker-b"): 7}
    check_all_there(positions, positions, fail=True)
    with pytest.raises(RouteNotFound, match="queue 3 of orders on broker-b is in the lake, but no broker has it"):
        check_all_there(positions, {queue(0)}, fail=True)
    check_all_there(positions, {queue(0)}, fail=False)
    assert "reading the others without it" in caplog.text
