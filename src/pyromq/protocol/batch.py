"""Batches: many messages in the body of one send, unpacked by the broker into ordinary records.

    byte 0    TOTALSIZE    of the item; written, and ignored by readers like the next two
         4    MAGIC        0
         8    BODYCRC      0
         12   FLAG
         16   BODYLEN      then the body
         …    PROPLEN      two bytes, then the item's own properties

Items lie back to back. All share the topic, queue, sysFlag and times of the request that carries them; a batch is never
compressed. A 5.x broker may also keep a batch undivided, as an "inner batch" in one record, for consumers to unwrap.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pyromq.errors import CorruptRecord, LocalProtocolError

from . import properties as props
from . import sysflag
from .compression import decompress
from .record import MessageRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .record import Buffer

ITEM_HEAD = struct.Struct(
    ">i"  # total size of the item
    "i"  # magic, 0
    "i"  # body CRC, 0: the broker computes it
    "i"  # flag, the user's
    "i"  # body length
)
_PROPERTIES_LENGTH = struct.Struct(">h")

ITEM_OVERHEAD = ITEM_HEAD.size + _PROPERTIES_LENGTH.size


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch: all that it does not share with the others. Properties are UTF-8, see properties.py."""

    body: bytes
    flag: int = 0
    properties: bytes = b""

    @property
    def size(self) -> int:
        """Bytes it takes in the batch."""
        return ITEM_OVERHEAD + len(self.body) + len(self.properties)


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch send."""
    parts: list[bytes] = []
    for item in items:
        if len(item.properties) > props.MAX_LENGTH:
            raise LocalProtocolError(f"properties of {len(item.properties)} bytes")
        try:
            parts.append(ITEM_HEAD.pack(item.size, 0, 0, item.flag, len(item.body)))
        except struct.error as exc:
            raise LocalProtocolError(f"a field does not fit into a batch: {exc}") from exc
        parts += (item.body, _PROPERTIES_LENGTH.pack(len(item.properties)), item.properties)
    if not parts:
        raise LocalProtocolError("a batch without messages")
    return b"".join(parts)


def decode_batch(buffer: Buffer) -> list[BatchItem]:
    """The messages of a batch, at least one. Raises CorruptRecord, with the place in it, if they are not whole."""
    return [BatchItem(body, flag, properties) for body, flag, properties in _items(buffer)]


def _items(buffer: Buffer) -> Iterator[tuple[bytes, int, bytes]]:
    """Body, flag and properties of each message of a batch."""
    body = bytes(buffer)
    size = len(body)
    if not size:
        raise CorruptRecord("a batch without messages")
    pos = 0
    while pos < size:
        if size - pos < ITEM_OVERHEAD:
            raise CorruptRecord(f"batch item in the last {size - pos} bytes", pos)
        _size, _magic, _crc, flag, body_length = ITEM_HEAD.unpack_from(body, pos)
        body_at = pos + ITEM_HEAD.size
        body_end = body_at + body_length
        properties_at = body_end + _PROPERTIES_LENGTH.size
        if body_length < 0 or properties_at > size:
            raise CorruptRecord(f"batch item with a body of {body_length} bytes", pos)
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(body, body_end)
        end = properties_at + properties_length
        if properties_length < 0 or end > size:
            raise CorruptRecord(f"batch item with properties of {properties_length} bytes", pos)
        yield body[body_at:body_end], flag, body[properties_at:end]
        pos = end


def expand(batch: MessageRecord) -> list[MessageRecord]:
    """The records that a broker stores for `batch`, whose body is a batch and whose properties belong to all of it.

    They still lack queue offset, physical offset and store time, as every record does before it is appended. The
    joined properties may be longer than a record can hold: that is for the store to refuse.
    """
    # Not `replace`, which takes as long as all the rest.
    return [
        MessageRecord(
            batch.topic,
            body,
            join_properties(properties, batch.properties),
            batch.queue_id,
            flag,
            batch.queue_offset,
            batch.physical_offset,
            batch.sys_flag,
            batch.born_timestamp,
            batch.born_host,
            batch.store_timestamp,
            batch.store_host,
            batch.reconsume_times,
            0,
            batch.body_crc,
            batch.magic,
        )
        for body, flag, properties in _items(batch.body)
    ]


def join_properties(own: bytes, shared: bytes) -> bytes:
    """The properties of one message of a batch: its own, then those of the batch, which win where names are equal."""
    if not shared or not own or own.endswith(b"\x02"):
        return own + shared
    return own + b"\x02" + shared


def unwrap(record: MessageRecord) -> list[MessageRecord]:
    """The messages inside `record` if it is an inner batch for consumers to unwrap, else the record itself.

    All of them lie at the physical offset of the batch; their queue offsets count up from its own.
    """
    if ~record.sys_flag & (sysflag.INNER_BATCH | sysflag.NEED_UNWRAP):
        return [record]
    plain_flag = sysflag.without_compression(record.sys_flag) & ~(sysflag.INNER_BATCH | sysflag.NEED_UNWRAP)
    return [
        replace(
            record,
            body=item.body,
            flag=item.flag,
            properties=item.properties,
            sys_flag=plain_flag,
            queue_offset=record.queue_offset + number,
        )
        for number, item in enumerate(decode_batch(decompress(record.body, record.sys_flag)))
    ]
