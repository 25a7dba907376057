"""Bodies become columns, or bad rows with a reason: JSON, Avro, Protobuf, CSV, and schemas that changed."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyromq.errors import ConfigError, InvalidMessage
from pyromq.spark.lake.decoding import BodyDecoder, DecodeOptions, Decoding, added, decoding
from pyromq.spark.options import parse

if TYPE_CHECKING:
    from pathlib import Path

DDL = "id bigint, price double, name string, at timestamp, parts array<struct<sku:string,n:int>>, topic string"


def options(**given: str) -> Decoding:
    keys = {"schema": "decode.schema", "message": "decode.message", "on_error": "onError", "keep_body": "keepBody"}
    made = decoding(parse(DecodeOptions, {keys.get(key, key): value for key, value in given.items()}))
    assert made is not None
    return made


def messages(*bodies: bytes) -> pa.RecordBatch:
    count = len(bodies)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["orders"] * count),
            "brokerName": pa.array(["broker-a"] * count),
            "queueId": pa.array([3] * count, pa.int32()),
            "queueOffset": pa.array(range(7, 7 + count), pa.int64()),
            "body": pa.array(bodies, pa.binary()),
        }
    )


def split(how: Decoding, *bodies: bytes) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The decoded columns of the good rows, and the reasons of the others by queue offset."""
    good, bad = BodyDecoder(how).split(messages(*bodies))
    own = {field.name for field in how.columns}
    rows = [{name: value for name, value in row.items() if name in own} for row in good.to_pylist()]
    return rows, {} if bad is None else {row["queueOffset"]: row["reason"] for row in bad.to_pylist()}


def test_json_becomes_columns_beside_those_of_the_message():
    how = options(decode="json", schema=DDL)
    body = {
        "id": 1,
        "price": 2,
        "name": "日本",
        "at": "2026-01-31T10:00:00+02:00",
        "parts": [{"sku": "a", "n": 1, "more": 2}, None],
        "topic": "its own",
        "new": 1,
    }
    good, bad = BodyDecoder(how).split(messages(json.dumps(body).encode(), b"{}"))
    assert bad is None
    first, second = good.to_pylist()
    assert first["topic"] == "orders"
    assert first["queueOffset"] == 7
    assert json.loads(first["body"]) == body
    assert (first["id"], first["price"], first["name"], first["body_topic"]) == (1, 2.0, "日本", "its own")
    assert first["at"] == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert first["parts"] == [{"sku": "a", "n": 1}, None]
    assert [second[name] for name in ("id", "price", "name", "at", "parts", "body_topic")] == [None] * 6


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[1]", "a JSON object is needed, not list"),
        (b'{"id": "7"}', "id: '7' is not bigint"),
        (b'{"id": 1.5}', "id: 1.5 is not bigint"),
        (b'{"id": true}', "id: True is not bigint"),
        (b'{"id": 9223372036854775808}', "id: 9223372036854775808 is not bigint"),
        (b'{"name": 7}', "name: 7 is not string"),
        (b'{"at": "yesterday"}', "at: 'yesterday' is not timestamp"),
        (b'{"at": 5}', "at: 5 is not timestamp"),
        (b'{"parts": {"sku": "a"}}', "parts: {'sku': 'a'} is not array<struct<sku:string,n:int>>"),
        (b'{"parts": [{"n": "x"}]}', "parts: 'x' is not int"),
        (b"[" * 500_000, "recursion"),
    ],
)
def test_what_does_not_fit_is_a_bad_row_with_its_reason(body, said):
    rows, reasons = split(options(decode="json", schema=DDL), b'{"id": 1}', body, b'{"id": 3}')
    assert [row["id"] for row in rows] == [1, 3]
    assert list(reasons) == [8]
    assert said in reasons[8]


def test_on_error_fail_names_the_message_and_skip_is_the_callers_choice():
    with pytest.raises(InvalidMessage, match=r"queue 3 of orders on broker-a, offset 8: .*truncated.*onError=dlq"):
        split(options(decode="json", schema=DDL, on_error="fail"), b"{}", b"{")


def test_bodies_can_be_left_out():
    good, _ = BodyDecoder(options(decode="json", schema="id int", keep_body="false")).split(messages(b'{"id": 1}'))
    assert (good.column("body").null_count, good.column("id").to_pylist()) == (1, [1])


def test_a_new_column_is_added_and_a_changed_type_makes_bad_rows_only_where_it_does_not_fit():
    table = pa.schema([("queueOffset", pa.int64()), ("id", pa.int64())])
    how = options(decode="json", schema="id string, extra double").within(table)
    assert how.changes() == ["column id is bigint in the table and string in the schema"]
    assert added(table, list(how.columns)) == pa.schema([("extra", pa.float64())])
    rows, reasons = split(how, b'{"id": "17", "extra": 1.5}', b'{"id": "x17"}', b'{"id": null}')
    assert rows == [{"id": 17, "extra": 1.5}, {"id": None, "extra": None}]
    assert reasons == {8: "id: 'x17', but the table's column is bigint"}


