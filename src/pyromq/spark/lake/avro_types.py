"""Avro's types as Arrow's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyromq.errors import ConfigError

from ..schema import TIMESTAMP

_SIMPLE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "date": pa.date32(),
}


def arrow_type(schema: Any, named: dict[str, pa.DataType | None]) -> pa.DataType:
    """The type of what fastavro reads with this parsed schema. `named` knows the records seen so far.

    Raises ConfigError for what has no column: unions of several types, and records inside themselves.
    """
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ConfigError(f"decode.schema: a column cannot be one of several types: {schema}")
        return arrow_type(kinds[0], named)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        found = named.get(schema)
        if found is None:
            raise ConfigError(f"decode.schema: {schema} is part of itself, which no column can be")
        return found
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "uuid":
        return pa.string()
    kind = schema["type"]
    if kind == "record":
        named[schema["name"]] = None
        made = pa.struct([pa.field(each["name"], arrow_type(each["type"], named)) for each in schema["fields"]])
    elif kind == "array":
        return pa.list_(arrow_type(schema["items"], named))
    elif kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], named))
    else:
        made = arrow_type(kind, named)
    if "name" in schema:
        named[schema["name"]] = made
    return made
