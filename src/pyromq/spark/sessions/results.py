"""The result of a query, row by row: plain values for text, or a Parquet file. Never more than a few rows in memory."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

_IN_BATCH = 10_000


def rows(frame: DataFrame, limit: int | None = None) -> Iterator[tuple[Any, ...]]:
    """The rows as tuples of Python's own values. Times carry their zone; structs are dicts."""
    wanted = frame if limit is None else frame.limit(limit)
    for row in wanted.toLocalIterator(prefetchPartitions=True):
        yield tuple(map(_plain, row))


def write_parquet(frame: DataFrame, path: Path) -> int:
    """Write one Parquet file; gives the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.schema, timezone="UTC")
    count = 0
    waiting: list[tuple[Any, ...]] = []

    def batch() -> pa.Table:
        columns = zip(*waiting, strict=True) if waiting else ([] for _ in schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for row in rows(frame):
            waiting.append(row)
            count += 1
            if len(waiting) == _IN_BATCH:
                writer.write_table(batch())
                waiting.clear()
        if waiting or not count:
            writer.write_table(batch())
    return count


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        # Spark gives times in the zone of this machine, and does not say so.
        return value.astimezone()
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
