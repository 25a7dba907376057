"""What a batch read takes over of a WHERE clause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import datasource as spark

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.push_filters import PushFilters
from pyromq.spark.source.planning import QueueRange
from pyromq.spark.source.pushdown import Pushed, push
from pyromq.spark.source.source import RocketMQReader

QUEUE = MessageQueue(broker_name="broker-a", queue_id=1, topic="orders")


def equal(column: str, value: object) -> spark.EqualTo:
    return spark.EqualTo((column,), value)


def trimmed(*filters: spark.Filter) -> list[tuple[int, int]]:
    pushed, handed_back = push(filters)
    assert handed_back == []
    return [(each.start, each.end) for each in pushed.trim(QueueRange(QUEUE, 10, 20))]


@pytest.mark.parametrize(
    ("filters", "is_read"),
    [
        ([equal("topic", "orders"), equal("brokerName", "broker-a"), equal("queueId", 1)], True),
        ([spark.In(("queueid",), (1, 2))], True),
        ([equal("queueId", 2)], False),
        ([spark.In(("queueId",), (1, 2)), equal("queueId", 2)], False),
        ([equal("brokerName", "broker-b")], False),
        ([equal("topic", "Orders")], False),
    ],
)
def test_columns_that_name_a_queue_choose_queues(filters, is_read):
    pushed, handed_back = push(filters)
    assert handed_back == []
    assert pushed.has_queue(QUEUE) is is_read


def test_offsets_trim_ranges_to_the_message():
    at = ("queueOffset",)
    assert trimmed(spark.GreaterThan(at, 12), spark.LessThanOrEqual(at, 15)) == [(13, 16)]
    assert trimmed(spark.GreaterThanOrEqual(at, 12), spark.LessThan(at, 15)) == [(12, 15)]
    assert trimmed(spark.GreaterThan(at, 2), spark.LessThan(at, 100)) == [(10, 20)]
    assert trimmed(spark.GreaterThan(at, 19)) == []
    assert trimmed(equal("queueOffset", 17)) == [(17, 18)]
    assert trimmed(spark.In(at, (3, 11, 12, 13, 15, 19, 20))) == [(11, 14), (15, 16), (19, 20)]
    assert trimmed(spark.In(at, (11, 15)), spark.GreaterThan(at, 12)) == [(15, 16)]


def test_tags_are_taken_over_where_an_expression_can_name_them():
    wanted = spark.In(("tags",), ("A", "B"))
    not_null = spark.IsNotNull(("tags",))
    assert push([wanted, not_null]) == (Pushed(tags=frozenset("AB")), [])
    assert push([not_null]) == (Pushed(), [not_null])
    assert push([wanted], with_tags=False) == (Pushed(), [wanted])
    for odd in ("", "*", " A", "A || B"):
        assert push([equal("tags", odd)]) == (Pushed(), [equal("tags", odd)])


def test_times_trim_but_stay_with_spark():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    filters = [
        spark.GreaterThan(("storeTimestamp",), at),
        spark.LessThan(("storeTimestamp",), at + timedelta(microseconds=1500)),
    ]
    ms = int(at.timestamp() * 1000)
    assert push(filters) == (Pushed(since=ms, until=ms + 2), filters)


def test_everything_else_is_handed_back():
    filters = [
        spark.Not(equal("queueId", 1)),
        spark.IsNull(("topic",)),
        spark.EqualNullSafe(("queueId",), 1),
        spark.StringStartsWith(("topic",), "or"),
        spark.GreaterThan(("queueId",), 1),
        spark.GreaterThan(("bornTimestamp",), datetime.now(UTC)),
        equal("keys", "k"),
        spark.EqualTo(("properties", "k"), "v"),
    ]
    assert push(filters) == (Pushed(), filters)


def test_while_push_down_is_off_a_reader_looks_as_if_it_had_none():
    reader = RocketMQReader.__new__(RocketMQReader)
    assert PushFilters(reader).__func__ is spark.DataSourceReader.pushFilters
    assert "pushFilters" not in RocketMQReader.__dict__
