"""The replication protocol of groups that fail over: bytes seen on RocketMQ 5.5.0, and what is no such protocol."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.auto_switch import (
    MAX_EPOCHS,
    MAX_FRAME_DATA,
    REPORT,
    TRANSFER,
    Epoch,
    FrameHead,
    Greeting,
    Hello,
    MasterReader,
    Piece,
    SlaveReader,
    show,
)


def hexed(text):
    return bytes.fromhex(text.replace(" ", ""))


FIRST = Epoch(1, 0)

# docs/spec/controller.md 6.2, recorded from RocketMQ 5.5.0
TO_MASTER = [
    (Hello(3), "00000001 0000 0000 0000000000000003"),
    (0, "00000002 0000000000000000"),
    (696, "00000002 00000000000002b8"),
    (922, "00000002 000000000000039a"),
]
TO_SLAVE = [
    (Greeting(696, (FIRST,)), "00000001 0000000c 00000000000002b8 00000001 00000001 0000000000000000"),
    (
        Greeting(1152, (FIRST, Epoch(2, 696), Epoch(3, 922))),
        (
            "00000001 00000024 0000000000000480 00000003"
            "00000001 0000000000000000 00000002 00000000000002b8 00000003 000000000000039a"
        ),
    ),
    (FrameHead(0, 0, FIRST, 696), "00000002 00000000 0000000000000000 00000001 0000000000000000 00000000000002b8"),
    (FrameHead(0, 696, FIRST, 696), "00000002 00000000 00000000000002b8 00000001 0000000000000000 00000000000002b8"),
    (FrameHead(0, -1, FIRST, 0), "00000002 00000000 ffffffffffffffff 00000001 0000000000000000 0000000000000000"),
    (FrameHead(696, 0, FIRST, 696), "00000002 000002b8 0000000000000000 00000001 0000000000000000 00000000000002b8"),
    (
        FrameHead(230, 922, Epoch(3, 922), 1152),
        "00000002 000000e6 000000000000039a 00000003 000000000000039a 0000000000000480",
    ),
]


@pytest.mark.parametrize(("value", "bytes_"), TO_MASTER)
def test_what_slaves_of_rocketmq_send(value, bytes_):
    wire = hexed(bytes_)
    assert SlaveReader().feed(wire) == [value]
    assert (value.encode() if isinstance(value, Hello) else REPORT.pack(TRANSFER, value)) == wire


@pytest.mark.parametrize(("value", "bytes_"), TO_SLAVE)
def test_what_masters_of_rocketmq_send(value, bytes_):
    wire = hexed(bytes_)
    assert value.encode() == wire
    if isinstance(value, Greeting):
        assert MasterReader().feed(wire) == [value]
    else:
        data = bytes(value.size)
        assert MasterReader().feed(wire + data) == [Piece(value, value.offset, memoryview(data))]


def test_flags_of_a_handshake():
    wire = Hello(7, is_learner=True, from_last_file=True).encode()
    assert wire == hexed("00000001 0001 0001 0000000000000007")
    assert SlaveReader().feed(wire) == [Hello(7, True, True)]


def test_a_handshake_has_the_newest_epochs_if_there_are_too_many():
    epochs = tuple(Epoch(number, number) for number in range(MAX_EPOCHS + 5))
    assert MasterReader().feed(Greeting(9999, epochs).encode()) == [Greeting(9999, epochs[5:])]


def test_an_empty_log_may_end_before_its_beginning():
    assert SlaveReader().feed(REPORT.pack(TRANSFER, -1)) == [0]
    assert MasterReader().feed(struct.pack(">iiqi", 1, 0, -1, -1)) == [Greeting(0, ())]


def test_epochs_are_shown_as_in_their_file():
    assert show((FIRST, Epoch(2, 696))) == "1-0, 2-696"
    assert show(()) == "none"


EPOCHS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=5, unique_by=lambda e: e[0])
GREETINGS = st.builds(
    lambda end, entries: Greeting(end, tuple(Epoch(*entry) for entry in sorted(entries))),
    st.integers(0, 2**63 - 1),
    EPOCHS,
)
FRAMES = st.builds(
    lambda offset, epoch, start, confirmed, data: (
        FrameHead(len(data), offset, Epoch(epoch, start), confirmed),
        data,
    ),
    st.integers(0, 2**62),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.binary(max_size=50),
)


def joined(found):
    """Frames as they were sent, whatever pieces their data came in."""
    whole: list[Any] = []
    for each in found:
        if isinstance(each, Piece) and each.offset != each.head.offset and whole:
            head, data = whole.pop()
            assert (head, each.offset) == (each.head, head.offset + len(data))
            whole.append((head, data + bytes(each.data)))
        else:
            whole.append(each if isinstance(each, Greeting) else (each.head, bytes(each.data)))
    return whole


@given(st.lists(GREETINGS | FRAMES, max_size=6), st.integers(1, 60))
def test_what_a_master_sends_may_come_in_any_pieces(sent, step):
    wire = b"".join(each.encode() if isinstance(each, Greeting) else each[0].encode() + each[1] for each in sent)
    reader = MasterReader()
    found = [each for at in range(0, len(wire), step) for each in reader.feed(wire[at : at + step])]
    assert joined(found) == sent


@given(
    st.lists(
        st.integers(0, 2**63 - 1) | st.builds(Hello, st.integers(0, 2**63 - 1), st.booleans(), st.booleans()),
        max_size=9,
    ),
    st.integers(1, 40),
)
def test_what_a_slave_sends_may_come_in_any_pieces(sent, step):
    wire = b"".join(each.encode() if isinstance(each, Hello) else REPORT.pack(TRANSFER, each) for each in sent)
    reader = SlaveReader()
    assert sent == [each for at in range(0, len(wire), step) for each in reader.feed(wire[at : at + step])]


@pytest.mark.parametrize(
    "wire",
    [
        struct.pack(">i", 0),
        struct.pack(">i", 3),
        b"GET / HTTP/1.1\r\n",
        struct.pack(">ihhq", 1, 2, 0, 3),
        struct.pack(">ihhq", 1, 0, -1, 3),
        struct.pack(">ihhq", 1, 0, 0, -3),
        struct.pack(">iq", 2, -2),
    ],
)
def test_what_no_slave_sends(wire):
    with pytest.raises(RemoteProtocolError):
        SlaveReader().feed(wire)


@pytest.mark.parametrize(
    "wire",
    [
        struct.pack(">i", 0),
        struct.pack(">i", 4),
        struct.pack(">iiqi", 1, 13, 0, 1),
        struct.pack(">iiqi", 1, -12, 0, 1),
        struct.pack(">iiqi", 1, (MAX_EPOCHS + 1) * 12, 0, 1),
        struct.pack(">iiqi", 1, 2**31 - 1, 0, 1),
        struct.pack(">iiqiiq", 1, 12, -2, 1, 1, 0),
        struct.pack(">iiqiiq", 1, 12, 0, 1, -1, 0),
        struct.pack(">iiqiiq", 1, 12, 0, 1, 1, -5),
        struct.pack(">iiqiiq", 1, 12, 0, 2, 1, 0),
        struct.pack(">iiqiiqiq", 1, 24, 0, 1, 2, 0, 1, 9),
        struct.pack(">iiqiqq", 2, -1, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, MAX_FRAME_DATA + 1, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 5, -1, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 5, 0, -1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, -2, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, 0, 1, 0, -2),
    ],
)
def test_what_no_master_sends(wire):
    with pytest.raises(RemoteProtocolError):
        MasterReader().feed(wire)


@given(st.binary(max_size=200), st.integers(1, 50), st.booleans())
def test_any_bytes_are_read_or_refused(data, step, as_transfer):
    wire = struct.pack(">i", 1 + as_transfer) + data
    for make in (SlaveReader, MasterReader):
        results: list[object] = []
        for size in (step, len(wire)):
            reader = make()
            found: list[object] = []
            try:
                for at in range(0, len(wire), size):
                    found += reader.feed(wire[at : at + size])
            except RemoteProtocolError:
                results.append("refused")
            else:
                results.append(joined(found) if make is MasterReader else found)
            assert sum(map(len, (getattr(reader, "_rest", b""), getattr(reader, "_head", b"")))) <= len(wire)
        assert results[0] == results[1]
