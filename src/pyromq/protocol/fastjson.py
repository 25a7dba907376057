"""FastJSON's dialect of JSON: Java peers write it, and it is not JSON (docs/spec/remoting.md 5.2 to 5.4).

`loads` reads it, and whatever else Java accepts from others:

    {0:"a"}                         integer keys without quotes; the key becomes its text, "0"
    {{"queueId":1}:5}               objects as keys; the key becomes an `ObjectKey`
    {'a':1,b:2,}                    single quotes, bare keys, a trailing comma
    /* … */ and // …                comments, and a byte order mark at the start
    "two                            raw control characters inside strings
    lines"
    {"$ref":"$.a.b[0]"}             a value that stands further up in the text, once more

`dumps` writes what every known peer reads: compact UTF-8, integer keys quoted, object keys raw, null members left out,
never a `$ref`.

Any text ends in a value or in RemoteProtocolError, in time and memory that grow with its length: no value nests deeper
than MAX_DEPTH, integers fit into 64 bits, a `$ref` shares a value instead of copying it, and one that leads nowhere or
would make the value much larger than its text is refused. Every string can be encoded as UTF-8: invalid bytes and lone
surrogates become U+FFFD.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError

from .fastjson_reader import MAX_DEPTH, ObjectKey, Reader
from .fastjson_rewrite import NotRewritten, is_shallow, loads_rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MAX_DEPTH", "MAX_GENERAL", "ObjectKey", "dumps", "loads", "loads_tolerant"]

# What the rewriting leaves to the general reader, which takes a second per megabyte. No peer is known to send more.
MAX_GENERAL = 256 * 1024

_decode_strict = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
# Nineteen digits may not fit into 64 bits; the strict reader takes them, however many there are.
_MANY_DIGITS = re.compile(rb"[0-9]{19}")


def loads(data: bytes | str) -> object:
    """Parse `data`: None, bool, int, float, str, list, or dict with str and ObjectKey keys.

    If a member occurs twice, the last one counts. Raises RemoteProtocolError.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    if b"$ref" not in data and not _MANY_DIGITS.search(data):
        try:
            value: object = _decode_strict(data)
        except (ValueError, RecursionError):  # what msgspec refuses, FastJSON may still allow
            pass
        else:
            if data.count(b"[") + data.count(b"{") <= MAX_DEPTH or is_shallow(value):
                return value
    return loads_tolerant(data)


def loads_tolerant(data: bytes) -> object:
    """As `loads`, without trying the strict reader first. The two agree on what both accept."""
    text = data.decode("utf-8", "replace")
    why = "$ref"
    if why not in text:
        try:
            return loads_rewritten(text)
        except NotRewritten as exc:
            why = str(exc)
    if len(data) > MAX_GENERAL:
        raise RemoteProtocolError(f"bad JSON: {why}, in {len(data)} bytes; such a text may have {MAX_GENERAL} at most")
    return Reader(text).read()


def dumps(value: object) -> bytes:
    """The text of a struct, or of plain values, whose maps may be keyed by str, int, struct or ObjectKey.

    A struct's members come in the order of its fields; bodies declare theirs in the alphabetical order of the wire
    names, as Java writes them. Raises LocalProtocolError for what has no text.
    """
    try:
        return _text(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise LocalProtocolError(f"cannot be written as JSON: {exc}") from exc


def _text(value: object) -> bytes:
    if isinstance(value, msgspec.Struct):
        try:
            return _encode(value)
        except TypeError:  # somewhere inside is a map whose keys are objects
            return _struct_text(value)
    if isinstance(value, ObjectKey):
        return _map_text(dict(value))
    if isinstance(value, dict):
        return _map_text(value)
    if isinstance(value, list | tuple | set | frozenset):
        return b"[%b]" % b",".join(map(_text, value))
    return _encode(value)


def _map_text(members: Mapping[str, object] | Mapping[object, object]) -> bytes:
    return b"{%b}" % b",".join(
        b"%b:%b" % (_key_text(key), _text(value)) for key, value in members.items() if value is not None
    )


def _key_text(key: object) -> bytes:
    if isinstance(key, str | msgspec.Struct | ObjectKey):
        return _text(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return b'"%d"' % key
    raise TypeError(f"{type(key).__name__} as a key")


def _struct_text(struct: msgspec.Struct) -> bytes:
    members = []
    for attribute, name, is_left_out in _written_fields(type(struct)):
        value = getattr(struct, attribute)
        if value is not None and not is_left_out(value):
            members.append(name + _text(value))
    return b"{%b}" % b",".join(members)


@functools.cache
def _written_fields(struct_type: type[msgspec.Struct]) -> list[tuple[str, bytes, Callable[[object], bool]]]:
    """(attribute, text of the name with its colon, whether a value is left out) of each field, as msgspec has it."""
    omits = struct_type.__struct_config__.omit_defaults
    return [
        (field.name, _encode(field.encode_name) + b":", functools.partial(_is_default, field) if omits else _never)
        for field in msgspec.structs.fields(struct_type)
    ]


def _is_default(field: msgspec.structs.FieldInfo, value: object) -> bool:
    return value is field.default or (field.default_factory in (dict, list, set) and not value)


def _never(_value: object) -> bool:
    return False
