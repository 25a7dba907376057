"""The general reader behind `fastjson.loads`: one pass, linear, bounded; see there for what it accepts."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Self

from pyromq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEPTH = 64
# By how many characters, beyond its own length, a text may grow when its refs are written out.
MAX_GROWTH = 100_000

I64_MIN, I64_MAX = -(2**63), 2**63 - 1
MAX_NUMBER_LENGTH = 400  # the longest double written without an exponent has 309 digits before the point

_BLANKS = re.compile(r"[ \t\n\r\f\b]*")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LITERAL = re.compile(r"(?:true|false|null)(?![A-Za-z0-9_$])")
_BARE_KEY = re.compile(r"-?[0-9]+|[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = {"u": re.compile(r"[0-9a-fA-F]{4}"), "x": re.compile(r"[0-9a-fA-F]{2}")}
ESCAPES = dict(zip("\"'\\/bfnrtv01234567", "\"'\\/\b\f\n\r\t\v\0\1\2\3\4\5\6\7", strict=True))
_LITERALS = {"true": True, "false": False, "null": None}
_REF_STEP = re.compile(r"\.((?:[^.\[\\]+|\\.)+)|\[([0-9]{1,9})\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INDEX = re.compile(r"[0-9]{1,9}")
_QUEUE_ID = re.compile(r"(-?[0-9]{1,10})\]")
_NOTHING = object()


class ObjectKey(tuple[tuple[str, object], ...]):
    """A JSON object that stands as a key: its (name, value) pairs, sorted by name.

    Hashable, and equal to any other with the same members: objects inside are ObjectKeys as well, arrays are tuples.
    """

    __slots__ = ()

    @classmethod
    def of(cls, members: Mapping[str, object]) -> Self:
        return cls(sorted((name, _frozen(value)) for name, value in members.items()))


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return ObjectKey.of(value)
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value


class Reader:
    """Reads one text. A position counts characters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._has_refs = "$ref" in text
        self._open: list[object] = []  # the containers around the position, outermost first
        self._names: list[str | ObjectKey] = []  # and the member that is being read, where they are objects
        self._in_key = False
        self._growth_left = len(text) + MAX_GROWTH
        self._weights: dict[int, tuple[object, int, int]] = {}

    def read(self) -> object:
        """The value of the whole text. Raises RemoteProtocolError."""
        value, pos = self._read_value(self._skip_blanks(1 if self._text.startswith("\ufeff") else 0))
        pos = self._skip_blanks(pos)
        if self._text.startswith(",", pos):  # FastJSON 2 lets one pass
            pos = self._skip_blanks(pos + 1)
        if pos < len(self._text):
            raise self._error("text after the value", pos)
        return value

    def _error(self, what: str, pos: int) -> RemoteProtocolError:
        return RemoteProtocolError(f"bad JSON: {what} at character {pos}")

    def _skip_blanks(self, pos: int) -> int:
        while True:
            if blanks := _BLANKS.match(self._text, pos):
                pos = blanks.end()
            if self._text.startswith("//", pos):
                end = self._text.find("\n", pos)
                pos = len(self._text) if end < 0 else end
            elif self._text.startswith("/*", pos):
                end = self._text.find("*/", pos + 2)
                if end < 0:
                    raise self._error("comment without an end", pos)
                pos = end + 2
            else:
                return pos

    def _read_value(self, pos: int) -> tuple[object, int]:
        char = self._text[pos : pos + 1]
        if char in _PLAIN:
            return self._read_string(pos)
        if char == "{":
            return self._read_object(pos)
        if char == "[":
            return self._read_array(pos)
        if match := _NUMBER.match(self._text, pos):
            return self._number(match), match.end()
        if match := _LITERAL.match(self._text, pos):
            return _LITERALS[match.group()], match.end()
        raise self._error("expected a value", pos)

    def _number(self, match: re.Match[str]) -> int | float:
        digits = match.group()
        if len(digits) <= MAX_NUMBER_LENGTH:
            if match.group(1) is None and match.group(2) is None:
                integer = int(digits)
                if I64_MIN <= integer <= I64_MAX:
                    return integer
            elif math.isfinite(double := float(digits)):
                return double
        raise self._error("number out of range", match.start())

    def _read_string(self, start: int) -> tuple[str, int]:
        quote = self._text[start]
        plain = _PLAIN[quote]
        chunks: list[str] = []
        has_surrogates = False
        pos = start + 1
        while chunk := plain.match(self._text, pos):
            chunks.append(chunk.group())
            pos = chunk.end()
            if self._text.startswith(quote, pos):
                text = "".join(chunks)
                return joined_surrogates(text) if has_surrogates else text, pos + 1
            escape = self._text[pos + 1 : pos + 2]
            if escape in ESCAPES:
                chunks.append(ESCAPES[escape])
                pos += 2
            elif escape in _HEX and (digits := _HEX[escape].match(self._text, pos + 2)):
                code = int(digits.group(), 16)
                has_surrogates = has_surrogates or 0xD800 <= code <= 0xDFFF
                chunks.append(chr(code))
                pos = digits.end()
            else:
                break
        if pos >= len(self._text):
            raise self._error("string without an end", start)
        raise self._error("unknown escape", pos)

    def _read_array(self, pos: int) -> tuple[object, int]:
        items: list[object] = []
        self._enter(items, pos)
        pos = self._skip_blanks(pos + 1)
        while not self._text.startswith("]", pos):
            item, pos = self._read_value(pos)
            items.append(item)
            pos = self._skip_separator(pos, "]")
        self._leave()
        return items, pos + 1

    def _read_object(self, start: int) -> tuple[object, int]:
        members: dict[str | ObjectKey, object] = {}
        self._enter(members, start)
        pos = self._skip_blanks(start + 1)
        while not self._text.startswith("}", pos):
            name, pos = self._read_key(pos)
            self._names[-1] = name
            pos = self._skip_blanks(pos)
            if not self._text.startswith(":", pos):
                raise self._error("expected ':'", pos)
            members[name], pos = self._read_value(self._skip_blanks(pos + 1))
            pos = self._skip_separator(pos, "}")
        self._leave()
        if self._has_refs and len(members) == 1 and isinstance(path := members.get("$ref"), str):
            return self._referred(path, start), pos + 1
        return members, pos + 1

    def _enter(self, container: object, pos: int) -> None:
        if len(self._open) == MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}", pos)
        self._open.append(container)
        self._names.append("")

    def _leave(self) -> None:
        self._open.pop()
        self._names.pop()

    def _skip_separator(self, pos: int, closing: str) -> int:
        """Past the comma, which may be the last thing before `closing`."""
        pos = self._skip_blanks(pos)
        if self._text.startswith(",", pos):
            return self._skip_blanks(pos + 1)
        if not self._text.startswith(closing, pos):
            raise self._error(f"expected ',' or '{closing}'", pos)
        return pos

    def _read_key(self, pos: int) -> tuple[str | ObjectKey, int]:
        char = self._text[pos : pos + 1]
        if char in _PLAIN:
            return self._read_string(pos)
        if char == "{" and not self._in_key:
            self._in_key = True
            members, pos = self._read_object(pos)
            self._in_key = False
            assert isinstance(members, dict)  # inside of a key a ref is refused, so nothing else comes back
            return ObjectKey.of(members), pos
        if match := _BARE_KEY.match(self._text, pos):
            return match.group(), match.end()
        raise self._error("expected a key", pos)

    def _referred(self, path: str, pos: int) -> object:
        """What a `$ref` at `pos` stands for: a complete value above it.

        So what is found cannot contain the ref, and no cycle comes to be. `$`, `..` and `@` name a container around
        the ref, which Java writes for cycles only; they lead nowhere, like any path that does not exist. So does a
        ref that stands as a key: Java calls every key of a map `null` in its paths.
        """
        target = self._walk(path) if self._open and not self._in_key else _NOTHING
        if target is _NOTHING or any(target is container for container in self._open):
            raise self._error("$ref to nothing", pos)
        weight, height = self._weigh(target)
        self._growth_left -= weight
        if self._growth_left < 0:
            raise self._error("$ref makes the value too large", pos)
        if len(self._open) + height > MAX_DEPTH:
            raise self._error(f"$ref nests deeper than {MAX_DEPTH}", pos)
        return target

    def _walk(self, path: str) -> object:
        if not path.startswith("$"):
            return _NOTHING
        value, level, pos = self._open[0], 0, 1
        while pos < len(path):
            step = _REF_STEP.match(path, pos)
            if step is None:
                return _NOTHING
            pos = step.end()
            keys = _keys(step)
            # A container joins the one around it once it is complete; until then the way leads over the open ones.
            is_open = level + 1 < len(self._open) and value is self._open[level]
            value = _child(value, keys)
            if value is _NOTHING and is_open and self._is_being_read(level, keys):
                level += 1
                value = self._open[level]
        return value

    def _is_being_read(self, level: int, keys: list[str | ObjectKey]) -> bool:
        container = self._open[level]
        return (str(len(container)) if isinstance(container, list) else self._names[level]) in keys

    def _weigh(self, value: object) -> tuple[int, int]:
        """How many characters `value` takes at least, every ref written out, and how deep it nests."""
        if isinstance(value, str):
            return len(value) + 2, 0
        if not isinstance(value, dict | list):
            return 1, 0
        known = self._weights.get(id(value))
        if known is None:
            weight, height = 2, 0
            if isinstance(value, dict):
                weight += sum(map(len, value))
            for child in value.values() if isinstance(value, dict) else value:
                child_weight, child_height = self._weigh(child)
                weight += child_weight
                height = max(height, child_height)
            # The value is kept with its weight, so that its id is not given to another.
            known = self._weights[id(value)] = (value, weight, height + 1)
        return known[1], known[2]


def _keys(step: re.Match[str]) -> list[str | ObjectKey]:
    """What a step of a path may mean as a key. A queue that stands as a key is called by its Java text."""
    name, index = step.groups()
    if index is not None:
        return [str(int(index))]
    name = _ESCAPED.sub(r"\1", name)
    before, _, rest = name.partition("MessageQueue [topic=")
    rest, _, queue_id = rest.rpartition(", queueId=")
    topic, _, broker_name = rest.partition(", brokerName=")
    match = _QUEUE_ID.fullmatch(queue_id)
    if before or match is None:
        return [name]
    return [name, ObjectKey.of({"brokerName": broker_name, "queueId": int(match.group(1)), "topic": topic})]


def _child(value: object, keys: list[str | ObjectKey]) -> object:
    if isinstance(value, list):
        index = str(keys[0])
        return value[int(index)] if _INDEX.fullmatch(index) and int(index) < len(value) else _NOTHING
    if isinstance(value, dict):
        for key in keys:
            if key in value:
                return value[key]
    return _NOTHING


def joined_surrogates(text: str) -> str:
    """Surrogate pairs joined to the character they mean, single ones replaced: Java's escapes count in UTF-16."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
