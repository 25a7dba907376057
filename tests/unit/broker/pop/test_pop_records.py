"""Checkpoints and acks, as RocketMQ 5.5.0 writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.pop.records import Ack, Checkpoint, Key, ack_properties, checkpoint_properties, read_record
from pyromq.errors import CorruptRecord
from pyromq.protocol.record import MessageRecord

# Bodies and properties as a 5.5.0 broker stored them, for a pop of three messages and acks of the first, and of two.
CK = (
    b'{"bm":0,"bn":"shared","c":"takers","d":[0,1,2],"it":5000,"n":3,"pt":1794766418870,"q":0,'
    b'"reviveTime":1794766423870,"ro":0,"so":0,"sp":false,"t":"handed"}'
)
ACK = b'{"ao":0,"bn":"shared","c":"takers","pt":1794766418870,"q":0,"so":0,"t":"handed"}'
BATCH = b'{"ao":-1,"aol":[1,2],"bn":"shared","c":"takers","pt":1794766418870,"q":0,"so":0,"t":"handed"}'
CK_PROPERTIES = {
    "TAGS": "ck",
    "UNIQ_KEY": "handed@0@0@takers@1794766418870@shared@ck",
    "TIMER_DELIVER_MS": "1794766422870",
}
ACK_PROPERTIES = {
    "TAGS": "ack",
    "UNIQ_KEY": "handed@0@0@takers@1794766418870@shared@ack",
    "TIMER_DELIVER_MS": "1794766423870",
}
# Members that follow from others, or say what is so without them.
LEFT_OUT = (b'"reviveTime":1794766423870,', b'"sp":false,')
KEY = Key("handed", "takers", 0, 0, 1_794_766_418_870)


def record(tag: str, body: bytes) -> MessageRecord:
    return MessageRecord("rmq_sys_REVIVE_LOG_c", body, b"TAGS\x01" + tag.encode())


def test_records_of_rocketmq_are_read():
    checkpoint = read_record(record("ck", CK))
    assert isinstance(checkpoint, Checkpoint)
    assert (checkpoint.key, checkpoint.offsets, checkpoint.revive_time) == (KEY, [0, 1, 2], 1_794_766_423_870)
    ack, batch = read_record(record("ack", ACK)), read_record(record("bAck", BATCH))
    assert isinstance(ack, Ack)
    assert isinstance(batch, Ack)
    assert (ack.key, ack.all_offsets, batch.key, batch.all_offsets) == (KEY, [0], KEY, [1, 2])


def test_what_we_write_is_what_rocketmq_would():
    checkpoint = read_record(record("ck", CK))
    assert isinstance(checkpoint, Checkpoint)
    wanted = CK
    for member in LEFT_OUT:
        wanted = wanted.replace(member, b"")
    assert checkpoint.encode() == wanted
    assert checkpoint_properties(checkpoint) == CK_PROPERTIES
    ack, batch = Ack.of(KEY, [0], "shared"), Ack.of(KEY, [1, 2], "shared")
    assert (ack.encode(), batch.encode()) == (ACK, BATCH)
    assert ack_properties(ack, checkpoint.revive_time) == ACK_PROPERTIES
    assert ack_properties(batch, checkpoint.revive_time)["TAGS"] == "bAck"


def test_a_checkpoint_knows_what_was_acknowledged_before_it_was_stored():
    body = CK.replace(b'"bm":0', b'"bm":5')
    checkpoint = read_record(record("ck", body))
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.unacked == {1}


def test_a_checkpoint_of_old_has_no_distances():
    checkpoint = read_record(record("ck", CK.replace(b'"d":[0,1,2],', b"")))
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.offsets == [0, 1, 2]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}",
        CK.replace(b'"n":3', b'"n":4'),
        CK.replace(b'"n":3', b'"n":2147483647').replace(b'"d":[0,1,2],', b""),
        CK.replace(b'"n":3', b'"n":-1').replace(b'"d":[0,1,2],', b""),
        CK.replace(b'"so":0', b'"so":-5'),
        CK.replace(b"[0,1,2]", b"[0,-1,2]"),
        CK.replace(b'"t":"handed"', b'"t":""'),
        CK.replace(b'"c":"takers"', b'"c":"a\\u0001b"'),
    ],
)
def test_a_checkpoint_that_is_none_is_corrupt(body):
    with pytest.raises(CorruptRecord):
        read_record(record("ck", body))


@given(st.sampled_from(["ck", "ack", "bAck", "x", ""]), st.binary(max_size=40) | st.sampled_from([CK, ACK, BATCH]))
def test_any_bytes_are_a_record_or_corrupt(tag, body):
    try:
        said = read_record(record(tag, body))
    except CorruptRecord:
        return
    assert said is None or isinstance(said, Checkpoint | Ack)
