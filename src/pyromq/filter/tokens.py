"""Tokens of a SQL92 expression, one at a time: what lies behind the last one that is asked for may be anything.

RocketMQ's lexer takes the longest match, so `007` is three numbers, `5x` a number and a name, and two dashes begin a
comment only if a line ends behind them. Time is linear in the text, whatever it is.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from pyromq.errors import InvalidFilter


class Kind(Enum):
    """What a token is, by its form alone."""

    WORD = "word"  # a keyword or the name of a property: the grammar knows which
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """A piece of the expression as it is written, and where it begins."""

    kind: Kind
    text: str
    at: int


_BLANKS = re.compile(r"[ \t\n\r\f]*")
_LINE_END = re.compile(r"\r\n|\n|\r")
_TOKEN = re.compile(
    r"""
      (?P<word> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<float> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<integer> 0 | [1-9][0-9]*[lL]? )
    | (?P<string> '[^']*(?:''[^']*)*' )
    | (?P<symbol> <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


class Lexer:
    """Reads the tokens of one text. InvalidFilter where none begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # Looked for once: a text of nothing but dashes would otherwise be searched for a line end from each of them.
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))

    def next(self) -> Token:
        """The next token; at the end of the text one of the kind END, as often as it is asked for."""
        text = self._text
        at = self._at = self._passed_over(self._at)
        if at == len(text):
            return Token(Kind.END, "", at)
        found = _TOKEN.match(text, at)
        if found is None:
            what = "a string without an end" if text[at] == "'" else f"unexpected character {text[at]!r}"
            raise InvalidFilter(what, at + 1)
        self._at = found.end()
        return Token(Kind(found.lastgroup), found[0], at)

    def _passed_over(self, at: int) -> int:
        """The position behind blanks and comments."""
        text = self._text
        while True:
            blanks = _BLANKS.match(text, at)
            assert blanks is not None
            at = blanks.end()
            if text.startswith("--", at) and self._last_line_end > at:
                line_end = _LINE_END.search(text, at)
                assert line_end is not None
                at = line_end.end()
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                if end < 0:
                    raise InvalidFilter("a comment without an end", at + 1)
                at = end + 2
            else:
                return at
