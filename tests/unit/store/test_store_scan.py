"""Walking over the records of a file: where it ends, and what it does not take for a record."""

from __future__ import annotations

import struct

import pytest

from pyromq.errors import CorruptRecord
from pyromq.protocol.ids import encode_host
from pyromq.protocol.record import HEAD_LAYOUTS, MAGIC_V2, MessageRecord, encode_blank, encode_record
from pyromq.store.fast_scan import FastScanner
from pyromq.store.scan import scan

START = 8192  # of the file in the log
RETRY = "%RETRY%" + 130 * "g"


def file_of(*records: MessageRecord, tail: bytes = b"", size: int = 2000) -> bytes:
    """A file with these records, each at its place."""
    data = b""
    for record in records:
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        data += encode_record(MessageRecord(**fields | {"physical_offset": START + len(data)}))
    return (data + tail).ljust(size, b"\0")


def scanned(data, *, at=0, check_crc=True, more=0):
    return list(scan(memoryview(data), at, START, check_crc=check_crc, more=more))


A = MessageRecord("T", b"aaa", b"KEYS\x01k", queue_id=3, queue_offset=7, sys_flag=8, store_timestamp=5)
B = MessageRecord("U", b"bb")


def test_records_are_found_one_after_the_other():
    first, second = scanned(file_of(A, B))
    assert first == (START, 101, 3, 7, 8, 5, "T", b"KEYS\x01k")
    assert (second.physical_offset, second.size, second.topic) == (START + 101, 94, "U")
    assert [record.topic for record in scanned(file_of(A, B), at=101)] == ["U"]


@pytest.mark.parametrize("tail", [b"", encode_blank(500), encode_blank(8)])
def test_a_scan_ends_before_a_blank_record_and_before_what_was_never_written(tail):
    assert len(scanned(file_of(A, B, tail=tail))) == 2


def test_records_of_every_shape_are_read():
    v6 = encode_host("2001:db8::1", 5)
    shapes = [
        MessageRecord("T", b""),
        MessageRecord("T", b"x", born_host=v6),
        MessageRecord("T", b"x", store_host=v6),
        MessageRecord("T", b"x", born_host=v6, store_host=v6, store_timestamp=77),
        MessageRecord(RETRY, b"x", magic=MAGIC_V2),
        MessageRecord("ü" * 60, b"x", b"p\x01" + b"v" * 300),
    ]
    found = scanned(file_of(*shapes))
    assert [record.topic for record in found] == ["T", "T", "T", "T", RETRY, "ü" * 60]
    assert found[3].store_timestamp == 77
    assert len(found[5].properties) == 302


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (4, 0x12345678, "unknown magic"),
        (0, 90, "record of 90 bytes"),
        (0, 1899, "do not end"),
        (0, 1900, "left in the file"),
        (0, -5, "record of -5 bytes"),
        (0, 100, "do not end"),
        (28, 1, "belongs to"),
        (84, -1, "body of -1 bytes"),
        (84, 2**31 - 1, "body of"),
        (84, 2, "do not end"),
        (8, 1, "CRC"),
        (88, 0x61616201, "CRC"),
    ],
)
def test_a_damaged_record_ends_the_scan_at_its_place(at, value, reason):
    data = bytearray(file_of(A, A))
    struct.pack_into(">i" if value < 2**31 else ">I", data, 101 + at, value)
    records = scan(memoryview(data), 0, START, check_crc=True)
    assert next(records).physical_offset == START
    with pytest.raises(CorruptRecord) as damaged:
        next(records)
    assert damaged.value.offset == START + 101
    assert reason in damaged.value.reason


def test_host_bits_that_lie_are_damage():
    data = bytearray(file_of(A))
    data[39] |= 0x30
    with pytest.raises(CorruptRecord):
        scanned(data)


def test_without_the_crc_a_damaged_body_goes_unseen():
    data = bytearray(file_of(A))
    data[88] ^= 1
    assert len(scanned(data, check_crc=False)) == 1


def test_a_file_that_ends_right_behind_a_record_has_no_end():
    data = file_of(A, size=0)
    with pytest.raises(CorruptRecord, match="file ends 0 bytes after"):
        scanned(data)
    assert len(scanned(data, more=1000)) == 1


def test_a_record_that_goes_on_behind_the_part_ends_the_scan():
    data = file_of(A, B, size=0)
    for cut in range(101, len(data)):
        assert len(scanned(data[:cut], more=500)) == 1
    with pytest.raises(CorruptRecord):
        scanned(data[:150])


def test_topics_that_are_no_utf_8_are_read_all_the_same():
    data = bytearray(file_of(A))
    data[92] = 0xFF
    assert scanned(data)[0].topic == "\ufffd"


@pytest.mark.parametrize("length", [-(2**31), -1, 2**31 - 1, 3 << 24])
def test_a_body_length_that_leads_out_of_the_file_ends_the_bulk(length):
    data = bytearray(file_of(*[B] * 100, size=10_000))
    damaged, size = 50, len(encode_record(B))
    struct.pack_into(">i", data, damaged * size + HEAD_LAYOUTS[0].positions["body_length"], length)
    bulk = FastScanner(memoryview(data), START, check_crc=False).read(0)
    assert bulk is not None
    assert len(bulk) == damaged
