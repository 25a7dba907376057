"""What tests of the sink share: options, Arrow rows, and the messages that came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyromq.spark.options import SinkOptions, parse
from pyromq.spark.sink.columns import sink_columns
from pyromq.spark.sink.messages import RowsOut

if TYPE_CHECKING:
    from pyromq.spark.sink.identity import Identity

PROPERTIES = pa.map_(pa.string(), pa.string())


def sink_options(**given: Any) -> SinkOptions:
    return parse(SinkOptions, {"namesrv": "ns:9876", "topic": "orders", **{key: str(given[key]) for key in given}})


def batch_of(**columns: Any) -> pa.RecordBatch:
    """Rows given as columns; lists of plain values, or Arrow arrays."""
    return pa.record_batch(
        {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
    )


def rows_of(batch: pa.RecordBatch, options: SinkOptions | None = None, identity: Identity | None = None) -> list[Any]:
    options = options or sink_options()
    columns = sink_columns(from_arrow_schema(batch.schema), options)
    return list(RowsOut(columns, options, identity).of(batch))
