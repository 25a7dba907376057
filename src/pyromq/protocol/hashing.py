"""Java's String.hashCode, on which tag filters and the key index are built.

    h = 31 * h + unit   over the UTF-16 units of the text, modulo 2^32, read as a signed i32

These hashes lie on disk (consume queue, index file) and travel in subscriptions, so they equal Java's for every text,
characters beyond U+FFFF (two units) included.
"""

from __future__ import annotations

import functools
import struct


def java_hash(text: str) -> int:
    """The signed 32-bit hash of `text`.

    4 characters 0.3 µs, 42 characters 2.6 µs on CPython 3.11: what hashes many keys at once does better with numpy.
    """
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode()
    else:
        # Java's strings may hold half a surrogate pair, and so may what we read of them.
        utf16 = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(utf16) // 2}H", utf16)
    h = 0
    for unit in units:
        h = (31 * h + unit) & 0xFFFFFFFF
    return h - 0x1_0000_0000 if h & 0x8000_0000 else h


@functools.lru_cache(maxsize=256)  # a topic has few tags, and every message asks for one of them
def tags_code(tags: str | None) -> int:
    """What the consume queue keeps of a message's TAGS: the hash of the whole string, 0 without tags."""
    return java_hash(tags) if tags else 0


def index_hash(key: str) -> int:
    """The hash the index file keeps of `topic#key`: never negative. -2^31 has no positive twin and becomes 0."""
    h = abs(java_hash(key))
    return 0 if h == 0x8000_0000 else h
