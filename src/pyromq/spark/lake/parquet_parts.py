"""What a task writes: the messages of its queues in Parquet files, one per day, ready for a commit to name them.

Batches come as they were read, mostly queue by queue, each in the order of its offsets. Every file is ordered by
broker, queue and offset. To get there, rows of a day are gathered to some megabytes, sorted if they are not, and
written as a row group; where a group does not follow what its file already has, a new file begins. So memory has a
bound whatever comes, and a caller that goes through its queues in order gets one file per day.

A file belongs to the table only once a commit names it. Its name has the attempt of the task in it, so that a repeated
task never writes over what an earlier one wrote, and what nobody refers to is found and removed by `vacuum`.

Tasks import nothing but pyarrow and numpy for this.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyromq.errors import ConfigError

from .layout import DAY, HOUR, ORDER, SKIPPED_BY, folder, is_partition, partition_from_days, table_schema
from .table import DataFile, LakeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from .storage import Storage

ROLL = 256 << 20  # bytes of a file after which the next one begins
GROUP = 32 << 20  # Arrow bytes of a row group
BUFFER = 96 << 20  # Arrow bytes that wait in all days together
_OPEN = 64  # files that are open at once: a backlog may cross many days
_LONG = 128  # rows that are worth a slice of their own
_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAR = 253_402_300_799_999_999  # the last microsecond that a datetime can say

# Columns whose values repeat. The others would fill a dictionary for nothing.
_REPEATED = [
    *("topic", "brokerName", "queueId", "tags", "flag", "sysFlag", "bornHost", "storeHost"),
    *("reconsumeTimes", "preparedTransactionOffset", "properties.key_value.key", DAY, HOUR),
]


class PartWriter:
    """Writes batches of messages below a table's folder. `close` ends the last files and says what was written.

    `attempt` becomes a part of the files' names. `more` are columns besides those of a message. `whole` keeps the
    partition's columns in the files, too, as Iceberg needs it; Delta has them in its log alone.
    """

    def __init__(
        self,
        storage: Storage,
        table: str,
        attempt: str,
        *,
        more: pa.Schema | None = None,
        hourly: bool = False,
        whole: bool = False,
        roll: int = ROLL,
        group: int = GROUP,
        buffer: int = BUFFER,
    ) -> None:
        self._storage = storage
        self._table = table
        self._name = f"part-{re.sub(r'[^A-Za-z0-9_.]+', '-', attempt)}-{uuid.uuid4().hex[:12]}"
        self._hourly, self._whole = hourly, whole
        self._roll, self._group, self._buffer = roll, group, max(buffer, group)
        full = table_schema(more, hourly)
        self._input = pa.schema([each for each in full if not is_partition(each.name)])
        self._schema = full if whole else self._input
        self._filesystem = storage.filesystem()
        self._waiting: dict[int, _Waiting] = {}
        self._open: dict[int, PartFile] = {}
        self._files: list[DataFile] = []
        self._count = self._flushes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        if kind is not None:
            self.abort()

    @property
    def schema(self) -> pa.Schema:
        """What batches must have."""
        return self._input

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch with the columns of `schema`, in any order. Raises LakeError if it cannot be stored."""
        if not batch.num_rows:
            return
        batch = self._fitting(batch)
        for slot, rows in _by_slot(batch, _HOUR_US if self._hourly else _DAY_US):
            waiting = self._waiting.setdefault(slot, _Waiting())
            waiting.add(rows)
            if waiting.size >= self._group:
                self._flush(slot)
        while sum(each.size for each in self._waiting.values()) > self._buffer:
            self._flush(max(self._waiting, key=lambda slot: self._waiting[slot].size))

    def close(self) -> list[DataFile]:
        """End all files. What they are, in the order of their days."""
        for slot in sorted(self._waiting):
            self._flush(slot)
        for slot in sorted(self._open):
            self._end(slot)
        return sorted(self._files, key=lambda file: file.path)

    def abort(self) -> None:
        """Remove what was written, as far as that is possible."""
        for part in self._open.values():
            part.discard()
        for file in self._files:
            with suppress(OSError):
                self._filesystem.delete_file(self._storage.path(f"{self._table}/{file.path}"))
        self._open, self._files, self._waiting = {}, [], {}

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._input):
            return batch
        columns = []
        for wanted in self._input:
            found = batch.schema.get_field_index(wanted.name)
            if found < 0:
                columns.append(pa.nulls(batch.num_rows, wanted.type))
            elif batch.column(found).type.equals(wanted.type):
                columns.append(batch.column(found))
            else:
                raise ConfigError(
                    f"column {wanted.name} is {batch.column(found).type}, but the table's is {wanted.type}"
                )
        return pa.RecordBatch.from_arrays(columns, schema=self._input)

    def _flush(self, slot: int) -> None:
        rows = self._waiting.pop(slot).rows()
        first, last = _key(rows, 0), _key(rows, rows.num_rows - 1)
        part = self._open.get(slot)
        if part is not None and (part.last >= first or part.size >= self._roll):
            self._end(slot)
            part = None
        if part is None:
            if len(self._open) >= _OPEN:
                self._end(min(self._open, key=lambda each: self._open[each].used))
            part = self._open[slot] = self._begin(slot)
        self._flushes += 1
        part.write(rows, last, self._flushes)

    def _begin(self, slot: int) -> PartFile:
        days, hour = divmod(slot, 24) if self._hourly else (slot, None)
        partition = partition_from_days(days, hour)
        path = f"{folder(partition)}/{self._name}-{self._count:04d}.parquet"
        self._count += 1
        return PartFile(self._storage, self._filesystem, self._table, path, partition, self._schema)

    def _end(self, slot: int) -> None:
        self._files.append(self._open[slot].close())
        del self._open[slot]


