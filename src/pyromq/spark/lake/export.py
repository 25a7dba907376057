"""A version of a table as plain Parquet files, for whoever has no use for a table format.

    <folder>/dt=2026-01-31/part-….parquet        as in the table, without its log

A file that belongs to the export as a whole is copied as it is; of the others, the rows that do are written anew. The
folder must be empty: nothing tells what is in plain files already, so nothing is added to them.
"""

from __future__ import annotations

import posixpath
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from pyromq.errors import ConfigError

from .parquet_parts import failed, open_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .storage import Storage
    from .table import DataFile, LakeTable, Snapshot

_BATCH = 1 << 14


def export(
    table: LakeTable,
    snapshot: Snapshot,
    target: Storage,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[int, int]:
    """Write the messages stored from `since` up to `until` to `target`. How many files and rows. Raises LakeError."""
    files = table.files(snapshot, since, until)
    filesystem = target.filesystem()
    made: list[str] = []
    count = rows = done = 0
    total = sum(file.size for file in files)
    try:
        _refuse_full(filesystem, target)
        for file in files:
            place = target.path(file.path)
            if target.is_local:
                filesystem.create_dir(posixpath.dirname(place), recursive=True)
            made.append(place)
            written = _write(table, file, filesystem, place, since, until)
            done += file.size
            progress(done, total)
            if written:
                count, rows = count + 1, rows + written
            else:
                filesystem.delete_file(made.pop())
    except (OSError, pa.ArrowException) as exc:
        _remove(filesystem, made)
        raise failed(target, target.uri(), exc) from exc
    except BaseException:
        _remove(filesystem, made)
        raise
    return count, rows


def _refuse_full(filesystem: Any, target: Storage) -> None:
    found = filesystem.get_file_info(fs.FileSelector(target.path(), allow_not_found=True))
    if found:
        raise ConfigError(f"{target.uri()} is not empty; export to a new folder")


def _write(
    table: LakeTable, file: DataFile, filesystem: Any, place: str, since: datetime | None, until: datetime | None
) -> int:
    source, path = table.storage.filesystem(), table.storage.path(f"{table.name}/{file.path}")
    first, last = file.minimum.get("storeTimestamp"), file.maximum.get("storeTimestamp")
    begins = since is None or (isinstance(first, datetime) and first >= since)
    ends = until is None or (isinstance(last, datetime) and last < until)
    if begins and ends and not file.nulls.get("storeTimestamp"):
        fs.copy_files(path, place, source_filesystem=source, destination_filesystem=filesystem)
        return file.rows
    rows = 0
    with source.open_input_file(path) as stream, filesystem.open_output_stream(place) as output:
        parquet = pq.ParquetFile(stream)
        with open_parquet(output, parquet.schema_arrow) as writer:
            for batch in parquet.iter_batches(_BATCH):
                kept = batch.filter(_within(batch, since, until))
                rows += kept.num_rows
                writer.write_batch(kept)
    return rows


def _within(batch: pa.RecordBatch, since: datetime | None, until: datetime | None) -> pa.Array:
    stored = batch.column("storeTimestamp")
    inside = pc.is_valid(stored)
    if since is not None:
        inside = pc.and_(inside, pc.greater_equal(stored, pa.scalar(since, stored.type)))
    if until is not None:
        inside = pc.and_(inside, pc.less(stored, pa.scalar(until, stored.type)))
    return inside


def _remove(filesystem: Any, places: Sequence[str]) -> None:
    for place in places:
        with suppress(OSError):
            filesystem.delete_file(place)
