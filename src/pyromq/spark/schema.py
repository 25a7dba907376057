"""The columns of a message in Spark and Arrow, and checks of the columns a user asks for.

Spark takes an Arrow batch only if its schema equals the planned one in every name, type and position, and notices a
difference only in a running task. So a user's schema is checked against this table when the query is
planned, and the batches are then made from the very schema that Spark handed in.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as spark

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())

# Name, Spark type, Arrow type; in the order of `SELECT *`.
_FIELDS: tuple[tuple[str, spark.DataType, pa.DataType], ...] = (
    ("topic", spark.StringType(), pa.string()),
    ("brokerName", spark.StringType(), pa.string()),
    ("queueId", spark.IntegerType(), pa.int32()),
    ("queueOffset", spark.LongType(), pa.int64()),
    ("physicalOffset", spark.LongType(), pa.int64()),
    ("msgId", spark.StringType(), pa.string()),
    ("offsetMsgId", spark.StringType(), pa.string()),
    ("keys", spark.StringType(), pa.string()),
    ("tags", spark.StringType(), pa.string()),
    ("properties", spark.MapType(spark.StringType(), spark.StringType()), PROPERTIES),
    ("body", spark.BinaryType(), pa.binary()),
    ("flag", spark.IntegerType(), pa.int32()),
    ("sysFlag", spark.IntegerType(), pa.int32()),
    ("bodyCRC", spark.IntegerType(), pa.int32()),
    ("bornTimestamp", spark.TimestampType(), TIMESTAMP),
    ("storeTimestamp", spark.TimestampType(), TIMESTAMP),
    ("bornHost", spark.StringType(), pa.string()),
    ("storeHost", spark.StringType(), pa.string()),
    ("reconsumeTimes", spark.IntegerType(), pa.int32()),
    ("preparedTransactionOffset", spark.LongType(), pa.int64()),
    ("storeSize", spark.IntegerType(), pa.int32()),
)

COLUMNS = tuple(name for name, _, _ in _FIELDS)
ARROW_TYPES = {name: arrow for name, _, arrow in _FIELDS}
_SPARK_TYPES = {name: kind for name, kind, _ in _FIELDS}
_CANONICAL = {name.lower(): name for name in COLUMNS}

# The full row as Arrow has it.
ARROW_SCHEMA = pa.schema([pa.field(name, arrow) for name, _, arrow in _FIELDS])


def column_name(name: str) -> str:
    """`name` as this table spells it; Spark ignores case. ConfigError suggests the nearest name."""
    found = _CANONICAL.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), _CANONICAL, 1, 0.5)
        advice = f"; did you mean {_CANONICAL[near[0]]}?" if near else f"; available: {', '.join(COLUMNS)}"
        raise ConfigError(f"a message has no column {name!r}{advice}")
    return found


def parse_columns(text: str) -> tuple[str, ...]:
    """The columns of the option `columns`, separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ConfigError(f"columns must be column names separated by commas, not {text!r}")
    columns = tuple(map(column_name, names))
    _refuse_repeated(columns)
    return columns


def spark_schema(columns: Sequence[str] = ()) -> spark.StructType:
    """The schema of a read with these columns, all by default."""
    return spark.StructType([spark.StructField(name, _SPARK_TYPES[name]) for name in columns or COLUMNS])


def with_metadata(schema: spark.StructType, metadata: dict[str, str]) -> spark.StructType:
    """`schema` whose first field carries `metadata`: the only part of a source that a catalog keeps."""
    first, *rest = schema.fields
    return spark.StructType([spark.StructField(first.name, first.dataType, first.nullable, metadata), *rest])


def metadata_of(schema: spark.StructType) -> dict[str, Any]:
    """What `with_metadata` put there; empty for a schema that a user wrote."""
    return schema.fields[0].metadata if schema.fields else {}


def arrow_schema(wanted: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for `wanted`, which a user may have written: names, order and nullability.

    Raises ConfigError for unknown columns and wrong types.
    """
    fields = []
    for field in wanted.fields:
        name = column_name(field.name)
        arrow = ARROW_TYPES[name]
        kind, expected = field.dataType, _SPARK_TYPES[name]
        if isinstance(kind, spark.MapType) and isinstance(expected, spark.MapType):
            if not kind.valueContainsNull:
                arrow = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
            kind = spark.MapType(kind.keyType, kind.valueType)
        if kind != expected:
            raise ConfigError(
                f"column {field.name} is {expected.simpleString()}, not {kind.simpleString()}; cast it in the query"
            )
        fields.append(pa.field(field.name, arrow, nullable=field.nullable))
    if not fields:
        raise ConfigError("the schema has no columns")
    _refuse_repeated(column_name(field.name) for field in wanted.fields)
    return pa.schema(fields)


def _refuse_repeated(columns: Iterable[str]) -> None:
    seen = set()
    for name in columns:
        if name in seen:
            raise ConfigError(f"column {name} appears twice")
        seen.add(name)
