"""Decodes bodies into columns while they are archived: JSON, Avro, Protobuf or CSV, with a schema.

The row of a message keeps its columns and gets those of its body beside them. A field named like a column of
messages becomes `body_<name>`. A body that cannot be decoded, or a value that its column cannot have, makes a bad row:
with `onError=dlq` the message goes to the table `<name>__dlq` with the reason, with `skip` nowhere, with `fail` the
archive stops there.

A schema may grow: columns that the table lacks are added to it. A column that exists keeps its type, since its files
have it: values are then decoded as the schema says and converted to what the table has, and those that cannot be are
bad rows.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pyromq.errors import ConfigError, InvalidMessage

from ..option_values import boolean, choice, opt, text
from ..schema import ARROW_SCHEMA, COLUMNS
from ..source.offsets import place
from . import fitting
from .column_types import parse_ddl, plain, spark_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REASON = "reason"
# The table of bad rows: messages as they are, and why they are there.
BAD_ROWS = ARROW_SCHEMA.append(pa.field(REASON, pa.string()))
DLQ_SUFFIX = "__dlq"

_MESSAGE = frozenset(name.lower() for name in COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """How to decode bodies, as users say it."""

    decode: str | None = opt(
        "decode", choice("json", "avro", "protobuf", "csv"), None, "What bodies are: json, avro, protobuf or csv."
    )
    schema: str | None = opt(
        "decode.schema",
        text,
        None,
        "Columns as DDL (json, csv); an Avro schema or its path; the path of a Protobuf descriptor set.",
    )
    message: str | None = opt("decode.message", text, None, "Full name of the Protobuf message.")
    delimiter: str = opt("decode.delimiter", text, ",", "What separates the values of a CSV line.")
    on_error: str = opt(
        "onError",
        choice("fail", "skip", "dlq"),
        "dlq",
        "What to do with bodies that cannot be decoded: fail, skip, or dlq, the table <name>__dlq.",
    )
    keep_body: bool = opt("keepBody", boolean, True, "Keep bodies beside their columns; false leaves them null.")

    def check(self) -> None:
        if self.decode is None:
            if self.schema is not None or self.message is not None:
                raise ConfigError("decode.schema is given, but not decode: json, avro, protobuf or csv")
            return
        if self.schema is None:
            raise ConfigError(f"decode={self.decode} needs decode.schema")
        if (self.decode == "protobuf") != (self.message is not None):
            raise ConfigError("decode.message is the full name of a Protobuf message; decode=protobuf needs it")
        if len(self.delimiter) != 1:
            raise ConfigError("decode.delimiter must be one character")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tasks decode: made on the driver, sent to them."""

    kind: str
    fields: tuple[pa.Field, ...]  # as bodies have them
    source: str | bytes  # the schema: Avro as JSON, Protobuf as a serialised descriptor set
    message: str | None = None
    delimiter: str = ","
    on_error: str = "dlq"
    keep_body: bool = True
    # The types that the table's columns already have, by the names of its columns.
    kept: Mapping[str, pa.DataType] = field(default_factory=dict)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the decoded part of a row, as the table has them or will have them."""
        return pa.schema([pa.field(name := _named(each.name), self.kept.get(name, each.type)) for each in self.fields])

    @property
    def schema(self) -> pa.Schema:
        """All columns of a row."""
        return pa.schema([*ARROW_SCHEMA, *self.columns])

    def within(self, table: pa.Schema) -> Decoding:
        """The same, for a table that has these columns already."""
        own = {_named(each.name) for each in self.fields}
        kept = {each.name: plain(each.type) for each in table if each.name in own}
        return replace(self, kept=kept)

    def changes(self) -> list[str]:
        """Columns whose type differs from the table's, in words."""
        return [
            f"column {_named(each.name)} is {spark_name(kept)} in the table and {spark_name(each.type)} in the schema"
            for each in self.fields
            if (kept := self.kept.get(_named(each.name), each.type)) != each.type
        ]


def _named(name: str) -> str:
    return f"body_{name}" if name.lower() in _MESSAGE else name


