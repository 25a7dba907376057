"""Splits an SQL file into statements, as Spark's grammar does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where a semicolon does not end a statement: strings and quoted names, with escapes or doubled quotes, and comments.
_TOKEN = re.compile(
    r"""
    '(?:[^'\\]|\\.|'')*'? | "(?:[^"\\]|\\.|"")*"? | `[^`]*`? | --[^\n]* | /\*.*?(?:\*/|\Z) | ; | \n
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = ("--", "/*")
_SCRIPT = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*BEGIN\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    line: int  # line where it begins, from 1


def statements(text: str) -> Iterator[Statement]:
    """The statements of a file, without semicolons; comments alone do not count.

    Everything from a BEGIN on is one statement: its parts have their own semicolons.
    """
    begin, line, lines = 0, 1, 1
    for token in _TOKEN.finditer(text):
        lines += token[0].count("\n")
        if token[0] == ";" and not _SCRIPT.match(text, begin):
            yield from _statement(text[begin : token.start()], line)
            begin, line = token.end(), lines
    yield from _statement(text[begin:].rstrip().removesuffix(";"), line)


def _statement(text: str, line: int) -> Iterator[Statement]:
    code = _TOKEN.sub(lambda token: " " if token[0].startswith(_COMMENT) else token[0], text)
    if code.strip():
        begins = len(text) - len(text.lstrip())
        yield Statement(text.strip(), line + text[:begins].count("\n"))
