"""Rows of a buffer, by either decoder, in a form that can be compared."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyromq.errors import CorruptRecord
from pyromq.spark.decode import columns, general_columns
from pyromq.spark.schema import ARROW_SCHEMA, TIMESTAMP


def rows_of(decode, buffer, schema=ARROW_SCHEMA, **options) -> list[dict[str, Any]]:
    """All rows, batch by batch, until the end or the CorruptRecord, which is the last element then."""
    rows, start = [], options.pop("start", 0)
    try:
        while start < len(buffer):
            batch, end, used = decode(buffer, schema, broker_name="broker-a", start=start, **options)
            batch.validate(full=True)
            assert end > start
            assert used > 0
            assert batch.schema.equals(schema if isinstance(schema, pa.Schema) else batch.schema)
            rows += plain_values(batch)
            start = end
    except CorruptRecord as corrupt:
        rows.append({"corrupt": (corrupt.reason, corrupt.offset)})
    return rows


def plain_values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows; times as integers, since Python's do not reach as far as Arrow's."""
    arrays = [column.view(pa.int64()) if column.type == TIMESTAMP else column for column in batch.columns]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names).to_pylist()
    return rows


def equal(buffer, schema=ARROW_SCHEMA, **options) -> list[dict[str, Any]]:
    fast = rows_of(columns.decode, buffer, schema, **options)
    assert fast == rows_of(general_columns.decode, buffer, schema, **options)
    return fast
