"""Frames: limits, pieces, and what the decoder holds."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.command import Body, Command, SerializeType
from pyromq.protocol.frame import MAX_FRAME, SMALL_BODY, FrameDecoder, OversizedRequest, encode, encode_parts

BOTH = pytest.mark.parametrize("serialize", SerializeType)


def head(size: int, kind: int = 0, header_size: int = 2) -> bytes:
    return struct.pack(">iI", size, kind << 24 | header_size)


def decode(wire: bytes, max_frame: int = MAX_FRAME) -> Command | None:
    decoder = FrameDecoder(max_frame)
    decoder.feed(wire)
    return decoder.next()


# Limits


@BOTH
def test_a_frame_of_exactly_the_limit_is_sent_and_taken(serialize):
    command = Command(105, body=b"x" * 50, serialize=serialize)
    wire = encode(command)
    assert encode(command, max_frame=len(wire)) == wire
    assert decode(wire, max_frame=len(wire)) == command


@BOTH
def test_a_frame_one_byte_over_the_limit_is_neither_sent_nor_taken(serialize):
    command = Command(105, body=b"x" * 50, serialize=serialize)
    wire = encode(command)
    with pytest.raises(LocalProtocolError, match=f"frame of {len(wire)} bytes is larger than {len(wire) - 1}"):
        encode(command, max_frame=len(wire) - 1)
    with pytest.raises(RemoteProtocolError, match=f"length {len(wire) - 4} "):
        decode(wire, max_frame=len(wire) - 1)


def test_the_limit_is_16_mib_with_the_length_field():
    assert MAX_FRAME == 16_777_216
    assert decode(head(16_777_212)) is None
    with pytest.raises(RemoteProtocolError):
        decode(head(16_777_213))


def test_a_frame_of_16_mib_is_sent_in_pieces_and_comes_back_whole():
    overhead = len(encode(Command(11)))
    body = bytes(MAX_FRAME - overhead)
    parts = encode_parts(Command(11, body=body))
    assert sum(map(len, parts)) == MAX_FRAME
    decoder = FrameDecoder()
    for part in parts:
        decoder.feed(bytes(part))
    command = decoder.next()
    assert command is not None
    assert command.body == body
    with pytest.raises(LocalProtocolError):
        encode_parts(Command(11, body=[body, b"x"]))


def test_a_header_too_long_for_its_length_field_is_not_sent_however_large_frames_may_be():
    with pytest.raises(LocalProtocolError, match="header of"):
        encode(Command(1, remark="x" * (1 << 24)), max_frame=64 * 1024 * 1024)


def test_a_length_alone_reserves_no_memory():
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(head(MAX_FRAME - 4, header_size=MAX_FRAME - 8))
        assert decoder.next() is None
        assert tracemalloc.get_traced_memory()[1] < 4096
    finally:
        tracemalloc.stop()


# Malformed frames


@pytest.mark.parametrize("size", [3, 0, -1, -(2**31), 2**31 - 1, MAX_FRAME - 3])
def test_an_illegal_length_is_refused_by_its_four_bytes(size):
    with pytest.raises(RemoteProtocolError, match="frame length"):
        decode(struct.pack(">i", size))


@pytest.mark.parametrize("kind", [2, 3, 0x16, 0xFF])
def test_an_unknown_serialize_type_is_refused_by_its_byte(kind):
    with pytest.raises(RemoteProtocolError, match=f"serialize type {kind}"):
        decode(head(100, kind)[:5])
    with pytest.raises(RemoteProtocolError, match=f"serialize type {kind}"):
        decode(head(6, kind) + b"{}")


@pytest.mark.parametrize("kind", [0, 1])
def test_a_header_longer_than_its_frame_is_refused_by_its_length(kind):
    assert decode(head(100, kind, 96)) is None
    with pytest.raises(RemoteProtocolError, match="header of 97 bytes in a frame of 100"):
        decode(head(100, kind, 97))


@pytest.mark.parametrize("kind", [0, 1])
def test_a_frame_without_a_header_is_refused(kind):
    with pytest.raises(RemoteProtocolError):
        decode(head(4, kind, 0))
    with pytest.raises(RemoteProtocolError):
        decode(head(100, kind, 0))  # no need to wait for the body


def test_a_bad_head_is_refused_also_when_it_comes_after_a_partial_one():
    decoder = FrameDecoder()
    decoder.feed(head(1000)[:6])
    assert decoder.next() is None
    decoder.feed(struct.pack(">H", 997))
    with pytest.raises(RemoteProtocolError, match="header of 997"):
        decoder.next()


@pytest.mark.parametrize("header", [b"", b"nonsense", b"[]", b"{", b"\x00" * 21])
def test_a_header_that_does_not_decode_is_refused(header):
    with pytest.raises(RemoteProtocolError):
        decode(head(4 + len(header), 0, len(header)) + header)


def test_a_binary_header_that_does_not_decode_is_refused():
    with pytest.raises(RemoteProtocolError):
        decode(head(24, 1, 20) + bytes(20))


def test_an_empty_json_object_is_a_legal_header():
    assert decode(head(6) + b"{}") == Command(0, version=0, flag=0, opaque=0)


# Bodies


@BOTH
def test_no_bytes_mean_no_body(serialize):
    for body in (None, b"", bytearray(), memoryview(b""), [], [b"", b""]):
        wire = encode(Command(105, body=body, serialize=serialize))
        assert wire == encode(Command(105, serialize=serialize))
        command = decode(wire)
        assert command is not None
        assert command.body is None


@BOTH
def test_a_body_is_sent_the_same_in_one_piece_or_in_many(serialize):
    wire = encode(Command(11, body=b"abcdef", serialize=serialize))
    bodies: list[Body] = [bytearray(b"abcdef"), memoryview(b"abcdef"), [b"ab", memoryview(b"cdef")], (b"abcdef",)]
    for body in bodies:
        assert encode(Command(11, body=body, serialize=serialize)) == wire


def test_pieces_of_a_body_are_passed_on_uncopied():
    log = memoryview(bytes(range(100)))
    body = [log[10:20], log[50:90]]
    first, *rest = encode_parts(Command(11, body=body))
    assert rest[0] is body[0]
    assert rest[1] is body[1]
    assert first[:4] == (len(first) - 4 + 50).to_bytes(4, "big")


def test_a_view_of_wider_items_counts_its_bytes():
    view = memoryview(struct.pack("4i", 1, 2, 3, 4)).cast("i")
    command = decode(encode(Command(11, body=view)))
    assert command is not None
    assert command.body == view.tobytes()


# The decoder


def test_a_reader_can_stop_between_two_commands_and_take_the_rest_later():
    first, second, third = (Command(code, body=bytes([code])) for code in (1, 2, 3))
    decoder = FrameDecoder()
    decoder.feed(encode(first) + encode(second))
    assert decoder.next() == first
    assert decoder.pending == len(encode(second))
    decoder.feed(encode(third))
    assert decoder.next() == second
    assert decoder.next() == third
    assert decoder.next() is None
    assert decoder.pending == 0


def test_pending_counts_what_waits_for_the_rest_of_its_frame():
    wire = encode(Command(105, body=b"hello"))
    decoder = FrameDecoder()
    for count, byte in enumerate(wire[:-1], 1):
        decoder.feed(bytes([byte]))
        assert decoder.next() is None
        assert decoder.pending == count


def test_bytes_fed_before_anybody_asks_are_not_lost():
    wire = encode(Command(1)) + encode(Command(2))
    decoder = FrameDecoder()
    for byte in wire:
        decoder.feed(bytes([byte]))
    assert decoder.next() == Command(1)
    assert decoder.next() == Command(2)
    assert decoder.next() is None


def test_feeding_nothing_changes_nothing():
    wire = encode(Command(1))
    decoder = FrameDecoder()
    for piece in (b"", wire[:7], b"", wire[7:], b""):
        decoder.feed(piece)
    assert decoder.next() == Command(1)


def test_nothing_of_a_taken_command_is_kept():
    """A read buffer kept by each of ten thousand idle connections would be the memory of the server."""
    decoder = FrameDecoder()
    wire = encode(Command(1, body=bytes(1 << 20)))
    decoder.feed(wire)
    tracemalloc.start()
    try:
        command = decoder.next()
        assert decoder.next() is None
        del command, wire
        assert tracemalloc.get_traced_memory()[0] < 4096
        assert decoder._buffer == b""
    finally:
        tracemalloc.stop()


def test_a_large_frame_in_small_pieces_comes_back_whole():
    body = bytes(range(256)) * 4096
    wire = encode(Command(10, body=body))
    decoder = FrameDecoder()
    for start in range(0, len(wire), 1000):
        assert decoder.next() is None
        decoder.feed(wire[start : start + 1000])
    command = decoder.next()
    assert command is not None
    assert command.body == body


# --- requests with too large a body


def bounded(limits, max_frame=MAX_FRAME):
    return FrameDecoder(max_frame, lambda code: limits.get(code, 0))


def test_a_request_with_too_large_a_body_is_refused_when_its_header_is_there():
    data = encode(Command.request(34, body=bytes(SMALL_BODY + 1)))
    decoder = bounded({})
    decoder.feed(data[:300])
    with pytest.raises(OversizedRequest) as refused:
        decoder.next()
    assert (refused.value.request.code, refused.value.size) == (34, SMALL_BODY + 1)
    assert decoder.pending == 0


@pytest.mark.parametrize("step", [1000, 65536, 1 << 20])
def test_the_rest_of_a_refused_request_is_dropped_and_the_next_one_read(step):
    data = encode(Command.request(34, body=bytes(300_000))) + encode(Command.request(35, body=b"next"))
    decoder = bounded({})
    refused, commands, most = 0, [], 0
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
        while True:
            try:
                command = decoder.next()
            except OversizedRequest:
                refused += 1
                continue
            if command is None:
                break
            commands.append(command)
        most = max(most, decoder.pending)
    assert refused == 1
    assert [(command.code, command.body) for command in commands] == [(35, b"next")]
    assert most < 1000


@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_a_body_within_its_bound_a_small_one_and_a_reply_are_taken(step):
    reply = Command.request(34, body=bytes(200_000))
    reply.flag = 1
    sent = [Command.request(10, body=bytes(200_000)), Command.request(34, body=bytes(SMALL_BODY)), reply]
    data = b"".join(map(encode, sent))
    decoder = bounded({10: 200_000})
    taken = []
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
        while (command := decoder.next()) is not None:
            taken.append(len(command.body_bytes))
    assert taken == [200_000, SMALL_BODY, 200_000]
