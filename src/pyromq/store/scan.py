"""Walking over the records of a commit log file, without opening a store."""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import CorruptRecord
from pyromq.protocol.record import (
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_LENGTH,
    MIN_RECORD_SIZE,
    SIZE_AND_MAGIC,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOST_BITS_AT = 39  # the lowest byte of SYSFLAG
# Of the head only: body CRC, queue id, queue offset, physical offset, sys flag, store time and size of the body.
_WANTED = (2, 3, 5, 6, 7, 10, 14)


def _only_wanted(head: struct.Struct) -> struct.Struct:
    codes = re.findall(r"[0-9]*[a-z]", head.format)
    return struct.Struct(
        ">" + "".join(code if at in _WANTED else f"{struct.calcsize(f'>{code}')}x" for at, code in enumerate(codes))
    )


_HEADS = tuple(map(_only_wanted, HEADS))
assert [head.size for head in _HEADS] == [head.size for head in HEADS]


class ScannedRecord(NamedTuple):
    """What queues and index need to know of a record."""

    physical_offset: int
    size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    topic: str
    properties: bytes


def scan(view: bytes | memoryview, at: int, start: int, *, check_crc: bool, more: int = 0) -> Iterator[ScannedRecord]:
    """The records of the file `view`, whose first byte has the offset `start`, from position `at` on.

    Ends in front of a blank record or of bytes that were never written. Raises CorruptRecord, with its offset in the
    log, at the first record that is damaged or does not belong where it lies.

    `view` may be a part of a file that has `more` bytes behind it; then a record that goes on there ends the scan too.

    1 KB bodies: 2.0 µs a record, 0.6 of it the CRC (CPython 3.11).
    """
    length = len(view)
    topics: dict[bytes, str] = {}
    crc32 = zlib.crc32
    new = tuple.__new__
    while True:
        left = length - at
        if left < SIZE_AND_MAGIC.size:
            if more:
                return
            raise CorruptRecord(f"file ends {left} bytes behind the last record", start + at)
        size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            if magic == MAGIC_BLANK or size == magic == 0:
                return
            raise CorruptRecord(f"unknown magic {magic & 0xFFFFFFFF:#010x}", start + at)
        if not MIN_RECORD_SIZE <= size <= left:
            if MIN_RECORD_SIZE <= size <= left + more:
                return
            raise CorruptRecord(f"record of {size} bytes, {left + more} left in the file", start + at)
        head = _HEADS[view[at + _HOST_BITS_AT] >> 4 & 3]
        body_at = at + head.size
        end = at + size
        if body_at > end:
            raise CorruptRecord(f"record of {size} bytes is shorter than its head", start + at)
        (
            crc,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            store_timestamp,
            body_size,
        ) = head.unpack_from(view, at)
        if physical_offset != start + at:
            raise CorruptRecord(f"record belongs to {physical_offset}", start + at)
        body_end = body_at + body_size
        if body_size < 0 or body_end + 3 > end:
            raise CorruptRecord(f"body of {body_size} bytes in a record of {size}", start + at)
        if magic == MAGIC_V1:
            topic_at = body_end + 1
            topic_end = topic_at + view[body_end]
        else:
            topic_at = body_end + 2
            topic_end = topic_at + (view[body_end] << 8 | view[body_end + 1])
        properties_at = topic_end + 2
        # A length with its highest bit set is negative, and so never right.
        if (
            properties_at > end
            or properties_at + (view[topic_end] << 8 | view[topic_end + 1]) != end
            or (topic_end - topic_at > MAX_TOPIC_LENGTH[magic] or end - properties_at > 0x7FFF)
        ):
            raise CorruptRecord(f"topic and properties do not end a record of {size} bytes", start + at)
        if check_crc and crc32(view[body_at:body_end]) & 0x7FFFFFFF != crc:
            raise CorruptRecord("body does not match its CRC", start + at)
        name = bytes(view[topic_at:topic_end])
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = name.decode("utf-8", "replace")
        # Past the class's own constructor, which is written in Python: 0.2 µs less.
        yield new(
            ScannedRecord,
            (
                physical_offset,
                size,
                queue_id,
                queue_offset,
                sys_flag,
                store_timestamp,
                topic,
                bytes(view[properties_at:end]),
            ),
        )
        at = end