def decoding(options: DecodeOptions) -> Decoding | None:
    """How to decode, with schemas read and understood; None if bodies stay as they are. Raises ConfigError."""
    if options.decode is None:
        return None
    options.check()
    given = options.schema or ""
    source: str | bytes = given
    if options.decode == "avro":
        source = _text_of(given)
        fields = _avro_fields(source)
    elif options.decode == "protobuf":
        from .protobuf_bodies import columns_of

        source = _bytes_of(given)
        fields = columns_of(source, options.message or "")
    else:
        fields = tuple(pa.field(each.name, each.type) for each in parse_ddl(given, "decode.schema"))
    names = [_named(each.name).lower() for each in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"decode.schema: column {name} appears twice")
    return Decoding(
        options.decode, fields, source, options.message, options.delimiter, options.on_error, options.keep_body
    )


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise ConfigError(f"decode.schema: {path}: {exc.strerror}") from exc


def _text_of(given: str) -> str:
    """An Avro schema, or the file that has it."""
    return given if given.lstrip().startswith(("{", "[")) else _bytes_of(given).decode("utf-8", "replace")


def _needs(module: str, extra: str = "lake") -> ConfigError:
    return ConfigError(f"{module} is not installed; pip install 'pyromq[{extra}]' installs it")


class BodyDecoder:
    """Decodes the batches of a task."""

    def __init__(self, how: Decoding) -> None:
        self._how = how
        self._row = _ROW_DECODERS[how.kind](how)
        self._columns = how.columns

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows with their decoded columns, and the messages that could not be decoded, with reasons.

        Raises InvalidMessage with `onError=fail`.
        """
        rows: list[Mapping[str, Any]] = []
        reasons: dict[int, str] = {}
        nothing: Mapping[str, Any] = {}
        for number, body in enumerate(batch.column("body").to_pylist()):
            try:
                rows.append(self._row(body))
            except (ValueError, TypeError, KeyError, EOFError, IndexError, OverflowError, RecursionError) as exc:
                rows.append(nothing)
                reasons[number] = _reason(exc)
        arrays = []
        for each, own in zip(self._how.fields, self._columns, strict=True):
            values, wrong = fitting.column([row.get(each.name) for row in rows], each)
            values, uncast = fitting.cast(values, own)
            arrays.append(values)
            for number, why in {**uncast, **wrong}.items():
                reasons.setdefault(number, why)
        message = batch.columns
        if not self._how.keep_body:
            message[batch.schema.get_field_index("body")] = pa.nulls(batch.num_rows, pa.binary())
        schema = pa.schema([*batch.schema, *self._columns])
        good = pa.RecordBatch.from_arrays([*message, *arrays], schema=schema)
        if not reasons:
            return good, None
        if self._how.on_error == "fail":
            raise InvalidMessage(f"{_where(batch, min(reasons))}: {reasons[min(reasons)]}; onError=dlq or skip goes on")
        is_bad = pa.array([number in reasons for number in range(batch.num_rows)])
        bad = batch.filter(is_bad)
        why = pa.array([reasons[number] for number in sorted(reasons)], pa.string())
        bad = pa.RecordBatch.from_arrays([*bad.columns, why], schema=bad.schema.append(pa.field(REASON, pa.string())))
        return good.filter(pa.compute.invert(is_bad)), bad


def _reason(exc: BaseException) -> str:
    said = str(exc).strip() or type(exc).__name__
    return said if len(said) <= 500 else f"{said[:500]}…"


def _where(batch: pa.RecordBatch, row: int) -> str:
    from pyromq.protocol.message_queue import MessageQueue

    names = ("topic", "brokerName", "queueId", "queueOffset")
    if not {*names} <= {*batch.schema.names}:
        return f"row {row}"
    topic, broker, queue_id, offset = (batch.column(name)[row].as_py() for name in names)
    return f"{place(MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id))}, offset {offset}"


# One body


def _json_rows(how: Decoding) -> Callable[[Any], Mapping[str, Any]]:
    decoder = msgspec.json.Decoder()

    def row(body: Any) -> Mapping[str, Any]:
        try:
            found = decoder.decode(body)
        except msgspec.DecodeError as exc:
            raise ValueError(str(exc)) from exc
        if not isinstance(found, dict):
            raise ValueError(f"a JSON object is needed, not {type(found).__name__}")
        return found

    return row


def _csv_rows(how: Decoding) -> Callable[[Any], Mapping[str, Any]]:
    names = [each.name for each in how.fields]
    kinds = [each.type for each in how.fields]

    def row(body: Any) -> Mapping[str, Any]:
        try:
            lines = [*csv.reader(io.StringIO(bytes(body).decode(), newline=""), delimiter=how.delimiter, strict=True)]
        except csv.Error as exc:
            raise ValueError(str(exc)) from exc
        if len(lines) != 1 or len(lines[0]) != len(names):
            said = f"{len(lines[0])} values" if len(lines) == 1 else f"{len(lines)} lines"
            raise ValueError(f"one line with {len(names)} values is needed, not {said}")
        return {name: _csv_value(value, kind, name) for name, value, kind in zip(names, lines[0], kinds, strict=True)}

    return row


def _csv_value(value: str, kind: pa.DataType, name: str) -> Any:
    if pa.types.is_string(kind):
        return value
    if not value:
        return None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        try:
            return pa.scalar(value.strip(), pa.string()).cast(kind).as_py()
        except pa.ArrowException:
            raise ValueError(f"{name}: {value!r} is not {spark_name(kind)}") from None
    return value  # the rest is read from text in any case


_AVRO_FILE = b"Obj\x01"


def _avro_schema(source: str) -> Any:
    try:
        import fastavro
    except ImportError as exc:
        raise _needs("fastavro") from exc
    try:
        return fastavro.parse_schema(json.loads(source))
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as exc:
        raise ConfigError(f"decode.schema is not an Avro schema: {exc}") from exc


def _avro_fields(source: str) -> tuple[pa.Field, ...]:
    from .avro_types import arrow_type

    schema = _avro_schema(source)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError("decode.schema: the Avro schema must be a record")
    return tuple(pa.field(each["name"], arrow_type(each["type"], {})) for each in schema["fields"])


def _avro_rows(how: Decoding) -> Callable[[Any], Mapping[str, Any]]:
    import fastavro

    schema = _avro_schema(str(how.source))

    def row(body: Any) -> Mapping[str, Any]:
        data = bytes(body)
        stream = io.BytesIO(data)
        # Some producers send each record as a file of its own, with the schema that it was written with.
        if data.startswith(_AVRO_FILE):
            found = [*fastavro.reader(stream, schema)]
            if len(found) != 1:
                raise ValueError(f"one Avro record is needed, not {len(found)}")
            record: Any = found[0]
        else:
            record = fastavro.schemaless_reader(stream, schema, None)
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes follow the Avro record")
        if not isinstance(record, dict):
            raise ValueError("an Avro record is needed")
        return record

    return row


def _protobuf_rows(how: Decoding) -> Callable[[Any], Mapping[str, Any]]:
    from .protobuf_bodies import row_decoder

    assert isinstance(how.source, bytes)
    return row_decoder(how.source, how.message or "")


_ROW_DECODERS: dict[str, Callable[[Decoding], Callable[[Any], Mapping[str, Any]]]] = {
    "json": _json_rows,
    "csv": _csv_rows,
    "avro": _avro_rows,
    "protobuf": _protobuf_rows,
}


def bad_row_table(name: str) -> str:
    """The name of the table that keeps what `name` could not take."""
    return f"{name}{DLQ_SUFFIX}"


def added(table: pa.Schema, wanted: Sequence[pa.Field]) -> pa.Schema | None:
    """The columns in `wanted` that the table lacks; None if there are none."""
    have = {each.name.lower() for each in table}
    new = [each for each in wanted if each.name.lower() not in have]
    return pa.schema(new) if new else None
