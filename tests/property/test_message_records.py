"""Records, properties, bodies, batches and ids: what goes in comes out, and the worst any bytes do is CorruptRecord."""

from __future__ import annotations

import contextlib
from datetime import UTC

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from pyromq.errors import CorruptRecord, RemoteProtocolError
from pyromq.protocol import batch, compression, hashing, ids, properties, record_crc, sysflag
from pyromq.protocol.message import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    HeadKind,
    MessageExt,
    MessageRecord,
    body_crc,
    decode_record,
    decode_records,
    encode_record,
    patch_offsets,
    read_head,
)

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
kinds = st.sampled_from([sysflag.ZLIB, sysflag.LZ4, sysflag.ZSTD])
# Separators often, so that properties take odd shapes.
property_text = st.text(st.sampled_from("\x01\x02aBé😀") | st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def records(draw) -> MessageRecord:
    """Any record that can be stored, with the CRC and the host bits that the encoder would give it."""
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V2]))
    longest = 127 if magic == MAGIC_V1 else 255
    topic = draw(st.text(max_size=longest).filter(lambda text: len(text.encode()) <= longest))
    body = draw(st.binary(max_size=200))
    born_host, store_host = draw(hosts), draw(hosts)
    return MessageRecord(
        topic,
        body,
        draw(st.binary(max_size=100)),
        queue_id=draw(i32),
        flag=draw(i32),
        queue_offset=draw(i64),
        physical_offset=draw(i64),
        sys_flag=sysflag.with_hosts(draw(i32), born_host, store_host),
        born_timestamp=draw(i64),
        born_host=born_host,
        store_timestamp=draw(i64),
        store_host=store_host,
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
        body_crc=body_crc(body),
        magic=magic,
    )


def outcome(decode, *args, **options):
    """What `decode` makes of bytes: a value, or the CorruptRecord it raises. Anything else fails the test."""
    try:
        return decode(*args, **options)
    except CorruptRecord as corrupt:
        return corrupt


def use(record: MessageRecord) -> None:
    """Look at everything a consumer may look at."""
    message = MessageExt(record)
    assert message.msg_id
    assert message.real_topic == record.topic or message.properties
    _ = message.tags, message.keys, message.transaction_id, record.born_address, record.store_address, repr(message)
    assert isinstance(outcome(getattr, message, "body"), bytes) or record.sys_flag & sysflag.COMPRESSED


@given(records())
def test_a_record_comes_back_as_it_was(record):
    raw = encode_record(record)
    assert len(raw) == record.store_size
    assert decode_record(raw) == record
    assert encode_record(decode_record(raw)) == raw
    use(record)


@given(st.lists(records(), max_size=4))
def test_records_back_to_back_come_back_in_order(several):
    raw = b"".join(map(encode_record, several))
    assert decode_records(raw) == decode_records(memoryview(raw)) == several
    pos = 0
    for record in several:
        kind, size = read_head(raw, pos)
        assert (kind, size) == (HeadKind.RECORD, record.store_size)
        assert decode_record(raw, pos) == record
        pos += size


@given(records(), i64, i64, i64)
def test_a_patched_record_is_the_record_encoded_with_those_values(record, queue_offset, physical_offset, now):
    staged = bytearray(encode_record(record))
    patch_offsets(staged, 0, queue_offset, physical_offset, now)
    final = replace(record, queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp=now)
    assert staged == encode_record(final)


@given(records(), st.data())
def test_a_flipped_bit_is_found_or_leaves_the_body_alone(record, data):
    raw = bytearray(encode_record(record))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    decoded = outcome(decode_record, raw)
    if isinstance(decoded, CorruptRecord):
        assert decoded.offset == 0
    else:
        assert decoded.body == record.body
        use(decoded)


@given(records(), st.data())
def test_a_record_cut_short_is_found(record, data):
    raw = encode_record(record)
    with pytest.raises(CorruptRecord):
        decode_record(raw[: data.draw(st.integers(0, len(raw) - 1))])


@st.composite
def almost_records(draw) -> bytes:
    """Bytes that get far into the decoder: a record partly overwritten, or noise with a believable start."""
    if draw(st.booleans()):
        raw = bytearray(encode_record(draw(records())))
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(raw) - 1))
            patch = draw(st.binary(min_size=1, max_size=8))
            raw[at : at + len(patch)] = patch
        return bytes(raw)
    noise: bytes = draw(st.binary(max_size=300))
    size = draw(st.integers(0, 320) | i32)
    return SIZE_AND_MAGIC.pack(size, draw(st.sampled_from([MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0]))) + noise


@given(st.binary(max_size=400) | almost_records(), st.integers(0, 20), st.booleans())
def test_any_bytes_are_a_record_or_corrupt(raw, pos, check_crc):
    record = outcome(decode_record, raw, pos, check_crc=check_crc)
    if isinstance(record, CorruptRecord):
        assert record.offset == pos
    else:
        use(record)
    head = outcome(read_head, raw, pos)
    if isinstance(head, CorruptRecord):
        assert head.offset == pos
    else:
        kind, size = head
        assert (size >= SIZE_AND_MAGIC.size) == (kind is not HeadKind.END)
    several = outcome(decode_records, raw)
    if isinstance(several, CorruptRecord):
        assert 0 <= several.offset < len(raw)
    else:
        assert b"".join(map(encode_record, several)) == raw or "\ufffd" in "".join(one.topic for one in several)
    assert record_crc.verify(raw) in (None, True, False)


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1)))
def test_properties_come_back_as_they_were(mapping):
    clean = {
        name.replace("\x01", "").replace("\x02", "") or "n": value.replace("\x02", "") or "v"
        for name, value in mapping.items()
    }
    text = properties.render(clean)
    assert properties.parse(text) == properties.parse(text + "\x02") == clean
    assert not text.endswith("\x02")
    assert properties.parse(properties.decode(properties.encode(text))) == clean


