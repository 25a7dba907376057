"""The binary header: the layout and the rules of docs/spec/remoting.md 1.4."""

from __future__ import annotations

import struct

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.binary_header import decode, encode
from pyromq.protocol.command import Command, Language, SerializeType


def header(
    remark: bytes = b"", ext: bytes = b"", *, language: int = 0, r: int | None = None, e: int | None = None
) -> bytes:
    """A header of code 1 whose two lengths may lie."""
    head = struct.pack(">hBhiii", 1, language, 409, 2, 3, len(remark) if r is None else r)
    return head + remark + struct.pack(">i", len(ext) if e is None else e) + ext


def entry(key: bytes, value: bytes, *, k: int | None = None, v: int | None = None) -> bytes:
    key_size, value_size = len(key) if k is None else k, len(value) if v is None else v
    return struct.pack(">h", key_size) + key + struct.pack(">i", value_size) + value


def command(remark: str | None = None, ext: dict[str, str] | None = None) -> Command:
    return Command(1, Language.JAVA, 409, 2, 3, remark, ext, None, SerializeType.ROCKETMQ)


def test_the_helpers_agree_with_the_encoder():
    assert header(b"why", entry(b"a", b"1") + entry(b"b", b"2")) == encode(command("why", {"a": "1", "b": "2"}))


# What we take


def test_the_shortest_header_has_21_bytes():
    assert len(header()) == 21
    assert decode(header()) == command()


@pytest.mark.parametrize("size", range(21))
def test_a_shorter_one_is_refused(size):
    with pytest.raises(RemoteProtocolError):
        decode(header()[:size])


def test_a_header_cut_anywhere_is_refused():
    whole = header("wärum".encode(), entry(b"key", b"value") + entry("ü".encode(), b"x"))
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode(whole[:size])


def test_entries_are_read_until_the_block_ends_in_any_order():
    assert decode(header(ext=entry(b"b", b"2") + entry(b"a", b"1"))) == command(ext={"a": "1", "b": "2"})


def test_the_last_of_equal_keys_wins():
    assert decode(header(ext=entry(b"a", b"1") + entry(b"b", b"x") + entry(b"a", b"2"))).ext == {"a": "2", "b": "x"}


def test_an_empty_text_is_an_absent_one():
    assert decode(header(ext=entry(b"a", b"") + entry(b"", b"x") + entry(b"", b"") + entry(b"b", b"2"))).ext == {
        "b": "2"
    }
    assert decode(header(ext=entry(b"a", b""))).ext is None
    assert decode(header(b"")).remark is None


def test_an_empty_value_that_comes_last_takes_the_key_away():
    assert decode(header(ext=entry("ä".encode(), b"1") + entry("ä".encode(), b""))).ext is None
    assert decode(header(ext=entry(b"a", b"1") + entry(b"a", b"") + entry(b"a", b"3"))).ext == {"a": "3"}


def test_text_is_utf8_in_keys_values_and_remark():
    raw = entry("schlüssel".encode(), "错误".encode()) + entry(b"ascii", "😀".encode()) + entry("é".encode(), b"ascii")
    assert decode(header("错误".encode(), raw)) == command("错误", {"schlüssel": "错误", "ascii": "😀", "é": "ascii"})


def test_bytes_that_are_no_utf8_become_replacement_characters_as_in_java():
    assert decode(header(b"a\xff", entry(b"\xc3", b"x\xf0\x9f"))) == command("a\ufffd", {"\ufffd": "x\ufffd"})


@pytest.mark.parametrize("r", [-1, -(2**31), 4, 9, 2**31 - 1])
def test_a_remark_length_outside_of_the_header_is_refused(r):
    with pytest.raises(RemoteProtocolError, match="remark of"):
        decode(header(b"why", entry(b"a", b"1"), r=r)[:24])


@pytest.mark.parametrize("e", [8, 9, 2**31 - 1])
def test_an_ext_block_longer_than_the_header_is_refused(e):
    with pytest.raises(RemoteProtocolError):
        decode(header(ext=entry(b"a", b""), e=e))


@pytest.mark.parametrize("e", [-1, -(2**31)])
def test_a_negative_ext_length_means_no_block_as_in_java(e):
    assert decode(header(b"why", entry(b"a", b"1"), e=e)) == command("why")


def test_bytes_after_the_ext_block_are_ignored():
    assert decode(header(ext=entry(b"a", b"1")) + b"\xff\xff\xff") == command(ext={"a": "1"})
    assert decode(header() + b"\x00") == command()


@pytest.mark.parametrize(
    "block",
    [
        b"\x00",
        b"\x00\x01",
        b"\x00\x01a",
        b"\x00\x01a\x00\x00\x00",
        entry(b"a", b"1", k=-1),
        entry(b"a", b"1", k=2),
        entry(b"a", b"1", k=2**15 - 1),
        entry(b"a", b"1", k=-(2**15)),
        entry(b"a", b"1", v=2),
        entry(b"a", b"1", v=-1),
        entry(b"a", b"1", v=-7),
        entry(b"a", b"1", v=2**31 - 1),
        entry(b"a", b"1", v=-(2**31)),
        entry(b"a", b"1") + b"\x00",
    ],
)
def test_an_entry_that_runs_past_the_block_is_refused(block):
    with pytest.raises(RemoteProtocolError):
        decode(header(ext=block))
    with pytest.raises(RemoteProtocolError):  # neither may it lend bytes from behind the block
        decode(header(ext=block) + bytes(64))


def test_lengths_of_zero_do_not_loop_forever():
    assert decode(header(ext=bytes(6 * 10_000))) == command()


@pytest.mark.parametrize("byte", [14, 15, 127, 128, 255])
def test_an_unknown_language_byte_is_other(byte):
    assert decode(header(language=byte)).language is Language.OTHER


@pytest.mark.parametrize("language", Language)
def test_every_language_comes_back(language):
    assert decode(encode(Command(language=language))).language is language


# What we send


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (command("", {}), command()),
        (command(None, {"a": ""}), command()),
        (command(None, {"": "x", "b": "2"}), command(None, {"b": "2"})),
    ],
)
def test_what_is_empty_does_not_survive(given, read):
    assert decode(encode(given)) == read


@pytest.mark.parametrize(
    "unfit",
    [
        Command(32768),
        Command(200050),
        Command(-32769),
        Command(version=32768),
        Command(opaque=2**31),
        Command(flag=-(2**31) - 1),
        Command(ext={"k" * 32768: "v"}),
        Command(ext={"ä" * 16384: "v"}),
    ],
)
def test_what_the_layout_cannot_hold_is_not_sent(unfit):
    with pytest.raises(LocalProtocolError):
        encode(unfit)


def test_the_extremes_that_fit_come_back():
    for code, other in ((32767, 2**31 - 1), (-32768, -(2**31))):
        extreme = Command(code, Language.NODE_JS, code, other, other, "r", {"k" * 32767: "v" * 70_000})
        extreme.serialize = SerializeType.ROCKETMQ
        assert decode(encode(extreme)) == extreme


def test_text_that_is_no_unicode_is_not_sent():
    for unfit in (Command(remark="\ud800"), Command(ext={"a": "\udfff"}), Command(ext={"\udfff": "a"})):
        with pytest.raises(LocalProtocolError, match="not Unicode"):
            encode(unfit)
