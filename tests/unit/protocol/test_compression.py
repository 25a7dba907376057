from __future__ import annotations

import bz2
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from pyromq.errors import CorruptRecord, LocalProtocolError
from pyromq.protocol import sysflag
from pyromq.protocol.compression import DEFAULT_LIMIT, compress, decompress

KINDS = [
    pytest.param(sysflag.ZLIB, id="zlib"),
    pytest.param(sysflag.LZ4, id="lz4"),
    pytest.param(sysflag.ZSTD, id="zstd"),
]
BODY = b"".join(b"%d," % number for number in range(30_000))


def flag(kind: int) -> int:
    return sysflag.with_compression(0, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0, 1, 5, 9])
def test_a_body_comes_back_from_every_kind_and_level(kind, level):
    assert decompress(compress(BODY, kind, level), flag(kind)) == BODY


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_body_can_be_compressed(kind):
    assert decompress(compress(b"", kind), flag(kind)) == b""


def test_a_body_that_is_not_compressed_is_returned_as_it_is():
    assert decompress(BODY, sysflag.MULTI_TAGS | 0x300) is BODY


def test_a_type_of_zero_is_zlib():
    assert decompress(zlib.compress(BODY), sysflag.COMPRESSED) == BODY


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_type_is_an_error_both_ways(kind):
    with pytest.raises(CorruptRecord):
        decompress(BODY, flag(kind))
    with pytest.raises(LocalProtocolError):
        compress(BODY, kind)


@pytest.mark.parametrize("level", [-1, 10])
def test_a_level_outside_of_0_to_9_is_refused(level):
    with pytest.raises(LocalProtocolError):
        compress(BODY, sysflag.ZLIB, level)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_cut_anywhere_is_an_error(kind):
    packed = compress(b"Hello PyroMQ", kind)
    for length in range(len(packed)):
        with pytest.raises(CorruptRecord):
            decompress(packed[:length], flag(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("garbage", [b"\0", b"garbage", b"x" * 5000])
def test_bytes_after_the_end_of_a_stream_are_an_error(kind, garbage):
    with pytest.raises(CorruptRecord, match="after its end"):
        decompress(compress(BODY, kind) + garbage, flag(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_stream_behind_the_first_is_an_error(kind):
    packed = compress(b"Hello PyroMQ", kind)
    with pytest.raises(CorruptRecord, match="after its end"):
        decompress(packed + packed, flag(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_program_packed_is_an_error(kind):
    with pytest.raises(CorruptRecord):
        decompress(bz2.compress(BODY), flag(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 1000, 65536, 131072, 131073, len(BODY)])
def test_a_body_of_just_the_limit_passes_and_one_byte_more_does_not(kind, size):
    packed = compress(BODY[:size], kind)
    assert decompress(packed, flag(kind), limit=size) == BODY[:size]
    with pytest.raises(CorruptRecord, match=f"more than {size - 1} bytes"):
        decompress(packed, flag(kind), limit=size - 1)


def bomb(kind: int) -> bytes:
    """A few KB that open up to 16 MiB of zeros."""
    zeros = bytes(1024 * 1024)
    if kind == sysflag.ZLIB:
        packer = zlib.compressobj(9)
        return b"".join([packer.compress(zeros) for _ in range(16)]) + packer.flush()
    if kind == sysflag.LZ4:
        frame = lz4.frame.LZ4FrameCompressor()
        packed: bytes = frame.begin() + b"".join([frame.compress(zeros) for _ in range(16)]) + frame.flush()
        return packed
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join([stream.compress(zeros) for _ in range(16)]) + stream.flush()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_ends_in_an_error_before_it_fills_the_memory(kind):
    packed = bomb(kind)
    limit = 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="more than"):
            decompress(packed, flag(kind), limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


def test_the_tightest_zstd_bomb_ends_in_an_error_too():
    # A window of 128 KiB, then blocks of four bytes, each of which says "this byte 131,072 times": 40 KB for 1.3 GB.
    packed = bytes.fromhex("28b52ffd0038") + 10_000 * bytes.fromhex("02001000")
    limit = 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="more than"):
            decompress(packed, flag(sysflag.ZSTD), limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit


def test_a_small_limit_still_takes_the_usual_zstd_window():
    stream = zstandard.ZstdCompressor(level=9).compressobj()  # sizes unknown: the window is that of the level
    packed = stream.compress(b"Hello PyroMQ") + stream.flush()
    assert decompress(packed, flag(sysflag.ZSTD), limit=100) == b"Hello PyroMQ"


def test_a_zstd_window_larger_than_the_limit_is_refused():
    # Magic, a descriptor without size, and a window of 2^31 bytes: eight bytes that ask for two gigabytes.
    claim = bytes.fromhex("28b52ffd") + bytes([0x00, (31 - 10) << 3]) + bytes.fromhex("010000")
    with pytest.raises(CorruptRecord):
        decompress(claim, flag(sysflag.ZSTD))


def test_a_zstd_size_that_is_only_claimed_is_not_set_aside():
    packed = bytearray(zstandard.ZstdCompressor(write_content_size=False).compress(BODY))
    assert packed[4] >> 6 == 0  # no content size yet
    claim = packed[:4] + bytes([packed[4] | 0xC0]) + packed[5:6] + (2**62).to_bytes(8, "little") + packed[6:]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(bytes(claim), flag(sysflag.ZSTD))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < DEFAULT_LIMIT // 8


def test_the_default_limit_is_sixteen_times_the_largest_message():
    assert DEFAULT_LIMIT == 16 * 4 * 1024 * 1024