class _Waiting:
    """Rows of one day that are not written yet."""

    __slots__ = ("_batches", "size")

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.size += batch.nbytes

    def rows(self) -> pa.Table:
        """All rows, by broker, queue and offset."""
        return ordered(pa.Table.from_batches(self._batches))


def is_ordered(table: pa.Table) -> bool:
    """Whether the rows stand by broker, queue and offset."""
    return _is_ordered(_keys(table))


def ordered(table: pa.Table) -> pa.Table:
    """The rows by broker, queue and offset."""
    keys = _keys(table)
    if _is_ordered(keys):
        return table
    order = np.lexsort(keys[::-1])
    cuts = np.flatnonzero(np.diff(order) != 1) + 1
    if len(cuts) > table.num_rows // _LONG:
        return table.take(pa.array(order))
    # Long runs need not be copied.
    edges = [0, *cuts.tolist(), len(order)]
    return pa.concat_tables(table.slice(int(order[start]), end - start) for start, end in pairwise(edges))


def _is_ordered(keys: Sequence[NDArray[Any]]) -> bool:
    follows = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in reversed(keys):
        follows = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & follows)
    return bool(np.all(follows))


def _keys(table: pa.Table) -> list[NDArray[Any]]:
    """What rows are ordered by, as numbers: mostly there is one broker, and then it does not matter."""
    numbers = [table[name].to_numpy() for name in ORDER[1:]]
    brokers = pc.min_max(table[ORDER[0]])
    if brokers["min"].as_py() == brokers["max"].as_py():
        return numbers
    found = pc.dictionary_encode(table[ORDER[0]].combine_chunks(), null_encoding="encode")
    names = [name or "" for name in found.dictionary.to_pylist()]
    rank = np.argsort(np.argsort(np.array(names, object)))
    return [rank[found.indices.to_numpy()], *numbers]


def _key(table: pa.Table, row: int) -> tuple[Any, ...]:
    return tuple(table[name][row].as_py() or "" if name == ORDER[0] else table[name][row].as_py() for name in ORDER)


