from __future__ import annotations

import mmap

import pytest
from msgspec.structs import replace

from pyromq.errors import CorruptRecord, LocalProtocolError
from pyromq.protocol import ids, sysflag
from pyromq.protocol.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    HeadKind,
    MessageRecord,
    body_crc,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    patch_offsets,
    read_head,
    record_size,
)

V4 = ids.encode_host("10.0.0.1", 10911)
V6 = ids.encode_host("2001:db8::2", 10911)

RECORD = MessageRecord(
    "orders",
    b"Hello PyroMQ",
    b"TAGS\x01a\x02KEYS\x01k",
    queue_id=3,
    flag=7,
    queue_offset=5,
    physical_offset=4096,
    sys_flag=sysflag.MULTI_TAGS,
    born_timestamp=1_700_000_000_000,
    born_host=V4,
    store_timestamp=1_700_000_000_123,
    store_host=V4,
    reconsume_times=2,
    prepared_transaction_offset=9,
    body_crc=body_crc(b"Hello PyroMQ"),
)
RAW = encode_record(RECORD)
BODY_LENGTH_AT = 84
TOPIC_LENGTH_AT = 88 + len(RECORD.body)
PROPERTIES_LENGTH_AT = TOPIC_LENGTH_AT + 1 + len(RECORD.topic)


def damaged(at: int, raw: str) -> bytes:
    new = bytes.fromhex(raw)
    return RAW[:at] + new + RAW[at + len(new) :]


def test_positions_are_those_of_the_format():
    assert (QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT) == (20, 28, 36)
    assert STORE_TIMESTAMP_AT == {8: 56, 20: 68}
    assert MIN_RECORD_SIZE == 91


@pytest.mark.parametrize(("born", "store", "bits"), [(V4, V4, 0), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)])
@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_every_pair_of_hosts_and_both_versions_come_back(born, store, bits, magic):
    record = replace(RECORD, born_host=born, store_host=store, sys_flag=RECORD.sys_flag | bits, magic=magic)
    raw = encode_record(record)
    assert decode_record(raw) == record
    assert len(raw) == record.store_size
    assert len(raw) == record_size(6, 12, 13, born_host_length=len(born), store_host_length=len(store), magic=magic)
    assert len(raw) == 75 + len(born) + len(store) + 12 + 6 + 13 + (magic == MAGIC_V2)


@pytest.mark.parametrize("claimed", [0x10, 0x20, 0x30])
def test_host_bits_of_the_sender_are_not_believed(claimed):
    assert encode_record(replace(RECORD, sys_flag=RECORD.sys_flag | claimed)) == RAW


def test_the_crc_is_always_that_of_the_body():
    assert encode_record(replace(RECORD, body_crc=1)) == RAW


def test_an_empty_message_is_the_smallest_record():
    raw = encode_record(MessageRecord("", b""))
    assert len(raw) == MIN_RECORD_SIZE
    assert decode_record(raw) == MessageRecord("", b"")


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "t" * 128},
        {"topic": "é" * 64},
        {"topic": "t" * 32768, "magic": MAGIC_V2},
        {"topic": "\ud800"},
        {"properties": b"p" * 32768},
        {"magic": MAGIC_BLANK},
        {"magic": 0},
        {"born_host": b""},
        {"store_host": b"1234567"},
        {"queue_id": 2**31},
        {"physical_offset": 2**63},
        {"born_timestamp": None},
    ],
)
def test_what_a_record_cannot_hold_is_refused(fields):
    with pytest.raises(LocalProtocolError):
        encode_record(replace(RECORD, **fields))


def test_the_longest_topics_fit():
    for topic, magic in [("t" * 127, MAGIC_V1), ("t" * 128, MAGIC_V2), ("t" * 255, MAGIC_V2)]:
        assert decode_record(encode_record(replace(RECORD, topic=topic, magic=magic))).topic == topic


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_and_copied(kind):
    buffer = kind(b"xx" + RAW + b"yy")
    record = decode_record(buffer, 2)
    assert record == RECORD
    assert type(record.body) is type(record.properties) is type(record.born_host) is bytes
    assert decode_records(kind(RAW + RAW)) == [RECORD, RECORD]


def test_a_mapped_file_is_read(tmp_path):
    path = tmp_path / "00000000000000000000"
    path.write_bytes(RAW + RAW)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert decode_record(mapped, len(RAW)) == RECORD
        assert read_head(mapped, len(RAW)) == (HeadKind.RECORD, len(RAW))


