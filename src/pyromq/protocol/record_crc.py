"""The record CRC that a 5.x broker may put at the very end of a record (`enabledAppendPropCRC`, off by default).

    … properties | "__CRC32#" | 0x01 | 10 decimal digits, the least significant first | 0x02

It is the CRC-32 of the record without these 20 bytes, masked to 31 bits, and covers the fields that the body's own CRC
does not. To every reader it is one more property. We pass it through and can verify it; we do not write it.
"""

from __future__ import annotations

from .crc import crc32

LENGTH = 20
_START = b"__CRC32#\x01"
_END = b"\x02"


def stored_crc(raw: bytes) -> int | None:
    """The CRC at the end of a record (or of its properties), None if there is none."""
    tail = raw[-LENGTH:]
    digits = tail[len(_START) : -len(_END)]
    if len(tail) == LENGTH and tail.startswith(_START) and tail.endswith(_END) and digits.isdigit():
        return int(digits[::-1])
    return None


def verify(record: bytes) -> bool | None:
    """Whether the whole `record` is as its broker wrote it; None when it carries no record CRC.

    True means every byte was checked, since the physical offset and the store time are part of the sum.
    """
    stored = stored_crc(record)
    if stored is None:
        return None
    return crc32(record[:-LENGTH]) & 0x7FFFFFFF == stored
