"""Several files of a partition become one, still ordered by broker, queue and offset. Runs in tasks, too.

Every file is ordered already, and is read once, from its beginning to its end, some rows at a time. Of what is read,
all that comes before what any file still has to give is put in order and written. So memory has a bound, as long as
not too many files are read at the same time: where there are more, they are merged in groups first, into files on the
local disk.
"""

from __future__ import annotations

import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ..source.read_ahead import ReadAhead
from .layout import ORDER, folder, is_partition
from .parquet_parts import PartFile, failed, open_parquet, ordered
from .table import DataFile, LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .storage import Storage

AT_ONCE = 64  # files that are read at the same time: each takes some MB for decompressing its columns
_MEMORY = 64 << 20  # Arrow bytes of all of them together
_GROUP = 16 << 20  # Arrow bytes of a row group of the result
_LEAST = 1 << 20  # Arrow bytes of one of them
_BUFFER = 1 << 17  # bytes that are fetched at once of each column of each file


@dataclass(frozen=True, slots=True)
class Merge:
    """What to merge: a unit of work that can be sent to a task."""

    storage: Storage
    table: str
    files: tuple[DataFile, ...]
    schema: pa.Schema  # of the table
    whole: bool  # as in PartWriter

    @property
    def partition(self) -> Mapping[str, str]:
        return self.files[0].partition

    def run(self) -> DataFile:
        """Write the one file. It is not part of the table before a commit says so. Raises LakeError."""
        with ExitStack() as stack:
            files: Sequence[str] = [self.storage.path(f"{self.table}/{file.path}") for file in self.files]
            filesystem = self.storage.filesystem()
            rows = pa.schema([field for field in self.schema if not is_partition(field.name)])
            local = None
            while len(files) > AT_ONCE:
                if local is None:
                    local = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-compact-")))
                files, filesystem = self._grouped(files, filesystem, rows, local), fs.LocalFileSystem()
            return self._merged(files, filesystem, rows)

    def _grouped(self, files: Sequence[str], filesystem: Any, rows: pa.Schema, local: Path) -> list[str]:
        """Files in groups, one after the other, each merged into a local file."""
        groups = [files[at : at + AT_ONCE] for at in range(0, len(files), AT_ONCE)]
        made = []
        for group in groups:
            path = local / f"{uuid.uuid4().hex}.parquet"
            with path.open("wb") as stream, open_parquet(stream, rows) as writer:
                for table in self._row_groups(group, filesystem, rows):
                    writer.write_table(table)
            made.append(str(path))
        return made

    def _merged(self, files: Sequence[str], filesystem: Any, rows: pa.Schema) -> DataFile:
        path = f"{folder(self.partition)}/part-compact-{uuid.uuid4().hex[:12]}-0000.parquet"
        schema = self.schema if self.whole else rows
        part = PartFile(self.storage, self.storage.filesystem(), self.table, path, self.partition, schema)
        try:
            for table in self._row_groups(files, filesystem, rows):
                part.write(table)
            done = part.close()
            if done.rows != (expected := sum(file.rows for file in self.files)):
                raise LakeError(f"{self.storage.uri(self.table)}: {done.rows} rows were read of {expected}")
        except BaseException:
            part.discard()
            raise
        return done

    def _row_groups(self, files: Sequence[str], filesystem: Any, rows: pa.Schema) -> Iterator[pa.Table]:
        room = max(_MEMORY // len(files), _LEAST)
        try:
            groups = _row_groups(_ordered([_Source(filesystem, path, rows, room) for path in files]))
            with ReadAhead(groups, lambda: None) as ahead:  # one is written while the next is read
                yield from ahead
        except (OSError, pa.ArrowException) as exc:
            if isinstance(exc, FileNotFoundError):
                raise LakeError(f"{self.storage.uri(self.table)} lacks a file: {self.storage.masked(exc)}") from exc
            raise failed(self.storage, self.storage.uri(self.table), exc) from exc


class _Source:
    """One file, read some rows at a time. `rows` are those that are read and not yet given away."""

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema, room: int) -> None:
        self._schema = schema
        self._stream = filesystem.open_input_file(path)
        # Without a buffer each column of a row group is fetched as a whole.
        self._parquet = pq.ParquetFile(self._stream, buffer_size=_BUFFER, pre_buffer=False)
        metadata = self._parquet.metadata
        size = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        at_once = metadata.num_rows if size <= room else room * metadata.num_rows // size
        columns = [name for name in self._parquet.schema_arrow.names if name in schema.names]
        self._batches = self._parquet.iter_batches(max(64, at_once), columns=columns, use_threads=False)
        self._left = metadata.num_rows
        self.rows = schema.empty_table()
        self.first = self.last = _Key("", 0, 0)
        self.fill()

    @property
    def is_read(self) -> bool:
        """Whether `rows` are the last ones."""
        return bool(self._left == 0)

    def fill(self) -> None:
        """Read on, if all rows were given away."""
        while not self.rows.num_rows and self._left:
            batch = next(self._batches)
            self._left -= batch.num_rows
            self.rows = _with_columns(pa.Table.from_batches([batch]), self._schema)
            self.first, self.last = _key(self.rows, 0), _key(self.rows, self.rows.num_rows - 1)
        if not self._left:
            self._batches = iter(())
            self._parquet.close()
            self._stream.close()

    def take(self, until: _Key | None) -> pa.Table | None:
        """The rows up to `until`, itself included; None if there are none."""
        if until is not None and self.first > until:
            return None
        if until is None or self.last <= until:
            taken, self.rows = self.rows, self._schema.empty_table()
            return taken
        count = _count_up_to(self.rows, until)
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        self.first = _key(self.rows, 0)
        return taken


class _Key(NamedTuple):
    broker: str
    queue: int
    offset: int


def _key(rows: pa.Table, row: int) -> _Key:
    return _Key(*(rows[name][row].as_py() for name in ORDER))


def _count_up_to(rows: pa.Table, key: _Key) -> int:
    """How many rows, which are ordered, do not come after `key`."""
    queues, offsets = rows["queueId"].to_numpy(), rows["queueOffset"].to_numpy()
    within = (queues < key.queue) | ((queues == key.queue) & (offsets <= key.offset))
    brokers = rows["brokerName"]
    before = pc.less(brokers, key.broker).to_numpy()
    same = pc.equal(brokers, key.broker).to_numpy()
    return int(np.count_nonzero(before | (same & within)))


def _ordered(sources: list[_Source]) -> Iterator[pa.Table]:
    """All rows of all files in tables that follow one another.

    What comes up to the smallest last row of those that still have more to read cannot be preceded by any of that.
    """
    while sources:
        until = min((source.last for source in sources if not source.is_read), default=None)
        pieces = [piece for source in sources if (piece := source.take(until)) is not None]
        yield ordered(pa.concat_tables(pieces))
        for source in sources:
            source.fill()
        sources = [source for source in sources if source.rows.num_rows]


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables joined and cut to row groups."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= _GROUP:
            whole = pa.concat_tables(waiting)
            step = max(1, whole.num_rows * _GROUP // size)
            full = whole.num_rows // step * step
            yield from (whole.slice(at, step) for at in range(0, full, step))
            rest = whole.slice(full)
            waiting, size = [rest] if rest.num_rows else [], rest.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Old files lack columns that were added since."""
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            found = table[field.name]
            columns.append(found if found.type.equals(field.type) else found.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