@pytest.mark.parametrize("born", [V4, V6])
def test_a_staged_record_is_completed_at_its_place(born):
    whole = encode_record(replace(RECORD, born_host=born))
    staged = bytearray(RAW + encode_record(replace(RECORD, born_host=born, queue_offset=0, physical_offset=0)))
    patch_offsets(staged, len(RAW), RECORD.queue_offset, RECORD.physical_offset, RECORD.store_timestamp)
    assert staged == RAW + whole
    patch_offsets(memoryview(staged)[len(RAW) :], 0, 1, 2, 3)
    changed = decode_record(staged, len(RAW))
    assert (changed.queue_offset, changed.physical_offset, changed.store_timestamp) == (1, 2, 3)
    assert staged[: len(RAW)] == RAW


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "only 0 bytes left"),
        (RAW[:90], "only 90 bytes left"),
        (RAW[:-1], "only"),
        (damaged(0, "7fffffff"), "only"),
        (damaged(0, "00000000"), "body of 12 bytes in a record of 0"),
        (damaged(0, "ffffffff"), "body of 12 bytes in a record of -1"),
        (damaged(0, f"{len(RAW) - 1:08x}"), "do not end"),
        (damaged(4, "00000000"), "unknown magic 0x00000000"),
        (damaged(4, "cbd43194"), "unknown magic 0xcbd43194"),
        (damaged(8, "00000000"), "CRC"),
        (damaged(39, "32"), "body of"),
        (damaged(BODY_LENGTH_AT, "ffffffff"), "body of -1"),
        (damaged(BODY_LENGTH_AT, "7fffffff"), "body of 2147483647"),
        (damaged(TOPIC_LENGTH_AT, "80"), "topic of -128"),
        (damaged(TOPIC_LENGTH_AT, "7f"), "topic of 127"),
        (damaged(PROPERTIES_LENGTH_AT, "ffff"), "properties of -1"),
        (damaged(PROPERTIES_LENGTH_AT, "000c"), "properties of 12"),
        (damaged(PROPERTIES_LENGTH_AT, "7fff"), "properties of 32767"),
        (damaged(88, "00"), "CRC"),
    ],
)
def test_a_damaged_record_is_refused_with_its_place(raw, reason):
    with pytest.raises(CorruptRecord, match=reason) as caught:
        decode_record(RAW + raw, len(RAW))
    assert caught.value.offset == len(RAW)


def test_a_record_with_long_hosts_and_too_few_bytes_for_them_is_refused():
    raw = encode_record(MessageRecord("", b"", born_host=V6, store_host=V6))
    for length in range(len(raw)):
        with pytest.raises(CorruptRecord):
            decode_record(raw[:length])


def test_the_crc_is_left_alone_when_not_asked_for():
    assert decode_record(damaged(88, "00"), check_crc=False).body == b"\0" + RECORD.body[1:]


def test_a_topic_that_is_no_utf8_is_shown_as_java_shows_it():
    assert decode_record(damaged(TOPIC_LENGTH_AT + 1, "ff")).topic == "�rders"


def test_one_bad_record_spoils_the_pull():
    with pytest.raises(CorruptRecord) as caught:
        decode_records(RAW + damaged(88, "00") + RAW)
    assert caught.value.offset == len(RAW)
    assert len(decode_records(RAW + damaged(88, "00") + RAW, check_crc=False)) == 3


def test_a_pull_without_a_body_has_no_records():
    assert decode_records(b"") == []


def test_blank_record_and_end_of_the_log_are_recognised():
    assert encode_blank(151).hex() == "00000097cbd43194"
    assert read_head(encode_blank(151)) == (HeadKind.BLANK, 151)
    assert read_head(encode_blank(8)) == (HeadKind.BLANK, 8)
    assert read_head(bytes(8)) == (HeadKind.END, 0)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        bytes(7),
        SIZE_AND_MAGIC.pack(7, MAGIC_BLANK),
        SIZE_AND_MAGIC.pack(-1, MAGIC_BLANK),
        SIZE_AND_MAGIC.pack(0, MAGIC_V1),
        SIZE_AND_MAGIC.pack(90, MAGIC_V1),
        SIZE_AND_MAGIC.pack(-1, MAGIC_V2),
        SIZE_AND_MAGIC.pack(100, 0),
        SIZE_AND_MAGIC.pack(0, 1),
    ],
)
def test_what_no_writer_leaves_behind_is_corrupt(head):
    with pytest.raises(CorruptRecord):
        read_head(head)


def test_a_record_knows_its_addresses_and_its_id():
    record = replace(RECORD, born_host=V6)
    assert record.born_address == ("2001:db8::2", 10911)
    assert record.store_address == ("10.0.0.1", 10911)
    assert record.offset_msg_id == "0A00000100002A9F0000000000001000"


def test_one_property_is_read_without_the_others():
    assert RECORD.find_property("TAGS") == "a"
    assert RECORD.find_property("KEYS") == "k"
    assert RECORD.find_property("DELAY") is None


def test_a_record_is_a_value():
    assert hash(RECORD) == hash(decode_record(RAW))
    with pytest.raises(AttributeError):
        RECORD.topic = "other"  # type: ignore[misc]  # this is what must fail
