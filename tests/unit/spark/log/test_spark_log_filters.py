"""What a scan takes over of a WHERE clause: the same rows as with all filters left to Spark, from less of the store."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from tests.unit.spark.log.scans import DELAYED, T0, fill, internal_messages, message

from pyromq.protocol.hashing import java_hash
from pyromq.protocol.record import MessageRecord
from pyromq.spark import options as known
from pyromq.spark.decode import columns
from pyromq.spark.log import reader as log_reader
from pyromq.spark.log.files import log_files
from pyromq.spark.log.filters import LogFilters, push
from pyromq.spark.log.plan import LogPart, PlacesPart, QueuePart, plan
from pyromq.spark.log.reader import read
from pyromq.spark.log.source import LogReader
from pyromq.spark.push_filters import PushFilters
from pyromq.spark.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

Rows: TypeAlias = list[dict[str, Any]]

TOPICS = ("orders", "payments", "refunds")
COUNT = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics of two queues each; the last messages have several keys, none, and no id of their own."""
    root = tmp_path_factory.mktemp("filters") / "store"
    records = [message(number, TOPICS[number % 3], queue_id=number % 2) for number in range(COUNT)]
    records[10] = MessageRecord("payments", b"bare")
    records[20] = MessageRecord("refunds", b"two keys", b"KEYS\x01k20 again\x02TAGS\x01A")
    records[200] = MessageRecord("refunds", b"two keys", b"KEYS\x01again k200\x02TAGS\x01B")
    fill(root, records)
    return root


def options_of(root: Path, **options: str) -> known.LogOptions:
    return known.parse(known.LogOptions, {"path": str(root), **options})


def read_parts(parts, options) -> Rows:
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in ARROW_SCHEMA.names if name != "properties"])
    rows = [row for part in parts for batch in read(part, options, schema) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["physicalOffset"])


def scan(root: Path, *filters: spark.Filter, **options: str) -> tuple[Rows, list[Any], set[type]]:
    """What is read for these filters, which of them are left to Spark, and the ways it was read."""
    parsed = options_of(root, **options)
    pushed, handed_back = push(filters, parsed)
    parts = plan(parsed, pushed)
    return read_parts(parts, parsed), handed_back, {type(part) for part in parts}


def everything(root: Path, **options: str) -> Rows:
    parsed = options_of(root, **options)
    return read_parts(plan(parsed), parsed)


def equal(column: str, value: object) -> spark.EqualTo:
    return spark.EqualTo((column,), value)


def among(column: str, *values: object) -> spark.In:
    return spark.In((column,), values)


COMPLETE: dict[str, Any] = {
    "topic": ([equal("topic", "orders")], lambda row: row["topic"] == "orders"),
    "topics": ([among("topic", "orders", "refunds", "none")], lambda row: row["topic"] in ("orders", "refunds")),
    "queue": ([equal("queueId", 1)], lambda row: row["queueId"] == 1),
    "queues": (
        [among("queueId", 1, 7), equal("Topic", "payments")],
        lambda row: row["queueId"] == 1 and row["topic"] == "payments",
    ),
    "offset": ([equal("queueOffset", 17)], lambda row: row["queueOffset"] == 17),
    "offsets": ([among("queueOffset", 3, 4, 40)], lambda row: row["queueOffset"] in (3, 4, 40)),
    "offset bounds": (
        [spark.GreaterThan(("queueOffset",), 10), spark.LessThanOrEqual(("queueOffset",), 12)],
        lambda row: 10 < row["queueOffset"] <= 12,
    ),
    "physical bounds": (
        [spark.GreaterThanOrEqual(("physicalOffset",), 1000), spark.LessThan(("physicalOffset",), 30_000)],
        lambda row: 1000 <= row["physicalOffset"] < 30_000,
    ),
    "tag": ([equal("tags", "A"), spark.IsNotNull(("tags",))], lambda row: row["tags"] == "A"),
    "tag of a topic": (
        [equal("tags", "B"), equal("topic", "refunds")],
        lambda row: row["tags"] == "B" and row["topic"] == "refunds",
    ),
    "nothing": ([equal("topic", "orders"), equal("topic", "payments")], lambda row: False),
}


