"""Reads the files of a table: which of them a query needs, which task reads which, and the rows of one.

A file says in the table's log which days, times, queues and offsets it has, and each row group of it again. A filter
that leaves nothing of a file means that the file is not opened. Filters only say where not to look; Spark applies
them all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import datasource as spark

from pyromq.errors import ConfigError

from ..schema import TIMESTAMP
from .layout import DAY, HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql.datasource import Filter

    from pyromq.protocol.message_queue import MessageQueue

    from .storage import Storage
    from .table import DataFile

    # The first moment, and the one after the last; None for no bound.
    Between = tuple[datetime | None, datetime | None]

STORED = "storeTimestamp"
_ROWS = 10_000  # of a batch
_BOUNDED = {
    name.lower(): name
    for name in ("brokerName", "queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")
}
_LOWER = (spark.GreaterThan, spark.GreaterThanOrEqual)
_UPPER = (spark.LessThan, spark.LessThanOrEqual)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bounds of columns, inclusive, that all rows of interest lie within; by the columns' names."""

    least: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, Any] = field(default_factory=dict)
    days: tuple[date | None, date | None] = (None, None)

    def may_have(self, minimum: Mapping[str, Any], maximum: Mapping[str, Any]) -> bool:
        """Whether there can be a row of interest where these are the least and largest values."""
        for name, value in self.least.items():
            if name in maximum and _is_less(maximum[name], value):
                return False
        return not any(name in minimum and _is_less(value, minimum[name]) for name, value in self.most.items())

    def may_have_day(self, partition: Mapping[str, str]) -> bool:
        low, high = self.days
        day = date.fromisoformat(partition[DAY]) if DAY in partition else None
        return day is None or ((low is None or day >= low) and (high is None or day <= high))


def wanted(filters: Iterable[Filter], times: Between = (None, None)) -> Wanted:
    """What filters, joined by AND, and two times say about where rows of interest are."""
    least: dict[str, Any] = {} if times[0] is None else {STORED: times[0]}
    most: dict[str, Any] = {} if times[1] is None else {STORED: times[1]}
    days: tuple[date | None, date | None] = (None, None)
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) != 1:
            continue
        low, high = _bounds(each)
        column = attribute[0].lower()
        if column == DAY:
            days = _narrowed(days, low, high)
        elif column in _BOUNDED:
            name = _BOUNDED[column]
            if low is not None and (name not in least or _is_less(least[name], low)):
                least[name] = low
            if high is not None and (name not in most or _is_less(high, most[name])):
                most[name] = high
    return Wanted(least, most, days)


def _bounds(each: Any) -> tuple[Any, Any]:
    """The least and the largest value that a filter lets through, as far as it can be said."""
    if isinstance(each, spark.EqualTo):
        return each.value, each.value
    if isinstance(each, spark.In):
        values = [value for value in each.value if value is not None]
        return (min(values), max(values)) if values else (None, None)
    if isinstance(each, _LOWER):
        return each.value, None
    return (None, each.value) if isinstance(each, _UPPER) else (None, None)


def _narrowed(days: tuple[date | None, date | None], low: Any, high: Any) -> tuple[date | None, date | None]:
    lows = [day for day in (days[0], low) if isinstance(day, date)]
    highs = [day for day in (days[1], high) if isinstance(day, date)]
    return max(lows, default=None), min(highs, default=None)