def test_csv():
    how = options(decode="csv", schema="id int, price decimal(6,2), name string, ok boolean, day date")
    rows, reasons = split(
        how, b'1,2.50,"a, b",true,2026-01-31', b",,,,", b"1,2", b"x,1,n,true,2026-01-31", b"1,1,n,true,2026-01-31\n2"
    )
    assert rows[0] == {
        "id": 1,
        "price": Decimal("2.50"),
        "name": "a, b",
        "ok": True,
        "day": datetime(2026, 1, 31, tzinfo=UTC).date(),
    }
    assert rows[1] == {"id": None, "price": None, "name": "", "ok": None, "day": None}
    assert reasons == {
        9: "one line with 5 values is needed, not 2 values",
        10: "id: 'x' is not int",
        11: "one line with 5 values is needed, not 2 lines",
    }


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}


def test_avro_records_with_and_without_their_own_schema(tmp_path):
    import fastavro

    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(AVRO))
    how = options(decode="avro", schema=str(path))
    assert how == options(decode="avro", schema=json.dumps(AVRO))
    order = {"id": 7, "at": datetime(2026, 1, 31, tzinfo=UTC), "kind": "B", "note": None, "counts": {"x": 1}}
    bare, file = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(bare, AVRO, order)
    fastavro.writer(file, AVRO, [order])
    data = bare.getvalue()
    rows, reasons = split(how, data, file.getvalue(), data + b"!", data[:-4], b"")
    assert rows == [{**order, "counts": [("x", 1)]}] * 2
    assert reasons[9] == "1 bytes follow the Avro record"
    assert {*reasons} == {9, 10, 11}


def descriptors(folder: Path) -> Path:
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    file = FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="PAID", number=1)
    part = file.message_type.add(name="Part")
    part.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_UINT64, label=Field.LABEL_OPTIONAL)
    order.field.add(name="kind", number=2, type=Field.TYPE_ENUM, type_name=".shop.Kind", label=Field.LABEL_OPTIONAL)
    order.field.add(name="parts", number=3, type=Field.TYPE_MESSAGE, type_name=".shop.Part", label=Field.LABEL_REPEATED)
    order.field.add(
        name="at",
        number=4,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=Field.LABEL_OPTIONAL,
    )
    stamp = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    path = folder / "shop.desc"
    path.write_bytes(FileDescriptorSet(file=[stamp, file]).SerializeToString())
    return path


def test_protobuf_by_a_descriptor_set(tmp_path):
    path = descriptors(tmp_path)
    how = options(decode="protobuf", schema=str(path), message="shop.Order")
    # id 2^64-1, PAID, two parts, a time; then nothing; an enum that nobody knows; and damage.
    whole = b"\x08" + b"\xff" * 9 + b"\x01" + b"\x10\x01" + b"\x1a\x03\x0a\x01a" + b"\x1a\x00" + b"\x22\x02\x08\x05"
    rows, reasons = split(how, whole, b"", b"\x10\x09", b"\x08")
    assert rows == [
        {
            "id": Decimal(2**64 - 1),
            "kind": "PAID",
            "parts": [{"sku": "a"}, {"sku": ""}],
            "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
        },
        {"id": Decimal(0), "kind": "UNKNOWN", "parts": [], "at": None},
        {"id": Decimal(0), "kind": "9", "parts": [], "at": None},
    ]
    assert list(reasons) == [10]
    with pytest.raises(ConfigError, match=r"there is no shop.Odrer in decode.schema, but .*shop.Order"):
        options(decode="protobuf", schema=str(path), message="shop.Odrer")
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not a Protobuf descriptor set"):
        options(decode="protobuf", schema=str(path), message="shop.Order")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decode": "json"}, "decode=json needs decode.schema"),
        ({"schema": "a int"}, "decode.schema is given, but not decode"),
        ({"decode": "json", "schema": "a int", "message": "x"}, "decode.message"),
        ({"decode": "json", "schema": "a int, A string"}, "a appears twice"),
        ({"decode": "json", "schema": "a"}, "column 2: expected a type"),
        ({"decode": "json", "schema": "a whole"}, "column 3: expected a type"),
        ({"decode": "json", "schema": "a array<int"}, "column 12: expected '>'"),
        ({"decode": "json", "schema": "a decimal(50,2)"}, "at most 38 digits"),
        ({"decode": "json", "schema": "a int;"}, "column 6: expected a name or a type"),
        ({"decode": "avro", "schema": "{"}, "not an Avro schema"),
        ({"decode": "avro", "schema": '{"type": "long"}'}, "must be a record"),
        ({"decode": "avro", "schema": "/no/such/file"}, "/no/such/file: No such file"),
        ({"decode": "xml", "schema": "a int"}, "json, avro, protobuf, csv"),
    ],
)
def test_bad_options_say_what_is_wrong(given, said):
    with pytest.raises(ConfigError) as caught:
        options(**given)
    assert said in str(caught.value)
