"""Columns in three languages: the DDL that users write, Arrow's types, which tasks work with, and Spark's.

Spark can parse DDL, but only where there is a session, and the writer of a format is made where there is none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from pyromq.errors import ConfigError

from ..schema import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[\w.$-]+|'(?:[^'\\]|\\.)*'|[<>(),:])")
_MOST_DIGITS = 38


def parse_ddl(text: str, option: str) -> pa.Schema:
    """The columns of `id bigint, price decimal(10,2), tags array<string>`. Raises ConfigError with the place."""
    return _Ddl(text, option).schema()


class _Ddl:
    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        self._tokens: list[tuple[str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(at, "a name or a type")
            self._tokens.append((found[1], found.start(1)))
            at = found.end()
        self._at = 0

    def schema(self) -> pa.Schema:
        fields = self._fields("")
        names = [field.name.lower() for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"{self._option}: column {name} appears twice")
        return pa.schema(fields)

    def _fields(self, end: str) -> list[pa.Field]:
        fields = []
        while True:
            name = self._name()
            if self._peek() == ":":
                self._take()
            kind = self._type()
            is_nullable = True
            if self._peek().lower() == "not":
                self._take()
                self._expect("null")
                is_nullable = False
            if self._peek().lower() == "comment":
                self._take()
                self._take()
            fields.append(pa.field(name, kind, nullable=is_nullable))
            if self._peek() != ",":
                break
            self._take()
        self._expect(end)
        return fields

    def _type(self) -> pa.DataType:
        name, at = self._peek().lower(), self._place()
        self._take()
        if name == "array":
            self._expect("<")
            items = self._type()
            self._expect(">")
            return pa.list_(items)
        if name == "map":
            self._expect("<")
            keys = self._type()
            self._expect(",")
            values = self._type()
            self._expect(">")
            return pa.map_(keys, values)
        if name == "struct":
            self._expect("<")
            return pa.struct(self._fields(">"))
        if name in ("decimal", "numeric", "dec") and self._peek() == "(":
            return self._decimal()
        if name not in _SIMPLE:
            raise self._error(at, "a type, such as bigint, string or array<double>")
        return _SIMPLE[name]

    def _decimal(self) -> pa.DataType:
        self._expect("(")
        at = self._place()
        digits, scale = self._number(), 0
        if self._peek() == ",":
            self._take()
            scale = self._number()
        self._expect(")")
        if not 0 < digits <= _MOST_DIGITS or scale > digits:
            raise self._error(at, f"at most {_MOST_DIGITS} digits, and no more of them behind the point")
        return pa.decimal128(digits, scale)

    def _number(self) -> int:
        token, at = self._peek(), self._place()
        if not (token.isascii() and token.isdecimal() and len(token) <= 3):
            raise self._error(at, "a number")
        self._take()
        return int(token)

    def _name(self) -> str:
        token, at = self._peek(), self._place()
        if not token or token in "<>(),:" or token.startswith("'"):
            raise self._error(at, "the name of a column")
        self._take()
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _place(self) -> int:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else len(self._text)

    def _take(self) -> None:
        self._at += 1

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            raise self._error(self._place(), repr(token) if token else "a comma or the end")
        self._take()

    def _error(self, at: int, wanted: str) -> ConfigError:
        near = self._text[at : at + 20] or "its end"
        return ConfigError(f"{self._option}: column {at + 1}: expected {wanted}, found {near!r}")


def spark_name(kind: pa.DataType) -> str:
    """A type as Spark's users call it."""
    for name, simple in _SIMPLE.items():
        if simple == kind:
            return name
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in kind)}>"
    return str(kind)


def to_spark(schema: pa.Schema) -> StructType:
    """The columns as Spark sees them; all may be null."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([pa.field(field.name, plain(field.type)) for field in schema]))


def from_spark(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them; all may be null. Raises ConfigError for a type that a file cannot have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        made = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as exc:
        raise ConfigError(f"a table of the lake cannot have such a column: {exc}") from exc
    return pa.schema([pa.field(field.name, plain(field.type)) for field in made])


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without what only some writers note in it: large offsets, units of time, names of items, nullability."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is not None else pa.timestamp("us")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    return kind
