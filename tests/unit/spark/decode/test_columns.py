"""What the columns of stored records hold, by the decoder that Spark uses and by the plain one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.golden import test_store_vectors as vectors
from tests.unit.spark.rows import equal, rows_of

from pyromq.errors import CorruptRecord
from pyromq.protocol import compression, sysflag
from pyromq.protocol.record import MAGIC_V2, MessageRecord, encode_record
from pyromq.spark.decode import columns
from pyromq.spark.decode.selection import INTERNAL_BEGINNINGS, Selection
from pyromq.spark.schema import ARROW_SCHEMA

V4 = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def record(topic="orders", body=b"body", properties=b"", **fields) -> MessageRecord:
    return MessageRecord(topic, body, properties, born_host=V4, store_host=V4, **fields)


def stored(*found: MessageRecord) -> bytes:
    return b"".join(map(encode_record, found))


def test_the_golden_records_read_as_their_vectors_say():
    buffer = b"".join(
        (vectors.R1_BYTES, vectors.R2_BYTES, vectors.R3_BYTES, vectors.R4_BYTES, vectors.R7_BYTES, vectors.T12_BYTES)
    )
    rows = equal(buffer)
    assert rows[1] == {
        "topic": "TestTopic",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 1,
        "physicalOffset": 112,
        "msgId": "C0A8010A04D218B4AAC247B760000001",
        "offsetMsgId": "0A00000100002A9F0000000000000070",
        "keys": "k1 k2",
        "tags": "refund",
        "properties": [
            ("KEYS", "k1 k2"),
            ("TAGS", "refund"),
            ("UNIQ_KEY", "C0A8010A04D218B4AAC247B760000001"),
            ("CLUSTER", "c1"),
        ],
        "body": b"order#1",
        "flag": 7,
        "sysFlag": 0,
        "bodyCRC": 0x7E305261,
        "bornTimestamp": (vectors.T0 + 1000) * 1000,
        "storeTimestamp": (vectors.T0 + 1123) * 1000,
        "bornHost": "192.168.1.10:54321",
        "storeHost": "10.0.0.1:10911",
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
        "storeSize": 182,
    }
    assert rows[0]["msgId"] == rows[0]["offsetMsgId"]
    assert rows[0]["properties"] == []
    assert rows[2]["bornHost"] == "[2001:db8::1]:54321"
    assert rows[2]["offsetMsgId"] == "20010DB800000000000000000000000200002A9F0000000000000126"
    assert rows[-1]["topic"] == vectors.T12.topic


@pytest.mark.scenario("spark 4")
def test_bodies_keys_and_hosts_of_every_kind_come_out_exactly():
    big = bytes(range(256)) * (4 << 12)
    packed = [
        record(body=compression.compress(b"same" * 50, kind), sys_flag=sysflag.with_compression(0, kind))
        for kind in (sysflag.ZLIB, sysflag.LZ4, sysflag.ZSTD)
    ]
    buffer = stored(
        record(body=b""),
        record(body=b"x"),
        record(body=big),
        record(body=b"\xff\xfe\x00", properties="KEYS\x01schlüssel 鍵".encode()),
        MessageRecord("t" * 200, b"v2", magic=MAGIC_V2),
        *packed,
    )
    rows = equal(buffer)
    assert [row["body"] for row in rows] == [b"", b"x", big, b"\xff\xfe\x00", b"v2", *[b"same" * 50] * 3]
    assert rows[3]["keys"] == "schlüssel 鍵"
    assert rows[4]["topic"] == "t" * 200
    assert rows_of(columns.decode, buffer, ("body",), decompress=False)[5]["body"] == packed[0].body


def test_of_a_repeated_name_the_last_value_wins_and_empty_items_are_dropped():
    (row,) = equal(stored(record(properties=b"a\x011\x02TAGS\x01\x02a\x012\x02\x01x\x02b\x013=\x01\x02")))
    assert row["properties"] == [("a", "2"), ("b", "3=\x01")]
    assert row["tags"] is None


def test_many_distinct_names_are_searched_for_repetitions_too():
    def items(row):
        return [(f"name{row}-{number}", "v") for number in range(9)] + [("same", "1"), ("same", "2")] * (row % 2)

    found = [
        record(properties="\x02".join(f"{name}\x01{value}" for name, value in items(row)).encode()) for row in range(20)
    ]
    rows = equal(stored(*found))
    assert [row["properties"] for row in rows] == [list(dict(items(row)).items()) for row in range(20)]


def test_a_batch_holds_at_most_so_many_bytes_and_one_larger_message_alone():
    sizes = [400, 400, 400, 5000, 100]
    buffer = stored(*(record(body=bytes(size)) for size in sizes))
    found, start = [], 0
    while start < len(buffer):
        batch, start, _ = columns.decode(buffer, ("body",), broker_name="b", start=start, max_bytes=1000)
        found.append([len(body) for body in batch["body"].to_pylist()])
    assert found == [[400], [400], [400], [5000], [100]] or found == [[400, 400], [400], [5000], [100]]


@pytest.mark.scenario("spark 43")
def test_bodies_that_open_up_to_more_are_counted_as_they_open():
    packed = compression.compress(bytes(1_000_000), sysflag.ZLIB)
    buffer = stored(*[record(body=packed, sys_flag=sysflag.with_compression(0, sysflag.ZLIB))] * 20)
    start, batches = 0, []
    while start < len(buffer):
        batch, start, _ = columns.decode(buffer, ("body",), broker_name="b", start=start, max_bytes=3_000_000)
        batches.append(batch.num_rows)
    assert batches == [3, 3, 3, 3, 3, 3, 2]


def test_a_record_that_lies_elsewhere_than_it_says_is_damaged():
    first, second = record(physical_offset=1000), record(physical_offset=7)
    buffer = stored(first, second)
    batch, end, used = columns.decode(buffer, ("physicalOffset",), broker_name="b", origin=1000)
    assert (batch.num_rows, used) == (1, 1)
    with pytest.raises(CorruptRecord, match=rf"at {1000 + end}: record belongs to 7"):
        columns.decode(buffer, ("physicalOffset",), broker_name="b", origin=1000, start=end)


def test_a_body_that_does_not_match_its_crc_is_named_by_queue_and_offset():
    buffer = bytearray(stored(record(), record(queue_id=3, queue_offset=17)))
    buffer[buffer.rindex(b"body")] ^= 1
    *_, last = equal(bytes(buffer), verify_crc=True)
    assert last["corrupt"][0] == "body does not match its CRC; it is message 17 of queue 3 of orders"


def test_times_are_instants_in_utc():
    batch, _, _ = columns.decode(stored(record(born_timestamp=1_700_000_000_123)), ("bornTimestamp",), broker_name="b")
    assert batch["bornTimestamp"].to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)]


def test_an_empty_buffer_has_no_rows():
    batch, end, used = columns.decode(b"", ARROW_SCHEMA, broker_name="b")
    assert (batch.num_rows, end, used) == (0, 0, 0)
    assert batch.schema.equals(ARROW_SCHEMA)


def test_internal_topics_are_hidden_and_those_that_begin_alike_are_not():
    internal = [record(f"{name}g" if name[-1] in "%_" else name) for name in INTERNAL_BEGINNINGS]
    alike = [record("RMQ_"), record("TRANSPORT"), record("SCHEDULES"), record("T")]
    rows = equal(stored(*internal, *alike), selection=Selection(internal=False))
    assert [row["topic"] for row in rows] == ["RMQ_", "TRANSPORT", "SCHEDULES", "T"]


@pytest.mark.parametrize("max_rows", [1, 7, 100])
@pytest.mark.parametrize("max_bytes", [1, 50, 1 << 20])
def test_what_is_passed_over_does_not_change_what_is_found(max_rows, max_bytes):
    buffer = stored(*(record(("orders", "payments")[at % 3 == 0], b"%08d" % at) for at in range(60)))
    rows = rows_of(
        *(columns.decode, buffer, ("body",)),
        selection=Selection(topics=frozenset({"payments"})),
        max_rows=max_rows,
        max_bytes=max_bytes,
    )
    assert [int(row["body"]) for row in rows] == list(range(0, 60, 3))


@pytest.mark.parametrize("value", [b"A", b"1234567", b"12345678", b"0" * 40, "größe".encode(), b"x\x01y"])
def test_a_single_property_is_the_one_of_the_map(value):
    buffer = stored(
        record(properties=b"TAGS\x01first\x02KEYS\x01k\x02TAGS\x01" + value),
        record(properties=b"TAGSX\x01no\x02XTAGS\x01no\x02TAGS\x01\x02TAGS"),
        record(),
        record(properties=b"a\x01TAGS\x01b\x02TAGS\x01" + value + b"\x02"),
        record(properties=b"TAGS\x01" + value),
    )
    tags = [value.decode(), None, None, value.decode(), value.decode()]
    assert [row["tags"] for row in equal(buffer)] == tags
    assert [row["tags"] for row in rows_of(columns.decode, buffer, ("tags",))] == tags