@given(property_text)
def test_parsing_what_was_parsed_changes_nothing(text):
    parsed = properties.parse(text)
    assert all(name and value for name, value in parsed.items())
    assert properties.parse(properties.render(parsed)) == parsed


@given(property_text, st.text(st.sampled_from("aBé😀"), min_size=1, max_size=3))
@example("a\x01\x02a\x01\x01a\x01", "a")
def test_finding_one_property_agrees_with_parsing_all(text, name):
    raw = text.encode()
    parsed = properties.parse(text)
    for wanted in [name, *parsed]:
        value = properties.find(raw, wanted.encode())
        assert (None if value is None else value.decode()) == parsed.get(wanted)


@given(st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"aa", b"\xff", b"\xe9"]), max_size=30).map(b"".join))
def test_finding_agrees_with_parsing_where_bytes_are_no_text(raw):
    parsed = properties.parse(properties.decode(raw))
    for name in ("a", "aa"):
        value = properties.find(raw, name.encode())
        assert (None if value is None else properties.decode(value)) == parsed.get(name)


@given(st.binary(max_size=2000), kinds, st.integers(0, 9))
def test_a_compressed_body_comes_back(body, kind, level):
    flag = sysflag.with_compression(0, kind)
    packed = compression.compress(body, kind, level)
    assert compression.decompress(packed, flag) == body
    assert compression.decompress(packed, flag, limit=len(body)) == body
    if body:
        with pytest.raises(CorruptRecord):
            compression.decompress(packed, flag, limit=len(body) - 1)


@given(st.binary(min_size=1, max_size=500), kinds, st.data())
def test_any_bytes_decompress_within_the_limit_or_are_corrupt(body, kind, data):
    packed = bytearray(compression.compress(body, kind))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at : data.draw(st.integers(at, len(packed)))] = data.draw(st.binary(max_size=8))
    plain = outcome(compression.decompress, bytes(packed), sysflag.with_compression(0, kind), limit=1000)
    assert isinstance(plain, CorruptRecord) or len(plain) <= 1000


@given(st.binary(max_size=64), i32)
def test_any_flag_on_any_body_is_a_body_or_corrupt(body, sys_flag):
    plain = outcome(compression.decompress, body, sys_flag, limit=1000)
    if not sys_flag & sysflag.COMPRESSED:
        assert plain == body
    else:
        assert isinstance(plain, CorruptRecord) or len(plain) <= 1000


batch_items = st.builds(batch.BatchItem, st.binary(max_size=40), i32, st.binary(max_size=40))


@given(st.lists(batch_items, min_size=1, max_size=5), records())
def test_a_batch_comes_back_and_expands_to_as_many_records(items, sent):
    raw = batch.encode_batch(items)
    assert batch.decode_batch(raw) == items
    expanded = batch.expand(replace(sent, body=raw))
    assert [(one.body, one.flag) for one in expanded] == [(item.body, item.flag) for item in items]
    for item, one in zip(items, expanded, strict=True):
        own, shared = (properties.parse(properties.decode(raw)) for raw in (item.properties, sent.properties))
        assert properties.parse(properties.decode(one.properties)) == own | shared
        assert decode_record(encode_record(one)).body == item.body


@given(st.binary(max_size=200) | st.lists(batch_items, min_size=1, max_size=3).map(batch.encode_batch), st.data())
def test_any_bytes_are_a_batch_or_corrupt(raw, data):
    if raw and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + data.draw(st.binary(min_size=1, max_size=4)) + raw[at + 1 :]
    items = outcome(batch.decode_batch, raw)
    if isinstance(items, CorruptRecord):
        assert 0 <= items.offset <= len(raw)
    else:
        assert sum(item.size for item in items) == len(raw)


@given(st.text(st.characters(), max_size=60))
def test_the_string_hash_is_javas(text):
    utf16 = text.encode("utf-16-be", "surrogatepass")
    expected = 0
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        expected = 31 * expected + 256 * high + low
    assert hashing.java_hash(text) % 2**32 == expected % 2**32
    assert -(2**31) <= hashing.java_hash(text) < 2**31
    assert 0 <= hashing.index_hash(text) < 2**31


@given(hosts, st.integers(0, 2**63 - 1))
def test_an_offset_message_id_comes_back(host, offset):
    text = ids.encode_offset_message_id(host, offset)
    assert len(text) in (32, 56)
    assert ids.decode_offset_message_id(text) == (host, offset)


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 2**22),
    st.integers(0, 2**32 - 1),
    st.integers(946_684_800_000, 4_102_444_800_000),
)
def test_a_uniq_key_tells_its_time_as_long_as_the_month_lasts(ip, pid, number, now):
    key = ids.decode_uniq_key(ids.UniqKeys(ip, pid, number, clock=lambda: now, zone=UTC).next())
    assert (key.ip, key.pid, key.number, key.counter) == (ip, pid % 2**16, number, 0)
    assert key.sent_at(now, UTC) == now


@given(st.text(max_size=60) | st.binary(min_size=16, max_size=28).map(bytes.hex))
def test_any_text_is_an_id_or_refused(text):
    for decode in (ids.decode_offset_message_id, ids.decode_uniq_key):
        with contextlib.suppress(RemoteProtocolError):
            decode(text)
