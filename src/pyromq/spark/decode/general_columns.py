"""The general path of decoding: records to Arrow columns one by one, as simple as possible. Tests compare against it.

The fast path is `columns.decode`. This one serves the only records not worth a fast path: the undivided
batches of 5.x brokers.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from pyromq.errors import CorruptRecord
from pyromq.protocol import compression, sysflag
from pyromq.protocol import properties as props
from pyromq.protocol.batch import unwrap
from pyromq.protocol.ids import decode_host
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import TOTAL_SIZE, decode_record

from ..schema import ARROW_SCHEMA, column_name
from .selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.record import Buffer, MessageRecord

MAX_ROWS = 10_000
MAX_BYTES = 8 << 20

_MAX_MS = (2**63 - 1) // 1000  # in µs, as Spark counts, this still fits into 64 bits


class Decoded(NamedTuple):
    """A batch of rows and how far it got: `records` of them were used, the next one begins at `end`.

    There are fewer rows than records if some were not wanted, more if a record is a batch.
    """

    batch: pa.RecordBatch
    end: int
    records: int


def decode(
    buffer: Buffer,
    schema: pa.Schema | Iterable[str],
    *,
    broker_name: str | None,
    start: int = 0,
    stop: int | None = None,
    positions: Iterable[int] | None = None,
    origin: int | None = None,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    include_properties: bool = True,
    decompress: bool = True,
    verify_crc: bool = False,
    selection: Selection | None = None,
) -> Decoded:
    """As `columns.decode`; see there."""
    schema = as_schema(schema)
    selection = selection or Selection()
    stop = len(buffer) if stop is None else stop
    places = None if positions is None else iter(positions)
    rows: list[dict[str, Any]] = []
    size = records = 0
    end = start
    while len(rows) < max_rows:
        pos = end if places is None else next(places, stop)
        if pos >= stop:
            break
        try:
            record = _record(buffer, pos, origin)
            messages = _messages(record, selection, decompress=decompress, verify_crc=verify_crc)
        except CorruptRecord as exc:
            if records:
                break  # the next call begins with it and raises
            raise CorruptRecord(exc.reason, (origin or 0) + pos) from exc
        length = sum(len(message.body) for message in messages)
        if records and (is_inner_batch(record.sys_flag) or (rows and size + length > max_bytes)):
            break
        total_size = TOTAL_SIZE.unpack_from(buffer, pos)[0]
        rows += [_row(message, record, total_size, broker_name) for message in messages]
        size += length
        records += 1
        end = pos + total_size
        if is_inner_batch(record.sys_flag):
            break
    return Decoded(_to_batch(rows, schema, include_properties), end, records)


def as_schema(schema: pa.Schema | Iterable[str]) -> pa.Schema:
    """The schema; column names stand for their default types."""
    if isinstance(schema, pa.Schema):
        return schema
    return pa.schema([ARROW_SCHEMA.field(column_name(name)) for name in schema])


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the record holds many messages that the reader must unwrap."""
    return not ~sys_flag & (sysflag.INNER_BATCH | sysflag.NEED_UNWRAP)


def host_text(raw: bytes) -> str:
    """`ip:port`, and `[ip]:port` for IPv6."""
    ip, port = decode_host(raw)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def crc_mismatch(topic: str, queue_id: int, queue_offset: int, pos: int = 0) -> CorruptRecord:
    return CorruptRecord(
        f"body does not match its CRC; it is message {queue_offset} of queue {queue_id} of {topic}", pos
    )


def _record(buffer: Buffer, pos: int, origin: int | None) -> MessageRecord:
    record = decode_record(buffer, pos, check_crc=False)
    if origin is not None and record.physical_offset != origin + pos:
        raise CorruptRecord(f"record belongs to {record.physical_offset}", pos)
    return record


def _messages(
    record: MessageRecord, selection: Selection, *, decompress: bool, verify_crc: bool
) -> list[MessageRecord]:
    """The wanted messages of a record, with decoded bodies."""
    inner = is_inner_batch(record.sys_flag)
    messages = [
        message
        for message in (unwrap(record) if inner else [record])
        if selection.has(message) and selection.has_offset(message.queue_offset)
    ]
    if not messages:
        return []
    if messages[-1].queue_offset >= 2**63:
        raise CorruptRecord(f"queue offset {messages[-1].queue_offset} of a batch")
    if verify_crc and zlib.crc32(record.body) & 0x7FFFFFFF != record.body_crc:
        raise crc_mismatch(record.topic, record.queue_id, record.queue_offset)
    if inner or not decompress:
        return messages
    return [replace(record, body=compression.decompress(record.body, record.sys_flag))]


def _row(message: MessageRecord, stored: MessageRecord, total_size: int, broker_name: str | None) -> dict[str, Any]:
    seen = MessageExt(message)
    return {
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": seen.msg_id,
        "offsetMsgId": seen.offset_msg_id,
        "keys": seen.properties.get(props.KEYS),
        "tags": seen.tags,
        "properties": list(seen.properties.items()),
        "body": message.body,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodyCRC": stored.body_crc,
        "bornTimestamp": _microseconds(message.born_timestamp),
        "storeTimestamp": _microseconds(message.store_timestamp),
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "storeSize": total_size,
    }


def _microseconds(milliseconds: int) -> int | None:
    """A time in Spark's unit; None if Spark cannot represent it."""
    return milliseconds * 1000 if -_MAX_MS <= milliseconds <= _MAX_MS else None


def _to_batch(rows: list[dict[str, Any]], schema: pa.Schema, include_properties: bool) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        name = column_name(field.name)
        if name == "properties" and not include_properties:
            arrays.append(pa.nulls(len(rows), field.type))
        else:
            arrays.append(pa.array([row[name] for row in rows], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
