"""Typed bodies from loosely typed JSON, by the rules of docs/spec/remoting.md 5.2 and 5.3.

    integer     also as text, as a double (cut), as a boolean
    double      also as text
    boolean     also as 0 and 1, also as text
    text        also from a number or boolean; from an object or array its JSON
    enum        also by ordinal; an unknown one is null
    object      unknown members are ignored; a null member counts as absent, unless null is one of its values
    collection  null elements are dropped, and members whose key is null
    queue       as a key also as JSON inside a string

Where a number or a boolean belongs, an empty text and `null` as text are null.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import inspect

from pyromq.errors import RemoteProtocolError

from ..fastjson import ObjectKey, dumps, loads

if TYPE_CHECKING:
    import enum

Converter = Callable[[Any], Any]
StructT = TypeVar("StructT", bound=msgspec.Struct)

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DOUBLE = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,5})?")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_NO_TEXT = ("", "null")
_FOUND = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "nothing"}


class Mismatch(Exception):
    """A value does not fit its type. Collects the path to it on the way up."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(f"expected {expected}, found {_FOUND.get(type(found), 'a number')}")
        self.path = ""

    def under(self, step: str) -> Mismatch:
        self.path = step + self.path
        return self


def convert(struct_type: type[StructT], value: object) -> StructT:
    """`value`, as `loads` gives it, as a `struct_type`. Raises RemoteProtocolError."""
    try:
        converted: StructT = _struct_converter(struct_type)(value)
    except Mismatch as mismatch:
        raise RemoteProtocolError(f"{struct_type.__name__}{mismatch.path}: {mismatch}") from None
    return converted


def _converter(kind: inspect.Type) -> Converter:
    match kind:
        case inspect.IntType(ge=int(low), le=int(high)):
            return functools.partial(_integer, low, high)
        case inspect.FloatType():
            return _double
        case inspect.BoolType():
            return _boolean
        case inspect.StrType():
            return _text
        case inspect.EnumType(cls=enum_type):
            return functools.partial(_enum, tuple(enum_type))
        case inspect.ListType(item_type=item):
            return functools.partial(_items, list, _converter(item))
        case inspect.FrozenSetType(item_type=item):
            return functools.partial(_items, frozenset, _converter(item))
        case inspect.DictType(key_type=key, value_type=item):
            return functools.partial(_map, _key_converter(key), _converter(item))
        case inspect.StructType(cls=struct_type):
            return _struct_converter(struct_type)
        case inspect.UnionType(types=(only, inspect.NoneType())):
            return _converter(only)
    raise TypeError(f"no rule to read a {kind} from JSON")


def _key_converter(kind: inspect.Type) -> Converter:
    convert_key = _converter(kind)
    if isinstance(kind, inspect.StructType):
        return functools.partial(_object_key, convert_key)
    return convert_key


def _integer(low: int, high: int, value: object) -> int | None:
    if isinstance(value, str):
        if value in _NO_TEXT:
            return None
        value = int(value) if _INTEGER.fullmatch(value) else _double(value)
    if not isinstance(value, int | float):
        raise Mismatch("an integer", value)
    if not low <= value <= high:
        raise Mismatch(f"an integer from {low} to {high}", value)
    return int(value)


def _double(value: object) -> float | None:
    if isinstance(value, str):
        if value in _NO_TEXT:
            return None
        if _DOUBLE.fullmatch(value) and math.isfinite(double := float(value)):
            return double
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise Mismatch("a number", value)


def _boolean(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _NO_TEXT:
        return None
    boolean = _BOOLEANS.get(str(value).lower()) if isinstance(value, int | str) else None
    if boolean is None:
        raise Mismatch("a boolean", value)
    return boolean


def _text(value: object) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def _enum(members: tuple[enum.Enum, ...], value: object) -> enum.Enum | None:
    if isinstance(value, str):
        for member in members:
            if member.value == value:
                return member
        value = int(value) if len(value) < 4 and value.isascii() and value.isdigit() else -1
    if not isinstance(value, int) or isinstance(value, bool):
        raise Mismatch("a name or an ordinal", value)
    return members[value] if 0 <= value < len(members) else None


def _items(collection: Callable[[Iterable[object]], object], convert_item: Converter, value: object) -> object:
    if not isinstance(value, list):
        raise Mismatch("an array", value)
    items = []
    for index, raw in enumerate(value):
        try:
            item = None if raw is None else convert_item(raw)
        except Mismatch as mismatch:
            raise mismatch.under(f"[{index}]") from None
        if item is not None:
            items.append(item)
    return collection(items)


def _map(convert_key: Converter, convert_item: Converter, value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise Mismatch("an object", value)
    items = {}
    for raw_key, raw in value.items():
        try:
            key = convert_key(raw_key)
            item = None if raw is None else convert_item(raw)
        except Mismatch as mismatch:
            raise mismatch.under(f"[{str(raw_key)[:80]!r}]") from None
        if key is not None and item is not None:
            items[key] = item
    return items


def _object_key(convert_key: Converter, value: object) -> object:
    return convert_key(loads(value) if isinstance(value, str) else value)


def _as_it_is(members: Mapping[Any, object]) -> Mapping[Any, object]:
    return members


@functools.cache
def _struct_converter(struct_type: type[StructT]) -> Callable[[object], StructT]:
    info = inspect.type_info(struct_type)
    assert isinstance(info, inspect.StructType)
    plan = [
        (field.name, field.encode_name, _converter(field.type), isinstance(field.type, inspect.UnionType))
        for field in info.fields
    ]
    required = {field.name: field.encode_name for field in info.fields if field.required}
    # A body whose members have several forms chooses one here.
    normalised: Callable[[Mapping[Any, object]], Mapping[Any, object]] = getattr(struct_type, "normalised", _as_it_is)

    def convert_struct(value: object) -> StructT:
        if isinstance(value, ObjectKey):
            value = dict(value)
        if not isinstance(value, dict):
            raise Mismatch("an object", value)
        members = normalised(value)
        arguments: dict[str, object] = {}
        for name, wire_name, convert_member, has_null in plan:
            if wire_name not in members:
                continue
            try:
                raw = members[wire_name]
                member = None if raw is None else convert_member(raw)
            except Mismatch as mismatch:
                raise mismatch.under(f".{wire_name}") from None
            if member is not None or has_null:
                arguments[name] = member
        for name, wire_name in required.items():
            if name not in arguments:
                raise Mismatch("a value", None).under(f".{wire_name}")
        return struct_type(**arguments)

    return convert_struct