def _by_slot(batch: pa.RecordBatch, width: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each day or hour. Messages are stored in the order of time, so mostly there is one, or a few runs."""
    times = pc.fill_null(batch.column("storeTimestamp").cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    slots: NDArray[np.int64] = np.clip(times, 0, _FAR) // width
    if slots[0] == slots[-1] and np.all(slots == slots[0]):
        return [(int(slots[0]), batch)]
    cuts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
    if len(cuts) <= 16:
        return [(int(slots[start]), batch.slice(start, end - start)) for start, end in pairwise(cuts)]
    return [(int(slot), batch.filter(pa.array(slots == slot))) for slot in np.unique(slots)]


class PartFile:
    """A file that is being written, row group by row group, each after the other in the order of rows."""

    def __init__(
        self, storage: Storage, filesystem: Any, table: str, path: str, partition: Mapping[str, str], schema: pa.Schema
    ) -> None:
        self.path = path
        self.last: tuple[Any, ...] = ()
        self.used = 0
        self._storage, self._filesystem, self._partition, self._schema = storage, filesystem, partition, schema
        self._place = storage.path(f"{table}/{path}")
        self._rows = 0
        self._stats = _Stats()
        try:
            if storage.is_local:
                filesystem.create_dir(posixpath.dirname(self._place), recursive=True)
            self._stream = filesystem.open_output_stream(self._place)
            self._writer = open_parquet(self._stream, schema)
        except (OSError, pa.ArrowException) as exc:
            self._delete()
            raise self._failed(exc) from exc

    @property
    def size(self) -> int:
        return int(self._stream.tell())

    def write(self, table: pa.Table, last: tuple[Any, ...] = (), used: int = 0) -> None:
        """Add a row group. `last` is the key of its last row."""
        self.last, self.used = last, used
        self._rows += table.num_rows
        self._stats.add(table)
        try:
            self._writer.write_table(with_partition(table, self._partition, self._schema), row_group_size=1 << 30)
        except (OSError, pa.ArrowException) as exc:
            raise self._failed(exc) from exc

    def close(self) -> DataFile:
        try:
            self._writer.close()
            size = self.size
            self._stream.close()
            if self._storage.is_local:
                _sync(self._place)
        except (OSError, pa.ArrowException) as exc:
            raise self._failed(exc) from exc
        stats = self._stats
        return DataFile(self.path, self._rows, size, self._partition, stats.minimum, stats.maximum, stats.nulls)

    def discard(self) -> None:
        """Remove the file, as far as that is possible: what is left, nobody refers to."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._stream.close()
        self._delete()

    def _delete(self) -> None:
        with suppress(OSError):
            self._filesystem.delete_file(self._place)

    def _failed(self, exc: BaseException) -> LakeError:
        return failed(self._storage, self._storage.uri(), exc)


def open_parquet(stream: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet file as all files of the lake are written."""
    names = [*schema.names, "properties.key_value.key"]
    return pq.ParquetWriter(
        stream,
        schema,
        compression="zstd",
        use_dictionary=[name for name in _REPEATED if name in names],
        write_statistics=[name for name in (*SKIPPED_BY, DAY, HOUR) if name in names],
        store_schema=False,
        version="2.6",
    )


def with_partition(table: pa.Table, partition: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    """`table` with the partition's columns, if the file's schema has them."""
    for field in schema:
        if is_partition(field.name):
            value = pa.scalar(partition[field.name]).cast(field.type)
            table = table.append_column(field, pa.repeat(value, table.num_rows))
    return table.select(schema.names)


class _Stats:
    """The least and the largest value of the columns that readers skip by, and how many nulls they have."""

    def __init__(self) -> None:
        self.minimum: dict[str, object] = {}
        self.maximum: dict[str, object] = {}
        self.nulls: dict[str, int] = {}

    def add(self, table: pa.Table) -> None:
        for name in SKIPPED_BY:
            column = table[name]
            self.nulls[name] = self.nulls.get(name, 0) + column.null_count
            least, most = _bounds(column)
            if least is not None and most is not None:
                self.minimum[name] = min(self.minimum.get(name, least), least)
                self.maximum[name] = max(self.maximum.get(name, most), most)


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    if not pa.types.is_timestamp(column.type):
        return found["min"].as_py(), found["max"].as_py()
    return _moment(found["min"].value), _moment(found["max"].value)


def _moment(microseconds: int | None) -> datetime | None:
    """A clock may be far off; a bound that no datetime can say is one that no query asks for."""
    if microseconds is None:
        return None
    return _EPOCH + timedelta(microseconds=min(max(microseconds, -_FAR // 8), _FAR))


def failed(storage: Storage, where: str, exc: BaseException) -> LakeError:
    """One sentence on why a file of the lake was not written or read."""
    # delta-rs raises OSErrors that have the number in their text alone.
    if getattr(exc, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or f"(os error {errno.ENOSPC})" in str(exc):
        return LakeError(f"the disk of {where} is full")
    return LakeError(f"{where}: {storage.masked(exc)}")


def _sync(path: str) -> None:
    """A commit must never name a file that a power failure can take back."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_parts(
    storage: Storage, table: str, attempt: str, batches: Sequence[pa.RecordBatch], **options: Any
) -> list[DataFile]:
    """All of `batches` at once."""
    with PartWriter(storage, table, attempt, **options) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()
