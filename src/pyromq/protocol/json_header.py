"""The JSON header, serialize type 0.

What Java and Go send decodes in one strict, typed pass. Node's numbers and C++'s habits fail it and take the
tolerant way, which accepts all of docs/spec/remoting.md 1.3. The two agree wherever the strict one succeeds.

The tolerant way makes an object of every number and bracket: 16 MiB of `0,` would take 12 s and 1 GiB of memory. So it
is open only to headers of up to MAX_TOLERANT bytes, some ten times what the largest honest one takes.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError

from .command import Command, Language, SerializeType

_decode_strict = msgspec.json.Decoder(Command).decode
_encode_json = msgspec.json.encode

_LANGUAGES = tuple(Language)
_LANGUAGE_NAMES = {language: language.value.encode() for language in _LANGUAGES}
_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)

# Nearly all of a large header is the properties of a message, which a store keeps in at most 32 KiB.
MAX_TOLERANT = 256 * 1024


def encode(command: Command) -> bytes:
    """The header of `command`: compact, members in Java's order, absent ones left out."""
    # Put together by hand, since a reply of a few fixed members costs 0.6 µs so and 1.5 µs as a dict.
    try:
        ext = command.ext
        ext_member = b"" if ext is None else b'"extFields":%b,' % _encode_json(ext)
        remark = command.remark
        remark_member = b"" if remark is None else b',"remark":%b' % _encode_json(remark)
    except UnicodeEncodeError as exc:
        raise LocalProtocolError(f"command {command.code} carries text that is not Unicode: {exc}") from exc
    return b'{"code":%d,%b"flag":%d,"language":"%b","opaque":%d%b,"version":%d}' % (
        command.code,
        ext_member,
        command.flag,
        _LANGUAGE_NAMES[command.language],
        command.opaque,
        remark_member,
        command.version,
    )


def decode(data: bytes) -> Command:
    """The command whose header `data` is; its body is not set. Raises RemoteProtocolError."""
    try:
        command = _decode_strict(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_tolerant(data)
    command.body = None
    command.serialize = SerializeType.JSON
    return command


def decode_tolerant(data: bytes) -> Command:
    """As `decode`, for headers as Node and C++ write them."""
    if len(data) > MAX_TOLERANT:
        raise RemoteProtocolError(f"header of {len(data)} bytes that is not strict JSON")
    try:
        # Numbers keep their literal: an ext value 1.50 must stay "1.50", a code is read from its digits below.
        header = json.loads(
            data.decode("utf-8", "replace"),
            strict=False,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
        if not isinstance(header, dict):
            raise RemoteProtocolError("header is not a JSON object")
        return Command(
            _integer(header, "code"),
            _language(header.get("language")),
            _integer(header, "version"),
            _integer(header, "opaque"),
            _integer(header, "flag"),
            _optional_text(header.get("remark")),
            _ext(header.get("extFields")),
        )
    except (ValueError, RecursionError) as exc:
        raise RemoteProtocolError(f"header is not JSON: {exc}") from None


class _Number(str):
    """The literal of a JSON number."""

    __slots__ = ()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _integer(header: dict[str, Any], name: str) -> int:
    value = header.get(name)
    if value is None:
        return 0
    if not isinstance(value, str) or not _INTEGER.fullmatch(value) or not -(2**31) <= int(value) < 2**31:
        raise RemoteProtocolError(f"header member {name} is not a 32-bit integer")
    return int(value)


def _language(value: object) -> Language:
    if value is None:
        return Language.JAVA
    if isinstance(value, _Number):
        if not value.isdecimal() or not int(value[:5]) < len(_LANGUAGES):
            raise RemoteProtocolError(f"no language has the number {value[:20]}")
        return _LANGUAGES[int(value)]
    try:
        return Language(value) if isinstance(value, str) else Language.OTHER
    except ValueError:
        return Language.OTHER


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _ext(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RemoteProtocolError("extFields is not a JSON object")
    return {_unicode(key): _text(item) for key, item in value.items() if item is not None}


def _text(value: object) -> str:
    """A value as the text that Java would have sent for it."""
    if isinstance(value, str):
        return _unicode(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    return _compact(value)


def _compact(value: object) -> str:
    """Compact JSON text of an object or array, number literals as they were."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def _write(value: object, parts: list[str]) -> None:
    # Into one list: text put together level by level would be copied once per level of nesting.
    if isinstance(value, dict):
        parts.append("{")
        for number, (key, item) in enumerate(value.items()):
            parts += ("," if number else "", json.dumps(_unicode(key), ensure_ascii=False), ":")
            _write(item, parts)
        parts.append("}")
    elif isinstance(value, list):
        parts.append("[")
        for number, item in enumerate(value):
            parts.append("," if number else "")
            _write(item, parts)
        parts.append("]")
    elif isinstance(value, _Number):
        parts.append(value)
    else:
        parts.append(json.dumps(_unicode(value) if isinstance(value, str) else value, ensure_ascii=False))


def _unicode(text: str) -> str:
    """`text` as a plain str, unpaired surrogates, which UTF-8 cannot carry, replaced as Java replaces them."""
    return str(text) if text.isascii() else text.encode("utf-8", "replace").decode()
