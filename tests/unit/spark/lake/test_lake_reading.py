"""Which files of a table a read opens, and which rows of them it takes."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from tests.unit.spark.lake.lake_rows import NOON, messages, queue

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.reading import FilePart, FileReader, Wanted, chosen, of_ranges, parts, wanted
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import DataFile


def file(name: str, start: int, end: int, number: int = 0, *, stored: datetime = NOON) -> DataFile:
    bounds = {"brokerName": "broker-a", "queueId": number}
    return DataFile(
        name,
        end - start,
        1000,
        {"dt": stored.date().isoformat()},
        {**bounds, "queueOffset": start, "storeTimestamp": stored},
        {**bounds, "queueOffset": end - 1, "storeTimestamp": stored + timedelta(seconds=end - start)},
    )


def names(found: list[DataFile]) -> list[str]:
    return [each.path for each in found]


LATER = NOON + timedelta(days=1)
FILES = [file("a", 0, 10), file("b", 10, 20), file("c", 0, 10, 1), file("d", 20, 30, stored=LATER)]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], "abcd"),
        ([spark.EqualTo(("queueId",), 1)], "c"),
        ([spark.In(("QUEUEID",), (1, 5))], "c"),
        ([spark.GreaterThanOrEqual(("queueOffset",), 10)], "bd"),
        # "b" begins with 10: a bound is taken as inclusive, so there may be too many, never too few.
        ([spark.LessThan(("queueOffset",), 10)], "abc"),
        ([spark.LessThan(("queueOffset",), 9)], "ac"),
        ([spark.GreaterThan(("queueOffset",), 5), spark.LessThanOrEqual(("queueOffset",), 9)], "ac"),
        ([spark.EqualTo(("dt",), date(2026, 2, 1))], "d"),
        ([spark.GreaterThan(("storeTimestamp",), NOON + timedelta(hours=1))], "d"),
        ([spark.EqualTo(("storeTimestamp",), NOON)], "abc"),
        ([spark.EqualTo(("brokerName",), "broker-b")], ""),
        ([spark.EqualTo(("tags",), "x"), spark.IsNotNull(("queueId",)), spark.EqualTo(("a", "b"), 1)], "abcd"),
        ([spark.EqualTo(("queueOffset",), "not a number")], "abcd"),
    ],
)
def test_filters_say_where_not_to_look(filters, left):
    assert "".join(names(chosen(FILES, wanted(filters)))) == left


def test_times_bound_a_read_together_with_filters():
    later = NOON + timedelta(hours=1)
    assert names(chosen(FILES, wanted([], (later, None)))) == ["d"]
    assert names(chosen(FILES, wanted([], (None, later)))) == ["a", "b", "c"]
    nothing = wanted([spark.GreaterThan(("storeTimestamp",), NOON + timedelta(days=5))], (later, None))
    assert chosen(FILES, nothing) == []


def test_ranges_of_queues_say_which_files_have_them():
    other = MessageQueue(topic="orders", broker_name="broker-b", queue_id=0)
    assert names(of_ranges(FILES, {queue(0): (15, 21), queue(1): (0, 0), other: (0, 100)})) == ["b", "d"]


def test_small_files_share_a_task_and_stay_in_order():
    assert [names([*part.files]) for part in parts(FILES, 2000)] == [["a", "b"], ["c", "d"]]
    assert [names([*part.files]) for part in parts(FILES, 1)] == [["a"], ["b"], ["c"], ["d"]]


def test_a_file_gives_the_rows_asked_for_with_the_columns_asked_for(tmp_path):
    storage = Storage.of(str(tmp_path))
    batches = [messages(queue(0), 0, 10), messages(queue(1), 0, 10)]
    [made] = write_parts(storage, "orders", "1", batches)
    schema = pa.schema([("dt", pa.date32()), ("QUEUEOFFSET", pa.int64()), ("younger", pa.string())])

    def rows(ranges: Any = None, times: Any = (None, None)) -> list[dict[str, Any]]:
        reader = FileReader(storage, "orders", schema, Wanted(), times)
        return [row for batch in reader.read(FilePart((made,), ranges)) for row in batch.to_pylist()]

    assert len(rows()) == 20
    assert rows()[0] == {"dt": NOON.date(), "QUEUEOFFSET": 0, "younger": None}
    assert [row["QUEUEOFFSET"] for row in rows({queue(0): (3, 5), queue(1): (9, 99)})] == [3, 4, 9]
    stored = [row["storeTimestamp"] for row in batches[0].to_pylist()]
    bounded = rows(times=(stored[8], None))
    assert [row["QUEUEOFFSET"] for row in bounded] == [8, 9, 8, 9]
    assert rows(times=(stored[1], stored[1])) == []
