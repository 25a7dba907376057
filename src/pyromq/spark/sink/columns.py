"""The columns of rows to send: their meaning and types, and which columns are ignored.

The schema is checked when a write is planned, so that a wrong column is reported before anything is sent. What a broker
or a read sets (offsets, ids, times, hosts) is ignored: rows of one topic can be written to another unchanged.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from pyromq.errors import ConfigError

from ..schema import COLUMNS

if TYPE_CHECKING:
    from ..options import SinkOptions

_TEXT = (spark.StringType,)
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)

# Name, allowed types, and how errors name these.
_COLUMNS: dict[str, tuple[tuple[type[spark.DataType], ...], str]] = {
    "body": ((spark.StringType, spark.BinaryType), "binary or string"),
    "topic": (_TEXT, "string"),
    "tags": (_TEXT, "string"),
    "keys": ((spark.StringType, spark.ArrayType), "string or array<string>"),
    "properties": ((spark.MapType,), "map<string,string>"),
    "flag": (_WHOLE, "int"),
    "shardingKey": (_TEXT, "string"),
    "delayLevel": (_WHOLE, "int"),
    "deliverTimestamp": ((spark.TimestampType, spark.LongType), "timestamp, or bigint of milliseconds"),
    "dedupKey": (_TEXT, "string"),
    "queueId": (_WHOLE, "int"),
    "brokerName": (_TEXT, "string"),
}
_CANONICAL = {name.lower(): name for name in (*_COLUMNS, *COLUMNS)}
_ONLY_TO_KEEP_QUEUES = ("queueId", "brokerName")
_DELAYS = ("delayLevel", "deliverTimestamp")

# A row with a value in one of these was read from a topic.
STORED = ("queueOffset", "physicalOffset", "msgId", "offsetMsgId", "storeTimestamp")


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The position of each used column in a row, and of those that show that a row was read."""

    places: dict[str, int]
    stored: tuple[int, ...]


def sink_columns(schema: spark.StructType, options: SinkOptions) -> SinkColumns:
    """The meaning of the columns of `schema`. Raises ConfigError for missing, wrong or unknown ones."""
    found: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = _CANONICAL.get(field.name.lower())
        if name is None:
            if not options.ignore_extra_columns:
                raise _unknown(field.name)
            continue
        if name in found:
            raise ConfigError(f"column {name} appears twice")
        found[name] = place
        if name in _COLUMNS:
            _check_type(name, field.dataType)
    if "body" not in found:
        raise ConfigError(f"column body is missing; the columns are {', '.join(schema.fieldNames()) or 'none'}")
    if options.topic is None and "topic" not in found:
        raise ConfigError("no topic to write to: set option topic, or add a column topic")
    passed_over = () if options.keep_queue_id else _ONLY_TO_KEEP_QUEUES
    places = {name: place for name, place in found.items() if name in _COLUMNS and name not in passed_over}
    if options.keep_queue_id and "queueId" not in places:
        raise ConfigError("keepQueueId=true needs a column queueId")
    if options.is_effectively_once:
        _check_effectively_once(places)
    return SinkColumns(places, tuple(found[name] for name in STORED if name in found))


def _check_type(name: str, kind: spark.DataType) -> None:
    types, said = _COLUMNS[name]
    fits = isinstance(kind, types)
    if isinstance(kind, spark.ArrayType):
        fits = fits and isinstance(kind.elementType, spark.StringType)
    elif isinstance(kind, spark.MapType):
        fits = fits and isinstance(kind.keyType, spark.StringType) and isinstance(kind.valueType, spark.StringType)
    if not fits:
        raise ConfigError(f"column {name} must be {said}, not {kind.simpleString()}; cast it in the query")


def _check_effectively_once(places: dict[str, int]) -> None:
    # A task keeps to one queue, where it can check what is there already. A delayed message is not there yet.
    if "shardingKey" in places:
        raise ConfigError(
            "guarantee=effectively-once sends all rows of a task to one queue, so a column shardingKey is not allowed"
        )
    for name in _DELAYS:
        if name in places:
            raise ConfigError(
                f"guarantee=effectively-once cannot find delayed messages again, so a column {name} is not allowed"
            )


def _unknown(name: str) -> ConfigError:
    near = difflib.get_close_matches(name.lower(), _CANONICAL, 1, 0.7)
    advice = f"did you mean {_CANONICAL[near[0]]}?" if near else f"available: {', '.join(_COLUMNS)}"
    return ConfigError(f"column {name} is not a message column; {advice}; ignoreExtraColumns=true ignores it")
