from __future__ import annotations

import pytest
from msgspec.structs import replace

from pyromq.errors import CorruptRecord, LocalProtocolError
from pyromq.protocol import compression, sysflag
from pyromq.protocol.batch import BatchItem, decode_batch, encode_batch, expand, join_properties, unwrap
from pyromq.protocol.record import MessageRecord

ITEMS = [BatchItem(b"m0", 0, b"TAGS\x01A"), BatchItem(b"", -1), BatchItem(b"m2!!", 7, b"KEYS\x01bk\x02")]
RAW = encode_batch(ITEMS)


def test_items_come_back_from_any_buffer():
    assert decode_batch(RAW) == decode_batch(memoryview(RAW)) == ITEMS
    assert len(RAW) == sum(item.size for item in ITEMS) == 3 * 22 + 2 + 4 + 6 + 8
    assert type(decode_batch(memoryview(RAW))[0].body) is bytes


def test_size_magic_and_crc_of_an_item_are_not_looked_at():
    assert decode_batch(b"\xff" * 12 + RAW[12:]) == ITEMS


def test_a_batch_cut_anywhere_but_between_items_is_an_error():
    ends = {ITEMS[0].size, ITEMS[0].size + ITEMS[1].size}
    for length in range(len(RAW)):
        if length in ends:
            assert decode_batch(RAW[:length]) == ITEMS[: sorted(ends).index(length) + 1]
        else:
            with pytest.raises(CorruptRecord):
                decode_batch(RAW[:length])


@pytest.mark.parametrize(
    ("at", "raw"),
    [(16, "ffffffff"), (16, "7fffffff"), (16, "80000000"), (22, "ffff"), (22, "7fff"), (22, "8000")],
)
def test_lengths_that_leave_the_batch_are_an_error(at, raw):
    new = bytes.fromhex(raw)
    with pytest.raises(CorruptRecord) as caught:
        decode_batch(RAW[:at] + new + RAW[at + len(new) :])
    assert caught.value.offset == 0


def test_a_batch_has_at_least_one_message():
    with pytest.raises(CorruptRecord):
        decode_batch(b"")
    with pytest.raises(LocalProtocolError):
        encode_batch([])


@pytest.mark.parametrize("item", [BatchItem(b"x", 0, b"p" * 32768), BatchItem(b"x", 2**31)])
def test_what_a_batch_cannot_hold_is_refused(item):
    with pytest.raises(LocalProtocolError):
        encode_batch([item])


@pytest.mark.parametrize(
    ("own", "shared", "joined"),
    [
        (b"", b"", b""),
        (b"a\x01b", b"", b"a\x01b"),
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_the_properties_of_the_batch_follow_those_of_the_message(own, shared, joined):
    assert join_properties(own, shared) == joined


def test_expanded_messages_share_all_but_body_flag_and_properties():
    batch = MessageRecord(
        "orders",
        RAW,
        b"CLUSTER\x01c1",
        queue_id=2,
        flag=99,
        sys_flag=sysflag.MULTI_TAGS,
        born_timestamp=1,
        born_host=b"12345678",
        store_host=b"87654321",
        reconsume_times=3,
        prepared_transaction_offset=42,
    )
    common = replace(batch, prepared_transaction_offset=0)
    assert expand(batch) == [
        replace(common, body=b"m0", flag=0, properties=b"TAGS\x01A\x02CLUSTER\x01c1"),
        replace(common, body=b"", flag=-1, properties=b"CLUSTER\x01c1"),
        replace(common, body=b"m2!!", flag=7, properties=b"KEYS\x01bk\x02CLUSTER\x01c1"),
    ]


def test_an_inner_batch_is_unwrapped_into_consecutive_messages():
    record = MessageRecord(
        "orders", RAW, b"INNER_NUM\x013", queue_offset=10, physical_offset=500, sys_flag=0x0C0 | sysflag.MULTI_TAGS
    )
    common = replace(record, sys_flag=sysflag.MULTI_TAGS)
    assert unwrap(record) == [
        replace(common, body=item.body, flag=item.flag, properties=item.properties, queue_offset=10 + number)
        for number, item in enumerate(ITEMS)
    ]


def test_a_compressed_inner_batch_is_opened_first():
    packed = compression.compress(RAW, sysflag.LZ4)
    record = MessageRecord("orders", packed, sys_flag=sysflag.with_compression(0x0C0, sysflag.LZ4))
    assert [one.body for one in unwrap(record)] == [item.body for item in ITEMS]
    assert {one.sys_flag for one in unwrap(record)} == {0}


@pytest.mark.parametrize("sys_flag", [0, sysflag.INNER_BATCH, sysflag.NEED_UNWRAP])
def test_a_record_that_is_not_to_be_unwrapped_stays_as_it_is(sys_flag):
    record = MessageRecord("orders", b"no batch", sys_flag=sys_flag)
    assert unwrap(record) == [record]


def test_an_inner_batch_that_is_damaged_is_an_error():
    with pytest.raises(CorruptRecord):
        unwrap(MessageRecord("orders", b"no batch", sys_flag=0x0C0))
