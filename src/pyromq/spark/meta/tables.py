"""The tables of `rocketmq_meta` and their columns.

If a broker did not answer, its rows are there all the same: its figures are null, and `error` says
why. A zero always comes from a broker.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark

from pyromq.errors import ConfigError

from ..schema import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: dict[str, tuple[spark.DataType, pa.DataType]] = {
    "string": (spark.StringType(), pa.string()),
    "int": (spark.IntegerType(), pa.int32()),
    "bigint": (spark.LongType(), pa.int64()),
    "double": (spark.DoubleType(), pa.float64()),
    "boolean": (spark.BooleanType(), pa.bool_()),
    "timestamp": (spark.TimestampType(), TIMESTAMP),
    "map": (spark.MapType(spark.StringType(), spark.StringType()), pa.map_(pa.string(), pa.string())),
}


@dataclass(frozen=True, slots=True)
class MetaTable:
    """One table: its columns with their kinds, in the order of `SELECT *`."""

    name: str
    columns: Mapping[str, str]

    def spark_schema(self) -> spark.StructType:
        return spark.StructType([spark.StructField(name, _KINDS[kind][0]) for name, kind in self.columns.items()])

    def arrow_schema(self, wanted: spark.StructType) -> pa.Schema:
        """What Spark expects for `wanted`, which a user may have written. ConfigError for unknown columns."""
        known = {name.lower(): name for name in self.columns}
        fields = []
        for field in wanted.fields:
            name = known.get(field.name.lower())
            if name is None:
                raise ConfigError(
                    f"table {self.name} has no column {field.name!r}; {_nearest(field.name, self.columns)}"
                )
            expected, arrow = _KINDS[self.columns[name]]
            if field.dataType != expected:
                said = f"{expected.simpleString()}, not {field.dataType.simpleString()}"
                raise ConfigError(f"column {field.name} is {said}; cast it in the query")
            fields.append(pa.field(field.name, arrow))
        return pa.schema(fields)


TABLES = {
    table.name: table
    for table in (
        # A topic on a broker. perm has RocketMQ's bits: 4 read, 2 write, 1 inherit.
        MetaTable(
            "topics",
            {
                "topic": "string",
                "kind": "string",  # user, retry, dlq or system
                "cluster": "string",
                "brokerName": "string",
                "readQueues": "int",
                "writeQueues": "int",
                "perm": "int",
                "ordered": "boolean",
                "attributes": "map",
                "error": "string",
            },
        ),
        MetaTable(
            "queues",
            {
                "topic": "string",
                "brokerName": "string",
                "queueId": "int",
                "minOffset": "bigint",
                "maxOffset": "bigint",
                "messages": "bigint",
                "lastStoreTimestamp": "timestamp",
                "error": "string",
            },
        ),
        # A group in a queue; a group that never read anything has one row without a queue.
        MetaTable(
            "groups",
            {
                "group": "string",
                "topic": "string",
                "brokerName": "string",
                "queueId": "int",
                "brokerOffset": "bigint",
                "consumerOffset": "bigint",
                "lag": "bigint",
                "lastConsumedTimestamp": "timestamp",
                "error": "string",
            },
        ),
        # Rates are per second, over the last ten of them.
        MetaTable(
            "brokers",
            {
                "cluster": "string",
                "brokerName": "string",
                "brokerId": "bigint",
                "address": "string",
                "version": "string",
                "startTimestamp": "timestamp",
                "inTps": "double",
                "outTps": "double",
                "logBytes": "bigint",
                "oldestTimestamp": "timestamp",
                "diskUsed": "double",  # 0 to 1, of the file system with the commit log
                "error": "string",
            },
        ),
    )
}


def table(name: str) -> MetaTable:
    """The table with this name. ConfigError suggests the nearest."""
    found = TABLES.get(name.lower())
    if found is None:
        raise ConfigError(f"there is no table {name!r}; {_nearest(name, TABLES)}")
    return found


def _nearest(name: str, known: Mapping[str, object]) -> str:
    spelt = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelt, 1, 0.5)
    return f"did you mean {spelt[near[0]]}?" if near else f"available: {', '.join(known)}"
