"""Plain tables: columns padded with blanks, numbers to the right, nothing cut off, so that one can copy and grep.

Made here, since importing a library for it would take as long as the whole command.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = "  "


def table(headings: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """The lines of a table, the first being the headings. `right` says which columns are aligned to the right."""
    columns = [list(column) for column in zip(headings, *cells, strict=True)]
    widths = [max(map(width, column)) for column in columns]
    for line in (headings, *cells):
        yield aligned(line, widths, right)


def aligned(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        pad * " " + cell if to_right else cell + pad * " "
        for cell, to_right, pad in (
            (cell, to_right, wanted - width(cell)) for cell, wanted, to_right in zip(cells, widths, right, strict=True)
        )
    ]
    return _GAP.join(padded).rstrip()


def width(text: str) -> int:
    """How many places a terminal needs for it: Chinese characters take two each."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