@pytest.mark.parametrize("via", ["log", "queue", "auto"])
@pytest.mark.parametrize("case", COMPLETE)
def test_filters_that_are_taken_over_choose_exactly_their_rows(store, case, via):
    filters, chosen = COMPLETE[case]
    rows, handed_back, _ = scan(store, *filters, via=via)
    assert handed_back == []
    assert rows == [row for row in everything(store) if chosen(row)]


def test_one_record_is_read_for_one_physical_offset(store):
    whole = everything(store)
    rows, handed_back, _ = scan(store, equal("physicalOffset", whole[50]["physicalOffset"]))
    assert (rows, handed_back) == ([whole[50]], [])
    some = among("physicalOffset", *(row["physicalOffset"] for row in whole[50:60:3]))
    rows, handed_back, _ = scan(store, some)
    assert (rows, handed_back) == (whole[50:60], [some])


def test_times_leave_out_what_is_too_old_and_stay_with_spark(store):
    at = datetime.fromtimestamp((T0 + 100) / 1000, UTC)
    young = spark.GreaterThan(("storeTimestamp",), at)
    rows, handed_back, _ = scan(store, young, endingTimestamp=str(T0 + 200))
    assert handed_back == [young]
    assert rows == everything(store)[100:200]


def test_a_filter_shows_nothing_that_is_hidden_without_it(tmp_path):
    fill(tmp_path, internal_messages())
    hidden = equal("topic", DELAYED)
    assert scan(tmp_path, hidden)[0] == []
    assert len(scan(tmp_path, hidden, includeInternal="true")[0]) == 1
    assert len(scan(tmp_path, hidden, topics=f"{DELAYED},orders")[0]) == 1


def test_the_broker_is_known_only_if_it_was_given(store):
    ours = equal("brokerName", "broker-a")
    assert scan(store, ours)[1] == [ours]
    assert len(scan(store, ours, brokerName="broker-a")[0]) == COUNT
    assert scan(store, ours, brokerName="broker-b")[:2] == ([], [])


def test_few_messages_are_read_by_their_queues(store):
    assert scan(store, equal("topic", "orders"))[2] == {QueuePart}
    assert scan(store, equal("queueOffset", 3))[2] == {QueuePart}
    assert scan(store, equal("topic", "orders"), via="log")[2] == {LogPart}
    assert scan(store)[2] == {LogPart}


def test_entries_of_queues_leave_out_other_tags_before_anything_is_read(store, monkeypatch):
    read_at: list[int] = []

    def noting(*args, positions, **options):
        read_at.extend(positions.tolist())
        return columns.decode(*args, positions=positions, **options)

    monkeypatch.setattr(log_reader, "decode", noting)
    rows, _, _ = scan(store, equal("tags", "A"), equal("topic", "orders"), via="queue")
    assert len(rows) == 50
    assert len(read_at) == 50


def test_tags_with_the_same_hash_are_told_apart(tmp_path):
    assert java_hash("Aa") == java_hash("BB")
    fill(tmp_path, [MessageRecord("orders", tag, b"TAGS\x01" + tag) for tag in (b"Aa", b"BB", b"C")])
    for via in ("log", "queue"):
        rows, _, _ = scan(tmp_path, equal("tags", "BB"), via=via)
        assert [row["body"] for row in rows] == [b"BB"]


def test_delayed_messages_whose_entries_carry_times_are_found_by_tag(tmp_path):
    fill(tmp_path, internal_messages())
    rows, _, _ = scan(tmp_path, equal("tags", "B"), topics=DELAYED, via="queue")
    assert [row["tags"] for row in rows] == ["B"]


# Keys and ids


@pytest.mark.parametrize("number", [0, 7, 99, 150, COUNT - 1])
@pytest.mark.parametrize("topics", ["", "orders,payments,refunds"])
def test_a_key_and_an_id_are_found_by_the_index(store, number, topics):
    whole = everything(store)
    for filters in ([equal("keys", f"k{number}")], [equal("msgId", f"{number:032X}")]):
        rows, handed_back, ways = scan(store, *filters, **({"topics": topics} if topics else {}))
        assert handed_back == filters
        assert PlacesPart in ways
        assert whole[number] in rows
        assert len(rows) < 20


