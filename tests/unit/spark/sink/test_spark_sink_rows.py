"""Rows to messages: every field, who a message is, and rows that no message can be made of."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.spark.sink.sink_rows import PROPERTIES, batch_of, rows_of, sink_options

from pyromq.protocol import properties as props
from pyromq.spark.sink.columns import SinkColumns
from pyromq.spark.sink.identity import Identity, key_of
from pyromq.spark.sink.messages import BadRow, OutRow, RowsOut

TASK = Identity("query-1", 7, 3)


def properties(row: OutRow | BadRow) -> dict[str, str]:
    assert isinstance(row, OutRow), row
    return props.parse(row.properties)


def reason(row: OutRow | BadRow) -> str:
    assert isinstance(row, BadRow), row
    return row.reason


def test_every_column_ends_in_its_place():
    at = datetime(2030, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    batch = batch_of(
        body=[b"one", b"two"],
        tags=["a", None],
        keys=[["k1", "k2"], None],
        properties=pa.array([[("colour", "blue")], None], PROPERTIES),
        flag=[5, None],
        shardingKey=["s", None],
        deliverTimestamp=pa.array([at, None], pa.timestamp("us", tz="Europe/Berlin")),
    )
    first, second = rows_of(batch)
    assert properties(first) == {
        "UNIQ_KEY": first.key,
        "WAIT": "true",
        "colour": "blue",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "s",
        "TIMER_DELIVER_MS": "1893553445678",
    }
    assert (first.topic, first.body, first.flag, first.shard, first.is_delayed) == ("orders", b"one", 5, "s", True)
    assert properties(second) == {"UNIQ_KEY": second.key, "WAIT": "true"}
    assert (second.body, second.flag, second.shard, second.is_delayed) == (b"two", 0, None, False)


def test_the_option_topic_beats_the_column():
    batch = batch_of(body=["x"], topic=["other"])
    assert [row.topic for row in rows_of(batch)] == ["orders"]
    free = type(sink_options())(namesrv="ns:9876")
    assert [row.topic for row in rows_of(batch, free)] == ["other"]


def test_maps_of_a_sliced_batch_stay_with_their_rows():
    maps = pa.array([[("a", "0")], None, [("a", "2"), ("b", "2")], []], PROPERTIES)
    batch = batch_of(body=["0", "1", "2", "3"], properties=maps).slice(1)
    found = [{name: value for name, value in properties(row).items() if name in "ab"} for row in rows_of(batch)]
    assert found == [{}, {"a": "2", "b": "2"}, {}]


def test_a_stream_gives_each_row_the_same_identity_in_every_attempt():
    batch = batch_of(body=[b"x"] * 3)
    once, again = rows_of(batch, identity=TASK), rows_of(batch, identity=TASK)
    assert [properties(row)["SPARK_TXN"] for row in once] == ["query-1:7:3:0", "query-1:7:3:1", "query-1:7:3:2"]
    assert [row.key for row in once] == [row.key for row in again]
    others = {row.key for row in rows_of(batch, identity=Identity("query-1", 8, 3))}
    assert len(others | {row.key for row in once}) == 6
    assert all(len(key) == 32 and key[20:28] == "00000000" and key == key.upper() for key in others)


def test_without_a_name_for_the_job_ids_are_new_each_time():
    batch = batch_of(body=[b"x"])
    (once,), (again,) = rows_of(batch), rows_of(batch)
    assert once.key != again.key
    assert "SPARK_TXN" not in properties(once)


def test_a_dedup_key_makes_the_id_whatever_the_order_of_rows():
    first = rows_of(batch_of(body=["a", "b"], dedupKey=["ka", "kb"]), identity=TASK)
    second = rows_of(batch_of(body=["b", "a"], dedupKey=["kb", "ka"]), identity=TASK)
    assert {row.body: row.key for row in first} == {row.body: row.key for row in second}
    assert first[0].key == key_of("ka")
    assert len(first[0].key) == 32


@given(st.text(min_size=1, max_size=50), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_txn_tells_the_batch_of_its_own_query_and_partition_only(query, batch, partition, sequence):
    mine = Identity(query, batch, partition)
    txn = f"{mine.prefix}{sequence}"
    assert mine.batch_of(txn) == batch
    assert Identity(query, 0, partition).batch_of(txn) == batch
    assert Identity(query, batch, partition + 1).batch_of(txn) is None
    assert Identity(query + "x", batch, partition).batch_of(txn) is None


@given(st.text())
def test_any_txn_of_somebody_else_is_only_not_ours(txn):
    assert TASK.batch_of(txn) is None


def test_rows_that_were_read_leave_behind_what_brokers_and_clients_had_set():
    own = [("UNIQ_KEY", "X"), ("WAIT", "false"), ("CLUSTER", "c"), ("SPARK_TXN", "old:1:2:3"), ("colour", "blue")]
    maps = pa.array([own, own], PROPERTIES)
    copied, typed = rows_of(batch_of(body=["x", "y"], properties=maps, msgId=["X", None]), identity=TASK)
    assert properties(copied)["colour"] == "blue"
    assert properties(copied)["UNIQ_KEY"] == copied.key != "X"
    assert (properties(copied)["SPARK_TXN"], properties(copied)["WAIT"]) == ("query-1:7:3:0", "true")
    assert "CLUSTER" not in properties(copied)
    assert reason(typed) == "property UNIQ_KEY is reserved and cannot be set"


def test_the_sharding_key_of_a_copied_message_still_counts():
    maps = pa.array([[("__SHARDINGKEY", "s1")]], PROPERTIES)
    (row,) = rows_of(batch_of(body=["x"], properties=maps, queueOffset=[4]))
    assert row.shard == properties(row)["__SHARDINGKEY"] == "s1"


@pytest.mark.scenario("spark 27")
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": pa.array([None], pa.binary())}, "its body is null"),
        ({"body": [b""]}, "its body is empty"),
        ({"body": [b"x" * 2001]}, "its body has 2001 bytes; at most 2000 can be sent"),
        ({"flag": [1 << 31]}, "its flag 2147483648 is not a 32-bit integer"),
        ({"tags": ["a\x01b"]}, "U+0001"),
        ({"properties": pa.array([[("KEYS", "x")]], PROPERTIES)}, "property KEYS is reserved"),
        ({"properties": pa.array([[("SPARK_TXN", "x")]], PROPERTIES)}, "property SPARK_TXN is reserved"),
        ({"properties": pa.array([[("a", None)]], PROPERTIES)}, "property 'a' has no name, or no value"),
        ({"properties": pa.array([[("a", "x" * 40_000)]], PROPERTIES)}, "its properties take"),
        ({"properties": pa.array([[("a", "ü" * 20_000)]], PROPERTIES)}, "its properties take"),
        ({"delayLevel": [3], "deliverTimestamp": [5]}, "only one is allowed"),
        ({"delayLevel": [-1]}, "its delayLevel is -1"),
        ({"deliverTimestamp": [-1]}, "before 1970"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_key(columns, said):
    options = sink_options(maxMessageBytes=2000, batchBytes=1000)
    row = {"body": [b"x"], "keys": ["order-1"]}
    (good,) = rows_of(batch_of(**row), options)
    (bad,) = rows_of(batch_of(**{**row, **columns}), options)
    assert isinstance(good, OutRow)
    assert said in reason(bad)
    assert "keys 'order-1' to orders: " in str(bad.error())
    assert said in str(bad.error())


@pytest.mark.parametrize(("topic", "said"), [(None, "its topic is null"), ("a b", "not allowed"), ("", "blank")])
def test_topics_of_rows_are_checked(topic, said):
    options = type(sink_options())(namesrv="ns:9876")
    (row,) = rows_of(batch_of(body=["x"], topic=pa.array([topic], pa.string())), options)
    assert said in reason(row)


def test_a_dead_letter_keeps_the_row_and_the_reason():
    options = sink_options(maxMessageBytes=200_000, batchBytes=1000)
    maps = pa.array([[("colour", "blue"), ("KEYS", "mine")], [("colour", "red")]], PROPERTIES)
    huge = b"y" * 200_001
    reserved, large = rows_of(batch_of(body=[b"x", huge], properties=maps, keys=["k", "k"]), options, TASK)
    writer = RowsOut(SinkColumns({}, ()), options, TASK)
    kept = writer.dead_letter(reserved, "dead")
    assert (kept.topic, kept.body) == ("dead", b"x")
    assert properties(kept).items() >= {"colour": "blue", "KEYS": "k", "SPARK_BAD_ROW_TOPIC": "orders"}.items()
    assert properties(kept)["SPARK_BAD_ROW"] == reason(reserved)
    assert properties(kept)["SPARK_TXN"] == "query-1:7:3:0"
    assert writer.dead_letter(large, "dead").body == huge[: 64 << 10]


def test_a_dead_letter_of_an_empty_row_has_the_reason_as_its_body():
    (bad,) = rows_of(batch_of(body=pa.array([None], pa.binary())))
    kept = RowsOut(SinkColumns({}, ()), sink_options(), None).dead_letter(bad, "dead")
    assert kept.body == b"its body is null"


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "body": st.none() | st.binary(max_size=40),
                "tags": st.none() | st.text(max_size=10),
                "keys": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=3),
                "properties": st.none() | st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5)),
                "flag": st.none() | st.integers(-(2**63), 2**63 - 1),
                "shardingKey": st.none() | st.text(max_size=5),
                "delayLevel": st.none() | st.integers(-2, 20),
                "dedupKey": st.none() | st.text(max_size=5),
            }
        ),
        max_size=5,
    )
)
def test_any_row_ends_in_a_message_or_in_a_reason_and_a_dead_letter(rows):
    kinds = {
        "body": pa.binary(),
        "tags": pa.string(),
        "keys": pa.list_(pa.string()),
        "properties": PROPERTIES,
        "flag": pa.int64(),
        "shardingKey": pa.string(),
        "delayLevel": pa.int64(),
        "dedupKey": pa.string(),
    }

    def values(name):
        found = [row[name] for row in rows]
        return [None if each is None else list(each.items()) for each in found] if name == "properties" else found

    batch = batch_of(**{name: pa.array(values(name), kind) for name, kind in kinds.items()})
    writer = RowsOut(SinkColumns({}, ()), sink_options(), TASK)
    for number, (row, given_row) in enumerate(zip(rows_of(batch, identity=TASK), rows, strict=True)):
        out = row if isinstance(row, OutRow) else writer.dead_letter(row, "dead")
        assert out.number == number
        parsed = props.parse(out.properties)
        assert parsed["UNIQ_KEY"] == out.key
        if isinstance(row, OutRow):
            assert out.body == given_row["body"]
            assert parsed.get("TAGS", "") == (given_row["tags"] or "")
            mine = given_row["properties"] or {}
            assert {name: parsed.get(name) for name in mine} == mine
