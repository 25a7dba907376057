r"""Java's properties format, used by `broker.conf` and `namesrv.properties`.

    # a comment, and so is a line that starts with !
    listenPort = 9876              '=', ':' or blanks separate key and value
    brokerIP1: 192.0.2.1
    namesrvAddr=192.0.2.1:9876;\   a backslash at the end joins the next line, without its indent
        192.0.2.2:9876
    greeting=gr\u00fc\u00df dich   \uXXXX, \t \n \r \f; before any other character the backslash is dropped

Blanks after a value belong to it, as in Java. Reading takes linear time, whatever the text holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLANKS = " \t\f"

# Java ends lines only here; str.splitlines would also break at U+2028 and the like.
_LINE_END = re.compile(r"\r\n|\n|\r")
_KEY_AND_VALUE = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_VALUE_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"})
_KEY_ESCAPES = _VALUE_ESCAPES | str.maketrans({char: "\\" + char for char in "=:#! "})


class Property(NamedTuple):
    """One entry of a file. `line` is the line of its key, counted from 1."""

    key: str
    value: str
    line: int


def decode(data: bytes) -> str:
    """Decode a file: UTF-8, or else Latin-1, Java's own choice for these files."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str, source: str = "") -> list[Property]:
    """Every entry in the order of the text, including those that a later one overrides."""
    entries = []
    for number, line in _logical_lines(text):
        parts = _KEY_AND_VALUE.fullmatch(line)
        assert parts is not None, "the pattern fits every line that does not end in an open escape"
        try:
            entries.append(Property(_unescape(parts[1]), _unescape(parts[2]), number))
        except ValueError as exc:
            raise ConfigError(str(exc), f"{source}:{number}" if source else f"line {number}") from exc
    return entries


def dump(entries: Iterable[tuple[str, str]]) -> str:
    """`key=value` lines that `parse` (and Java) reads back to the same keys and values."""
    return "".join(f"{key.translate(_KEY_ESCAPES)}={_escape_value(value)}\n" for key, value in entries)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    start, parts = 0, list[str]()
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield start, "".join(parts) + line
        parts.clear()
    if parts:
        yield start, "".join(parts)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescaped, text)
    # Java writes characters beyond the first plane as two escapes; together they make one character.
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("half of a surrogate pair") from None


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped == "u":
        raise ValueError("\\u needs four hexadecimal digits")
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)


def _escape_value(value: str) -> str:
    escaped = value.translate(_VALUE_ESCAPES)
    return "\\" + escaped if escaped.startswith(" ") else escaped
