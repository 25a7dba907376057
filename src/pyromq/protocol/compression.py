"""Compressed message bodies: zlib, LZ4 frame and zstd, told apart by bits of the sysFlag.

Brokers store and deliver a compressed body unchanged; producers compress and consumers decompress. So the bytes come
from a stranger: `decompress` raises CorruptRecord if they inflate beyond a limit, end too early or go on after their
end.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import lz4.frame
import zstandard

from pyromq.errors import CorruptRecord, LocalProtocolError

from . import sysflag

if TYPE_CHECKING:
    from collections.abc import Iterator

# A broker takes 4 MiB of body by default, compressed or not. Sixteen times that leaves room for text that packs well
# and for a raised maxMessageSize, and still keeps one message from filling the memory of a consumer.
DEFAULT_LIMIT = 16 * 4 * 1024 * 1024

DEFAULT_LEVEL = 5  # RocketMQ's own, for all three kinds

_MIN_STEP = 64 * 1024

# zstd: a block holds at most 128 KiB and takes at least 4 bytes (3 of header, 1 that is repeated).
_ZSTD_BLOCK_MAX = 128 * 1024
_ZSTD_BLOCK_COST = 4
_ZSTD_WINDOW = 8 * 1024 * 1024  # what every reader should have, says its specification (RFC 8878, 3.1.1.1.2)


def compress(body: bytes, kind: int, level: int = DEFAULT_LEVEL) -> bytes:
    """`body` compressed as sysflag.ZLIB, LZ4 or ZSTD; `level` from 0 (fast) to 9 (small).

    The message's sysFlag then needs `sysflag.with_compression`. Go and Node clients can only open zlib.
    """
    if not 0 <= level <= 9:
        raise LocalProtocolError(f"compression level {level} is not within 0 and 9")
    if kind == sysflag.ZLIB:
        return zlib.compress(body, level)
    if kind == sysflag.LZ4:
        packed: bytes = lz4.frame.compress(body, compression_level=level)
        return packed
    if kind == sysflag.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(body)
    raise LocalProtocolError(f"unknown compression type {kind}")


def decompress(body: bytes, sys_flag: int, limit: int = DEFAULT_LIMIT) -> bytes:
    """The original body: `body` itself if the flag says it is not compressed.

    More than `limit` bytes are refused as soon as that shows, whatever size the stream claims.
    """
    if not sys_flag & sysflag.COMPRESSED:
        return body
    kind = sysflag.compression_type(sys_flag)
    if kind == sysflag.ZLIB:
        return _unzlib(body, limit)
    if kind == sysflag.LZ4:
        return _collect(_unlz4(body, limit), limit)
    if kind == sysflag.ZSTD:
        return _collect(_unzstd(body, limit), limit)
    raise CorruptRecord(f"unknown compression type {kind}")


def _unzlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than allowed tells "too long" from "just fits", whose end marker must still be read.
        plain = stream.decompress(body, limit + 1)
    except zlib.error as exc:
        raise CorruptRecord(f"compressed body: {exc}") from exc
    if len(plain) > limit:
        raise _too_long(limit)
    if not stream.eof:
        raise _cut_off()
    if stream.unused_data:
        raise _garbage()
    return plain


def _unlz4(body: bytes, limit: int) -> Iterator[bytes]:
    stream = lz4.frame.LZ4FrameDecompressor()
    # The library sets aside all it is allowed to return and copies what it has not yet read: steps that double keep
    # the first in proportion to what comes out and the second to a few copies.
    step = min(max(_MIN_STEP, 4 * len(body)), limit + 1)
    try:
        plain = stream.decompress(body, max_length=step)
        while plain:
            yield plain
            if stream.eof:
                break
            step = min(2 * step, limit + 1)
            plain = stream.decompress(b"", max_length=step)
    except RuntimeError as exc:
        raise CorruptRecord(f"compressed body: {exc}") from exc
    if not stream.eof:
        raise _cut_off()
    if stream.unused_data:
        raise _garbage()


def _unzstd(body: bytes, limit: int) -> Iterator[bytes]:
    # The window is memory that the stream asks for in its first bytes, however little follows.
    stream = zstandard.ZstdDecompressor(max_window_size=max(limit, _ZSTD_WINDOW)).decompressobj()
    # The library returns all that its input gives, so the input is cut into pieces that cannot give more than `limit`.
    step = max(limit // _ZSTD_BLOCK_MAX, 1) * _ZSTD_BLOCK_COST
    try:
        for start in range(0, len(body), step):
            if stream.eof:
                raise _garbage()
            yield stream.decompress(body[start : start + step])
    except zstandard.ZstdError as exc:
        raise CorruptRecord(f"compressed body: {exc}") from exc
    if not stream.eof:
        raise _cut_off()
    if stream.unused_data:
        raise _garbage()


def _collect(pieces: Iterator[bytes], limit: int) -> bytes:
    kept = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise _too_long(limit)
        kept.append(piece)
    return b"".join(kept)


def _too_long(limit: int) -> CorruptRecord:
    return CorruptRecord(f"compressed body inflates to more than {limit} bytes")


def _cut_off() -> CorruptRecord:
    return CorruptRecord("compressed body is cut off")


def _garbage() -> CorruptRecord:
    return CorruptRecord("compressed body goes on after its end")
