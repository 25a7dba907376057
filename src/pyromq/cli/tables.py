"""Plain tables: columns padded with blanks, numbers right-aligned, nothing cut off, easy to copy and grep.

Written here because importing a library would take as long as the whole command.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = "  "


def table(headings: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """The lines of a table, headings first. `right` says which columns are right-aligned."""
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
    """Its width on a terminal: Chinese characters take two columns each."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