def test_keys_of_several_words_and_ids_that_are_places_are_found(store):
    whole = everything(store)
    found = scan(store, among("keys", "k20 again", "again k200"))[0]
    assert [row for row in found if row["body"] == b"two keys"] == [whole[20], whole[200]]
    assert whole[10]["msgId"] == whole[10]["offsetMsgId"]
    assert whole[10] in scan(store, equal("msgId", whole[10]["msgId"]))[0]
    assert len(scan(store, equal("keys", " "))[0]) == COUNT


def test_a_key_that_nobody_has_is_looked_for_in_a_few_records_only(store):
    rows, _, ways = scan(store, equal("keys", "none"), equal("topic", "orders"))
    assert ways <= {PlacesPart, LogPart}
    assert len(rows) < 20


@pytest.mark.parametrize("lost", ["first", "middle", "last", "all"])
def test_messages_whose_index_file_was_lost_are_still_found(store, tmp_path, lost):
    root = tmp_path / "store"
    shutil.copytree(store, root)
    paths = sorted((root / "index").iterdir())
    assert len(paths) > 3
    for path in {"first": paths[:1], "middle": paths[2:3], "last": paths[-1:], "all": paths}[lost]:
        path.unlink()
    whole = everything(store)
    for number in range(0, COUNT, 23):
        assert whole[number] in scan(root, equal("keys", f"k{number}"))[0]


def test_a_damaged_index_costs_only_time(store, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(store, root)
    whole = everything(store)
    for number, path in enumerate(sorted((root / "index").iterdir())):
        data = bytearray(path.read_bytes())
        data[36:40] = (b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x05", b"\xff\xff\xff\xff")[number % 4]
        path.write_bytes(data)
    (root / "index" / "20260101000000000").write_bytes(b"")
    (root / "index" / "20260101000000001").write_bytes(b"short")
    for number in range(0, COUNT, 23):
        assert whole[number] in scan(root, equal("keys", f"k{number}"))[0]


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_an_index_holds_a_message_is_found(store, tmp_path, data):
    root = tmp_path / "store"
    if not root.exists():
        shutil.copytree(store, root)
    whole = everything(store)
    for path, original in zip(sorted((root / "index").iterdir()), sorted((store / "index").iterdir()), strict=True):
        damaged = bytearray(original.read_bytes())
        # Of the header, which says how to read the rest: what is written there must be believed as far as it fits.
        for at in data.draw(st.lists(st.integers(32, 39), max_size=3)):
            damaged[at] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged[: data.draw(st.sampled_from([len(damaged), len(damaged) - 20, 41, 0]))])
    number = data.draw(st.integers(0, COUNT - 1).filter(lambda number: number not in (10, 20, 200)))
    assert whole[number] in scan(root, equal("keys", f"k{number}"))[0]


def test_an_index_of_zeros_is_no_index(store, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(store, root)
    for path in (root / "index").iterdir():
        path.write_bytes(bytes(35) + b"\5" + bytes(3) + b"\2" + bytes(1 << 20))
    assert len(scan(root, equal("keys", "k1"))[0]) == COUNT


def test_entries_that_lead_astray_are_passed_over(store, caplog):
    parsed = options_of(store)
    part = PlacesPart(tuple(log_files(store)), (0, 5), LogFilters().selection(parsed))
    assert [row["queueOffset"] for row in read_parts([part], parsed)] == [0]
    assert "byte 5: no record begins where the index says" in caplog.text


def test_keys_of_what_is_not_indexed_are_not_looked_up(store):
    assert scan(store, equal("keys", "k1"), includeInternal="true")[2] == {LogPart}
    assert scan(store, equal("keys", "k1"), via="log")[2] == {LogPart}
    assert PlacesPart not in scan(store, spark.StringStartsWith(("keys",), "k1"))[2]


def test_while_push_down_is_off_a_reader_looks_as_if_it_had_none(store):
    reader = LogReader(options_of(store), ARROW_SCHEMA)
    assert isinstance(reader.pushFilters, PushFilters)
    assert reader.pushFilters.__func__ is spark.DataSourceReader.pushFilters
    assert "pushFilters" not in LogReader.__dict__
    assert reader.pushFilters([equal("topic", "orders"), equal("flag", 1)]) == [equal("flag", 1)]
    assert {type(part) for part in reader.partitions()} == {QueuePart}
