"""Results as Markdown, ready for docs/benchmarks.md; what happens meanwhile goes to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> None:
    """Print a sentence, a table and what a reader must know of the figures in it."""
    lines = ["", f"{title}:", "", _line(columns), _line(["---", *["---:"] * (len(columns) - 1)])]
    lines += [_line([_text(cell) for cell in row]) for row in rows]
    for note in notes:
        lines += ["", f"Note: {note}"]
    print("\n".join(lines), flush=True)


def progress(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(cell: object) -> str:
    """Three digits say all that a measurement knows."""
    if not isinstance(cell, float):
        return str(cell)
    places = 0 if abs(cell) >= 100 else 1 if abs(cell) >= 10 else 2
    return f"{cell:,.{places}f}"