def _is_less(one: Any, other: Any) -> bool:
    """Whether one comes before the other; False if they cannot be compared."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return _aware(one) < _aware(other)
    try:
        return bool(one < other)
    except TypeError:
        return False


def _aware(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


@dataclass(frozen=True)
class FilePart(spark.InputPartition):
    """What a task reads: files, and of these only some offsets of each queue, if `ranges` says so."""

    files: tuple[DataFile, ...]
    ranges: Mapping[MessageQueue, tuple[int, int]] | None = None


def chosen(files: Iterable[DataFile], what: Wanted) -> list[DataFile]:
    """The files that can have rows of interest."""
    return [
        file
        for file in files
        if file.rows and what.may_have(file.minimum, file.maximum) and what.may_have_day(file.partition)
    ]


def of_ranges(files: Iterable[DataFile], ranges: Mapping[MessageQueue, tuple[int, int]]) -> list[DataFile]:
    """The files that can have some of these offsets."""
    wanted = [
        Wanted(
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "queueOffset": start},
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "queueOffset": end - 1},
        )
        for queue, (start, end) in ranges.items()
        if start < end
    ]
    return [file for file in files if file.rows and any(each.may_have(file.minimum, file.maximum) for each in wanted)]


def parts(
    files: Sequence[DataFile],
    partition_bytes: int,
    ranges: Mapping[MessageQueue, tuple[int, int]] | None = None,
) -> list[FilePart]:
    """The tasks: files together up to a size, in their order."""
    made: list[list[DataFile]] = []
    size = 0
    for file in files:
        if not made or size + file.size > partition_bytes:
            made.append([])
            size = 0
        made[-1].append(file)
        size += file.size
    return [FilePart(tuple(each), ranges) for each in made]


class FileReader:
    """Reads files of a table as batches with the columns that Spark wants."""

    def __init__(
        self, storage: Storage, table: str, schema: pa.Schema, what: Wanted, between: Between = (None, None)
    ) -> None:
        """`what` only says where not to look; rows that were not stored `between` two times are left out."""
        self._storage = storage
        self._table = table
        self._schema = schema
        self._what = what
        self._between = between

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        filesystem = self._storage.filesystem()
        for file in part.files:
            place = file.path if _is_whole(file.path) else f"{self._table}/{file.path}"
            path = _inside(self._storage, file.path) if _is_whole(file.path) else self._storage.path(place)
            try:
                with filesystem.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
                    yield from self._rows(parquet, file, part.ranges)
            except FileNotFoundError as exc:
                raise ConfigError(
                    f"{self._storage.uri(place)} is gone: the version that was being read was vacuumed; read again"
                ) from exc

    def _rows(
        self, parquet: pq.ParquetFile, file: DataFile, ranges: Mapping[MessageQueue, tuple[int, int]] | None
    ) -> Iterator[pa.RecordBatch]:
        there = {name.lower(): name for name in parquet.schema_arrow.names}
        groups = [each for each in range(parquet.num_row_groups) if self._has_rows(parquet.metadata.row_group(each))]
        columns = [there[each.name.lower()] for each in self._schema if each.name.lower() in there]
        needed = [] if ranges is None else ["brokerName", "queueId", "queueOffset"]
        needed += [] if self._between == (None, None) else [STORED]
        columns += [name for name in needed if name not in columns]
        for batch in parquet.iter_batches(_ROWS, row_groups=groups, columns=columns or None) if groups else ():
            rows = batch if ranges is None else batch.filter(pa.array(_within(batch, ranges)))
            rows = between(rows, self._between)
            if rows.num_rows:
                yield self._fitting(rows, file, there)

    def _has_rows(self, group: Any) -> bool:
        minimum, maximum = {}, {}
        for number in range(group.num_columns):
            column = group.column(number)
            name = column.path_in_schema
            if name in self._what.least or name in self._what.most:
                stats = column.statistics
                if stats is not None and stats.has_min_max:
                    minimum[name], maximum[name] = stats.min, stats.max
        return self._what.may_have(minimum, maximum)

    def _fitting(self, batch: pa.RecordBatch, file: DataFile, there: Mapping[str, str]) -> pa.RecordBatch:
        columns = []
        for each in self._schema:
            name = there.get(each.name.lower())
            if name is not None:
                found = batch.column(name)
            elif each.name.lower() in (DAY, HOUR) and each.name.lower() in file.partition:
                value = pa.scalar(file.partition[each.name.lower()])
                found = pa.repeat(value, batch.num_rows)
            else:  # the column is younger than the file
                found = pa.nulls(batch.num_rows, each.type)
            columns.append(found if found.type == each.type else found.cast(each.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _within(batch: pa.RecordBatch, ranges: Mapping[MessageQueue, tuple[int, int]]) -> NDArray[np.bool_]:
    brokers = batch.column("brokerName").dictionary_encode()
    names = brokers.dictionary.to_pylist()
    codes = brokers.indices.to_numpy(zero_copy_only=False)
    ids = batch.column("queueId").to_numpy(zero_copy_only=False)
    offsets = batch.column("queueOffset").to_numpy(zero_copy_only=False)
    found = np.zeros(batch.num_rows, np.bool_)
    places = {(queue.broker_name, queue.queue_id): both for queue, both in ranges.items()}
    keys = codes.astype(np.int64) * (1 << 32) + ids.astype(np.int64)
    for key in np.unique(keys):
        code, number = divmod(int(key), 1 << 32)
        start, end = places.get((names[code], number), (0, 0))
        if start < end:
            found |= (keys == key) & (offsets >= start) & (offsets < end)
    return found


def between(batch: pa.RecordBatch, times: Between) -> pa.RecordBatch:
    """The rows that were stored from the first time on, and before the second."""
    since, until = times
    if since is not None:
        batch = batch.filter(pc.greater_equal(batch.column(STORED), pa.scalar(since, TIMESTAMP)))
    if until is not None:
        batch = batch.filter(pc.less(batch.column(STORED), pa.scalar(until, TIMESTAMP)))
    return batch


def _is_whole(path: str) -> bool:
    """Whether a path does not begin at the table's folder: files that others brought in may lie anywhere."""
    return "://" in path or path.startswith("/")


def _inside(storage: Storage, path: str) -> str:
    from dataclasses import replace

    return replace(storage, root=path).path() if "://" in path else path
