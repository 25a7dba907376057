"""Decodes a buffer of stored records into Arrow columns: the fast path behind every read from Spark.

A pull is answered with the very bytes that lie in the commit log, so one decoder serves both. It works on a batch of
records as a whole: `walk.py` finds them, `records.py` copies out the fixed fields as an array of structs, `gather.py`
cuts the rest out of the buffer, `property_columns.py` and `single_properties.py` decode properties. Rare cases
that do not fit (a compressed body, malformed properties, an undivided batch) are decoded one by one and put in their
place. `general_columns.py` defines the result.

Figures: bench/spark_decode.py.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyromq.errors import CorruptRecord
from pyromq.protocol import compression, sysflag
from pyromq.protocol import properties as props
from pyromq.protocol.record import TOTAL_SIZE, decode_record

from ..schema import TIMESTAMP, column_name
from . import general_columns
from .gather import merged, text
from .general_columns import MAX_BYTES, MAX_ROWS, Decoded, as_schema, crc_mismatch, host_text
from .memory import keep_freed_memory
from .property_columns import property_columns
from .records import Records
from .selection import INTERNAL_BEGINNINGS
from .single_properties import single_properties
from .walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from pyromq.protocol.record import Buffer

    from .gather import Int64s
    from .selection import Selection

__all__ = ["MAX_BYTES", "MAX_ROWS", "Decoded", "decode"]


# While records are skipped, look at up to this many times the rows of a batch, in steps.
_LOOK_AHEAD = 8
_LEAST_STEP = 1024

_FIXED = {
    "queueId": ("queue_id", np.int32),
    "queueOffset": ("queue_offset", np.int64),
    "physicalOffset": ("physical_offset", np.int64),
    "flag": ("flag", np.int32),
    "sysFlag": ("sys_flag", np.int32),
    "bodyCRC": ("body_crc", np.int32),
    "reconsumeTimes": ("reconsume_times", np.int32),
    "preparedTransactionOffset": ("prepared_transaction_offset", np.int64),
    "storeSize": ("total_size", np.int32),
}
_TIMES = {"bornTimestamp": "born_timestamp", "storeTimestamp": "store_timestamp"}
_MAX_MS = (2**63 - 1) // 1000
_PROPERTY_OF = {"keys": props.KEYS, "tags": props.TAGS, "msgId": props.UNIQ_KEY}
_INNER_BATCH = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP
_INTERNAL = np.unique(np.frombuffer(b"".join(name.encode()[:4] for name in INTERNAL_BEGINNINGS), np.uint32))
_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


def decode(
    buffer: Buffer,
    schema: pa.Schema | Iterable[str],
    *,
    broker_name: str | None,
    start: int = 0,
    stop: int | None = None,
    positions: Int64s | None = None,
    origin: int | None = None,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    include_properties: bool = True,
    decompress: bool = True,
    verify_crc: bool = False,
    selection: Selection | None = None,
) -> Decoded:
    """The records of `buffer` that begin from `start` on and before `stop`, as one batch with the columns of `schema`.

    Without `positions` they lie back to back; with them, records begin at exactly these places, in any order.
    `origin` is the physical offset of the buffer's first byte: every record's own offset must then match its place,
    and errors name physical offsets instead of places in the buffer.

    At most `max_rows` rows and `max_bytes` of decoded bodies, except for a single larger message: call again from
    `end` on (with `positions`, from the `records`-th on) for the rest; even a batch without rows makes progress. An
    undivided batch of a 5.x broker is unwrapped, alone, into one row per message. Times that do not fit
    into Spark's are null.

    Raises CorruptRecord if the first record is damaged. If a later one is, the batch ends before it. With
    `decompress` that includes bodies that cannot be opened, with `verify_crc` those that do not match their CRC.
    """
    keep_freed_memory()
    schema = as_schema(schema)
    found = _Found(buffer, origin, selection, start)
    if positions is not None:
        found.add(positions)
    else:
        found.add_walking(len(buffer) if stop is None else stop, max_rows, max_bytes)
    if found.is_inner_batch:
        return general_columns.decode(
            buffer,
            schema,
            broker_name=broker_name,
            positions=(found.first,),
            origin=origin,
            include_properties=include_properties,
            verify_crc=verify_crc,
            selection=selection,
        )
    records = found.records()
    cut = _Cut(records, max_rows, max_bytes)
    if verify_crc:
        cut.check_crcs()
    if decompress:
        cut.open_bodies()
    used, end = found.count, found.end
    if cut.rows < len(records):
        used, end = found.up_to(cut.rows)
        if used == 0:
            assert cut.error is not None, "one row always fits"
            raise CorruptRecord(cut.error.reason, (origin or 0) + end) from cut.error
        records.take(slice(cut.rows))
    columns = _Columns(records, broker_name, cut.opened, include_properties)
    return Decoded(pa.RecordBatch.from_arrays(columns.all(schema), schema=schema), end, used)


class _Found:
    """The records of a batch: whole, wanted ones, and how many unwanted ones lie before each."""

    def __init__(self, buffer: Buffer, origin: int | None, selection: Selection | None, start: int) -> None:
        self._buffer = buffer
        self._origin = origin
        self._selection = selection
        self._parts: list[tuple[Records, Int64s]] = []  # records and which of them are wanted
        self._starts: list[Int64s] = []  # of those that are
        self._before: list[Int64s] = []
        self.rows = self.bytes = 0  # wanted
        self.count = 0  # looked at
        self.end = start
        self.first = start
        self.is_inner_batch = False

    def add_walking(self, stop: int, max_rows: int, max_bytes: int) -> None:
        """Add back-to-back records, until the batch is full or many were skipped."""
        if self._selection is None:
            self.add(walk(self._buffer, self.end, stop, max_records=max_rows, max_bytes=max_bytes), stop)
            return
        while self.rows < max_rows and self.bytes < max_bytes and self.count < max_rows * _LOOK_AHEAD:
            step = max(max_rows - self.rows, min(max_rows, _LEAST_STEP))
            rows, bytes_ = self.rows, self.bytes
            if not self.add(walk(self._buffer, self.end, stop, max_records=step, max_bytes=max_bytes), stop):
                return
            # Another step like this one would mostly be in vain.
            if 2 * self.rows - rows > max_rows or 2 * self.bytes - bytes_ > max_bytes:
                return

    def add(self, starts: Int64s, stop: int | None = None) -> bool:
        """Add these records; False if the batch ends here: there are none, or one is not a plain record.

        That one is left to the next call, unless it is the very first.
        """
        if not len(starts) and (stop is None or self.end >= stop):
            return False
        records = Records(self._buffer, starts, self._origin)
        if not len(records):
            if not self.count:
                raise _problem(self._buffer, int(starts[0]) if len(starts) else self.end, self._origin)
            return False
        self.first = int(starts[0]) if not self.count else self.first
        is_batch = records.sys_flag & _INNER_BATCH == _INNER_BATCH
        if is_batch.any():
            records.take(slice(int(is_batch.argmax())))
            if not len(records):
                self.is_inner_batch = not self.count
                return False
        if self._selection is None:
            wanted = np.arange(len(records))
        else:
            wanted = np.flatnonzero(_is_chosen(records, self._selection))
            self.bytes += int(records.field("body_length", np.int64)[wanted].sum())
        self._parts.append((records, wanted))
        self._starts.append(starts[wanted])
        self._before.append(wanted + self.count)
        self.rows += len(wanted)
        self.count += len(records)
        last = int(starts[len(records) - 1])
        self.end = last + TOTAL_SIZE.unpack_from(self._buffer, last)[0]
        return len(records) == len(starts)

    def records(self) -> Records:
        if len(self._parts) == 1:
            records, wanted = self._parts[0]
            if len(wanted) < len(records):
                records.take(wanted)
            return records
        starts = np.concatenate(self._starts) if self._starts else np.empty(0, np.int64)
        return Records(self._buffer, starts, self._origin)

    def up_to(self, row: int) -> tuple[int, int]:
        """How many records lie before a row, and where it begins."""
        return int(np.concatenate(self._before)[row]), int(np.concatenate(self._starts)[row])


def _problem(buffer: Buffer, pos: int, origin: int | None) -> CorruptRecord:
    """What is wrong with the record at `pos`."""
    where = (origin or 0) + pos
    if not 0 <= pos < len(buffer):
        return CorruptRecord("outside the file", where)
    try:
        record = decode_record(buffer, pos, check_crc=False)
    except CorruptRecord as exc:
        return CorruptRecord(exc.reason, where)
    return CorruptRecord(f"record belongs to {record.physical_offset}", where)


def _is_chosen(records: Records, selection: Selection) -> NDArray[np.bool_]:
    chosen = np.ones(len(records), np.bool_)
    for name, least, end in (
        ("store_timestamp", selection.since, selection.until),
        ("queue_offset", selection.first_offset, selection.end_offset),
    ):
        if least is not None:
            chosen &= records.head[name] >= least
        if end is not None:
            chosen &= records.head[name] < end
    for name, among in (("queue_id", selection.queue_ids), ("queue_offset", selection.offsets)):
        if among is not None:
            chosen &= np.isin(records.field(name, np.int64), np.array(sorted(among), np.int64))
    if not selection.internal:
        kind = records.sys_flag & sysflag.TRANSACTION_MASK
        chosen &= (kind != sysflag.PREPARED) & (kind != sysflag.ROLLBACK)
    if selection.needs_topic:
        _choose_topics(records, selection, chosen)
    if selection.tags is not None:
        places = records.properties_at - records.base, records.end - records.base
        own = single_properties(records.data, *places, (props.TAGS,))[props.TAGS]
        tags = pa.array(sorted(selection.tags), pa.string())
        chosen &= pc.is_in(own, tags).to_numpy(zero_copy_only=False)
    return chosen


def _choose_topics(records: Records, selection: Selection, chosen: NDArray[np.bool_]) -> None:
    """Drop those of other topics from `chosen`."""
    if selection.topics is None and not np.isin(records.topic_beginnings(), _INTERNAL).any():
        return
    topics = records.topics().dictionary_encode()
    verdicts = [selection.has_topic(name.decode("utf-8", "replace")) for name in topics.dictionary.to_pylist()]
    chosen &= np.array(verdicts, np.bool_)[topics.indices.to_numpy()]


class _Cut:
    """How many records make one batch: as many as fit, up to one whose body is damaged (`error`)."""

    def __init__(self, records: Records, max_rows: int, max_bytes: int) -> None:
        self._records = records
        self._max_bytes = max_bytes
        self._lengths = records.field("body_length", np.int64)
        self.error: CorruptRecord | None = None
        self.opened: dict[int, bytes] = {}
        self.rows = min(len(records), max_rows)
        self._fit()

    def _fit(self) -> None:
        fitting = int(np.searchsorted(np.cumsum(self._lengths[: self.rows]), self._max_bytes, "right"))
        self.rows = min(self.rows, max(fitting, 1))

    def _body(self, row: int) -> bytes:
        return self._records.raw[self._records.body_at[row] : self._records.body_end[row]].tobytes()

    def open_bodies(self) -> None:
        """Decompress bodies and count their real sizes, as many as the batch has room for."""
        flags = self._records.sys_flag
        compressed = np.flatnonzero(flags & sysflag.COMPRESSED)
        if not len(compressed):
            return
        more = 0
        before = np.cumsum(self._lengths) - self._lengths
        for row in compressed.tolist():
            if row >= self.rows or (row and before[row] + more > self._max_bytes):
                break
            try:
                body = compression.decompress(self._body(row), int(flags[row]))
            except CorruptRecord as exc:
                self.rows, self.error = row, exc
                break
            more += len(body) - int(self._lengths[row])
            self._lengths[row] = len(body)
            self.opened[row] = body
        self._fit()

    def check_crcs(self) -> None:
        records = self._records
        crcs = records.field("body_crc", np.int32).tolist()
        view = memoryview(records.raw)  # type: ignore[arg-type]  # an array is a buffer; numpy's types do not say so
        places = zip(records.body_at.tolist(), records.body_end.tolist(), crcs, strict=True)
        for row, (at, end, crc) in enumerate(places):
            if row >= self.rows:
                return
            if zlib.crc32(view[at:end]) & 0x7FFFFFFF != crc:
                topic = records.raw[records.topic_at[row] : records.topic_end[row]].tobytes().decode("utf-8", "replace")
                head = records.head[row]
                self.rows, self.error = row, crc_mismatch(topic, int(head["queue_id"]), int(head["queue_offset"]))
                return


class _Columns:
    """The columns of records; each is made when it is asked for."""

    def __init__(
        self, records: Records, broker_name: str | None, opened: dict[int, bytes], include_properties: bool
    ) -> None:
        self._records = records
        self._broker_name = broker_name
        self._opened = opened
        self._include_properties = include_properties
        self._has_long_hosts = records.has_long_hosts
        self._single: dict[str, pa.Array] = {}
        self._maps: pa.Array | None = None

    def all(self, schema: pa.Schema) -> list[pa.Array]:
        names = [column_name(field.name) for field in schema]
        self._read_properties(names)
        return [self._column(name, field.type) for name, field in zip(names, schema, strict=True)]

    def _read_properties(self, names: list[str]) -> None:
        single = [_PROPERTY_OF[name] for name in names if name in _PROPERTY_OF]
        with_maps = "properties" in names and self._include_properties
        if single or with_maps:
            records = self._records
            places = records.properties_at - records.base, records.end - records.base
            if with_maps:
                self._single, self._maps = property_columns(records.data, *places, single)
            else:
                self._single = single_properties(records.data, *places, single)

    def _column(self, name: str, kind: pa.DataType) -> pa.Array:
        records = self._records
        if name in _FIXED:
            return pa.array(records.field(*_FIXED[name]))
        match name:
            case "topic":
                return text(records.topics())
            case "brokerName":
                return pa.repeat(pa.scalar(self._broker_name, pa.string()), len(records))
            case "bornTimestamp" | "storeTimestamp":
                return self._time(_TIMES[name])
            case "bornHost" | "storeHost":
                return self._hosts(records.born_hosts if name == "bornHost" else records.store_hosts, name)
            case "offsetMsgId":
                return self._offset_ids()
            case "keys" | "tags":
                return self._single[_PROPERTY_OF[name]]
            case "msgId":
                own = self._single[props.UNIQ_KEY]
                return pc.coalesce(own, self._offset_ids()) if own.null_count else own
            case "body":
                return self._bodies()
            case _:
                if self._maps is None:
                    return pa.nulls(len(records), kind)
                return self._maps if self._maps.type == kind else self._maps.cast(kind)

    def _time(self, name: str) -> pa.Array:
        milliseconds = self._records.field(name, np.int64)
        does_not_fit = (milliseconds > _MAX_MS) | (milliseconds < -_MAX_MS)
        mask = does_not_fit if does_not_fit.any() else None
        return pa.array(milliseconds * 1000, mask=mask).view(TIMESTAMP)

    def _bodies(self) -> pa.Array:
        records = self._records
        bodies = records.pieces(records.body_at, records.body_end)
        opened = {row: body for row, body in self._opened.items() if row < len(records)}
        if not opened:
            return bodies
        mask = np.zeros(len(records), np.bool_)
        mask[list(opened)] = True
        return pc.replace_with_mask(bodies, pa.array(mask), pa.array(list(opened.values()), pa.binary()))

    def _hosts(self, hosts: Any, name: str) -> pa.Array:
        if not self._has_long_hosts:
            return _short_hosts(hosts(slice(None), sysflag.HOST_V4_LENGTH))
        bit = sysflag.BORN_HOST_V6 if name == "bornHost" else sysflag.STORE_HOST_V6
        is_long = self._records.sys_flag & bit != 0
        long = [host_text(raw.tobytes()) for raw in hosts(is_long, sysflag.HOST_V6_LENGTH)]
        return merged(_short_hosts(hosts(~is_long, sysflag.HOST_V4_LENGTH)), pa.array(long, pa.string()), is_long)

    def _offset_ids(self) -> pa.Array:
        if not self._has_long_hosts:
            return self._ids(slice(None), sysflag.HOST_V4_LENGTH)
        is_long = self._records.sys_flag & sysflag.STORE_HOST_V6 != 0
        return merged(self._ids(~is_long, sysflag.HOST_V4_LENGTH), self._ids(is_long, sysflag.HOST_V6_LENGTH), is_long)

    def _ids(self, rows: Any, host_length: int) -> pa.Array:
        """Store host and physical offset in hexadecimal."""
        hosts = self._records.store_hosts(rows, host_length)
        raw = np.empty((len(hosts), host_length + 8), np.uint8)
        raw[:, :host_length] = hosts.view(np.uint8).reshape(-1, host_length)
        offsets = np.ascontiguousarray(self._records.head["physical_offset"][rows])
        raw[:, host_length:] = offsets.view(np.uint8).reshape(-1, 8)
        digits = np.take(_HEX, raw, mode="clip")  # a byte is always in range; "raise" would check, and copy once more
        ends = np.arange(len(hosts) + 1, dtype=np.int32) * (2 * raw.shape[1])
        return pa.Array.from_buffers(pa.string(), len(hosts), [None, pa.py_buffer(ends), pa.py_buffer(digits)], 0)


def _short_hosts(hosts: NDArray[np.void]) -> pa.Array:
    """IPv4 hosts as text; each distinct one is formatted once."""
    values = hosts.view(np.uint64)
    if len(values) and (values == values[0]).all():
        return pa.repeat(pa.scalar(host_text(values[:1].tobytes()), pa.string()), len(values))
    distinct = pa.array(values).dictionary_encode()
    texts = [host_text(value.tobytes()) for value in distinct.dictionary.to_numpy()]
    return pa.array(texts, pa.string()).take(distinct.indices)
