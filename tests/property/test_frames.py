"""Frames and headers for any content: what is written is read back, however the bytes arrive."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import binary_header, json_header
from pyromq.protocol.command import Command, Language, SerializeType
from pyromq.protocol.frame import FrameDecoder, encode

I32 = st.integers(-(2**31), 2**31 - 1)
I16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(max_size=20)  # hypothesis leaves surrogates out: they are no text that UTF-8 could carry
BODY = st.none() | st.binary(min_size=1, max_size=40)


def commands(serialize: SerializeType) -> st.SearchStrategy[Command]:
    code = I32 if serialize is SerializeType.JSON else I16
    return st.builds(
        Command,
        code=code,
        language=st.sampled_from(Language),
        version=code,
        opaque=I32,
        flag=I32,
        remark=st.none() | TEXT,
        ext=st.none() | st.dictionaries(TEXT, TEXT, max_size=5),
        body=BODY,
        serialize=st.just(serialize),
    )


any_command = st.sampled_from(SerializeType).flatmap(commands)


def as_read(command: Command) -> Command:
    """What a peer reads of `command`: the binary header cannot tell an empty text from an absent one."""
    if command.serialize is SerializeType.JSON:
        return command
    ext = {key: value for key, value in (command.ext or {}).items() if key and value}
    return replace(command, remark=command.remark or None, ext=ext or None)


def take_all(decoder: FrameDecoder) -> list[Command]:
    taken = []
    while (command := decoder.next()) is not None:
        taken.append(command)
    return taken


@given(any_command)
def test_a_command_comes_back_as_it_was_sent(command):
    decoder = FrameDecoder()
    decoder.feed(encode(command))
    assert take_all(decoder) == [as_read(command)]
    assert decoder.pending == 0


@given(any_command)
def test_what_was_read_is_written_and_read_the_same_again(command):
    read = as_read(command)
    decoder = FrameDecoder()
    decoder.feed(encode(read))
    assert take_all(decoder) == [read]


@given(st.lists(any_command, max_size=5), st.data())
def test_frames_do_not_depend_on_how_the_bytes_arrive(sent, data):
    wire = b"".join(map(encode, sent))
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=8).map(sorted))
    decoder = FrameDecoder()
    read = []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        decoder.feed(wire[start:end])
        read += take_all(decoder)
        assert decoder.pending == end - sum(len(encode(command)) for command in sent[: len(read)])
    assert read == list(map(as_read, sent))


@given(st.lists(any_command, min_size=1, max_size=4), st.integers(1, 9), st.lists(st.integers(0, 3), min_size=1))
def test_nor_on_when_they_are_asked_for(sent, step, pattern):
    """A reader may take no command, some, or all after each read; at the end it has them all, in order."""
    wire = b"".join(map(encode, sent))
    decoder = FrameDecoder()
    read: list[Command] = []
    for number, start in enumerate(range(0, len(wire), step)):
        decoder.feed(wire[start : start + step])
        asked = [decoder.next() for _ in range(pattern[number % len(pattern)])]
        read += [command for command in asked if command is not None]
    assert read + take_all(decoder) == list(map(as_read, sent))


def outcome(wire: bytes, step: int) -> tuple[list[Command], bool]:
    """The commands that come out before the stream is refused, if it is."""
    decoder = FrameDecoder(max_frame=4096)
    read = []
    try:
        for start in range(0, len(wire), step):
            decoder.feed(wire[start : start + step])
            while (command := decoder.next()) is not None:
                read.append(command)
    except RemoteProtocolError:
        return read, True
    return read, False


@given(st.lists(any_command, max_size=3), st.binary(max_size=40), st.integers(1, 9))
def test_garbage_is_refused_at_the_same_command_however_it_arrives(sent, garbage, step):
    wire = b"".join(map(encode, sent)) + garbage
    assert outcome(wire, step) == outcome(wire, len(wire) + 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_an_error(data):
    for decode in (json_header.decode, json_header.decode_tolerant, binary_header.decode):
        try:
            decode(data)
        except RemoteProtocolError:
            continue


# JSON headers as peers may write them: members of any type, in any order, with blanks.
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
# Integer members are mostly right here, since a wrong one ends the reading of all others.
integer = I32 | I32.map(str)
ext_fields = st.dictionaries(TEXT, st.integers() | scalars | values, min_size=1, max_size=3)
members = st.fixed_dictionaries(
    {"extFields": ext_fields | st.none() | st.dictionaries(TEXT, TEXT, max_size=3)},
    optional={
        "code": integer,
        "version": integer,
        "opaque": integer,
        "flag": integer,
        "language": st.none() | TEXT | st.sampled_from(Language).map(str) | st.integers(0, 13),
        "remark": st.none() | TEXT | values,
        "serializeTypeCurrentRPC": st.just("JSON"),
        "(body)": values,
        "(serialize)": values,
        "junk": values,
    },
)
any_members = members | st.dictionaries(st.sampled_from(["code", "language", "extFields", "remark", "flag"]), values)


@given(any_members, st.booleans(), st.sampled_from([None, 0, 2]))
def test_strict_and_tolerant_decoding_agree_wherever_the_strict_one_succeeds(header, ascii_only, indent):
    data = json.dumps(header, ensure_ascii=ascii_only, indent=indent).encode()
    try:
        strict = json_header._decode_strict(data)
    except ValueError:
        return
    strict.body, strict.serialize = None, SerializeType.JSON
    assert json_header.decode_tolerant(data) == strict
    assert json_header.decode(data) == strict


@given(members)
def test_a_tolerantly_read_header_is_written_strictly(header):
    command = json_header.decode(json.dumps(header).encode())
    assert json_header._decode_strict(json_header.encode(command)) == command


@given(ext_fields)
def test_every_ext_value_becomes_the_text_java_would_have_sent(ext):
    command = json_header.decode_tolerant(json.dumps({"extFields": ext}).encode())
    assert command.ext is not None
    assert command.ext.keys() == {key for key, value in ext.items() if value is not None}
    for key, text in command.ext.items():
        value = ext[key]
        if isinstance(value, str):
            assert text == value
        else:
            assert text == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("serialize", SerializeType)
@given(data=st.data())
def test_a_header_cut_short_is_an_error_or_waits(serialize, data):
    command = data.draw(commands(serialize))
    wire = encode(command)
    cut = data.draw(st.integers(0, len(wire) - 1))
    decoder = FrameDecoder()
    decoder.feed(wire[:cut])
    assert decoder.next() is None
    assert decoder.pending == cut


def binary_entry(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value


KEYS = st.sampled_from([b"a", b"b", b"g", b"h", b"i", b"j", b"", b"\0\1g\0\0\0\r"])
VALUES = st.sampled_from([b"", b"0", b"1700000000000", b"1700000000000\0\1h\0\0\0\0010\0\1i", "ä".encode(), b"\xff"])
ENTRIES = st.lists(st.builds(binary_entry, KEYS, VALUES), max_size=4).map(b"".join)
SEND = st.builds(
    lambda time, flag, text: binary_entry(b"g", time) + binary_entry(b"h", flag) + binary_entry(b"i", text),
    st.sampled_from([b"1700000000000", b"170000000000x"]),
    st.sampled_from([b"0", b"x", b"12"]),
    st.sampled_from(["", "TAGS\1ä", "x" * 200]).map(str.encode),
)


@given(ENTRIES, SEND, ENTRIES, st.integers(0, 3), st.data())
def test_the_fields_of_a_send_are_read_as_any_others(front, send, back, cut, data):
    raw = bytearray(front + send + back)
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    end = len(raw) - cut

    def outcome(decode):
        try:
            return decode(bytes(raw), 0, end) or None
        except RemoteProtocolError as exc:
            return str(exc)

    # Twice, since the second time some of it is remembered.
    expected = outcome(binary_header._decode_entries)
    assert outcome(binary_header._decode_ext) == expected
    assert outcome(binary_header._decode_ext) == expected


def test_what_is_remembered_of_sends_is_bounded():
    for number in range(3000):
        raw = b"".join(
            binary_entry(key, value)
            for key, value in (
                (b"b", b"t%d" % number),
                (b"g", b"1" * 13),
                (b"h", b"0"),
                (b"i", b"x"),
                (b"j", b"0" * 600),
            )
        )
        assert binary_header._decode_ext(raw, 0, len(raw)) == {
            "b": f"t{number}",
            "g": "1" * 13,
            "h": "0",
            "i": "x",
            "j": "0" * 600,
        }
    assert len(binary_header._remembered) <= 1024
    assert max(map(len, binary_header._remembered)) <= 512
