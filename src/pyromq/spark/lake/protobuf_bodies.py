"""Decodes Protobuf with a descriptor set (`protoc --include_imports --descriptor_set_out=FILE`); no generated code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyromq.errors import ConfigError

from ..schema import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TIMESTAMP = "google.protobuf.Timestamp"


def columns_of(descriptors: bytes, name: str) -> tuple[pa.Field, ...]:
    """The columns of a message. Raises ConfigError if the set lacks it, or a message contains itself."""
    found = _descriptor(descriptors, name)
    return tuple(pa.field(each.name, _column(each, (found.full_name,))) for each in found.fields)


def row_decoder(descriptors: bytes, name: str) -> Callable[[Any], Mapping[str, Any]]:
    """What decodes one body."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    made: Any = GetMessageClass(_descriptor(descriptors, name))

    def row(body: Any) -> Mapping[str, Any]:
        message = made()
        try:
            message.ParseFromString(bytes(body))
        except DecodeError as exc:
            raise ValueError(str(exc)) from exc
        return _values(message)

    return row


def _descriptor(descriptors: bytes, name: str) -> Any:
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message import DecodeError
    except ImportError as exc:
        raise ConfigError("protobuf is not installed; pip install 'pyromq[lake]' installs it") from exc
    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(descriptors)
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as exc:
        raise ConfigError(f"decode.schema is not a Protobuf descriptor set: {exc}") from exc
    except KeyError as exc:
        known = ", ".join(f"{file.package}.{each.name}" for file in files.file for each in file.message_type)
        raise ConfigError(f"decode.message: there is no {name} in decode.schema, but {known or 'nothing'}") from exc


def _column(each: Any, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(each):
        key, value = each.message_type.fields_by_name["key"], each.message_type.fields_by_name["value"]
        return pa.map_(_single(key, inside), _single(value, inside))
    kind = _single(each, inside)
    return pa.list_(kind) if each.is_repeated else kind


def _single(each: Any, inside: tuple[str, ...]) -> pa.DataType:
    kinds = {
        each.CPPTYPE_INT32: pa.int32(),
        each.CPPTYPE_INT64: pa.int64(),
        each.CPPTYPE_UINT32: pa.int64(),
        each.CPPTYPE_UINT64: pa.decimal128(20, 0),
        each.CPPTYPE_DOUBLE: pa.float64(),
        each.CPPTYPE_FLOAT: pa.float32(),
        each.CPPTYPE_BOOL: pa.bool_(),
        each.CPPTYPE_ENUM: pa.string(),
        each.CPPTYPE_STRING: pa.binary() if each.type == each.TYPE_BYTES else pa.string(),
    }
    if each.cpp_type in kinds:
        return kinds[each.cpp_type]
    message = each.message_type
    if message.full_name == _TIMESTAMP:
        return TIMESTAMP
    if message.full_name in inside:
        raise ConfigError(f"decode.schema: {message.full_name} is part of itself, which no column can be")
    return pa.struct([pa.field(part.name, _column(part, (*inside, message.full_name))) for part in message.fields])


def _is_map(each: Any) -> bool:
    return bool(each.message_type is not None and each.message_type.GetOptions().map_entry)


def _values(message: Any) -> dict[str, Any]:
    """The fields of a message. Those that were not sent have their defaults, or are null if they can tell."""
    found: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        if each.has_presence and not message.HasField(each.name):
            found[each.name] = None
            continue
        value = getattr(message, each.name)
        if _is_map(each):
            item = each.message_type.fields_by_name["value"]
            found[each.name] = {key: _value(item, value[key]) for key in value}
        elif each.is_repeated:
            found[each.name] = [_value(each, item) for item in value]
        else:
            found[each.name] = _value(each, value)
    return found


def _value(each: Any, value: Any) -> Any:
    if each.cpp_type == each.CPPTYPE_ENUM:
        known = each.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if each.cpp_type == each.CPPTYPE_MESSAGE:
        if each.message_type.full_name == _TIMESTAMP:
            from datetime import UTC

            return value.ToDatetime(tzinfo=UTC)
        return _values(value)
    return value
