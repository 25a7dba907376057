"""Long tables: filtered, sorted and cut into pages by what the address says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .asked import Asked

Row = TypeVar("Row")
PAGE = 100


@dataclass(frozen=True, slots=True)
class Cut(Generic[Row]):
    """One page of a table, and how to ask for others: `query` is what stays the same."""

    rows: tuple[Row, ...]
    total: int
    page: int
    pages: int
    sort: str
    down: bool
    query: dict[str, Any]


def cut(
    ask: Asked,
    rows: Iterable[Row],
    columns: Mapping[str, Callable[[Row], Any]],
    *,
    first: str,
    keep: Mapping[str, Any],
) -> Cut[Row]:
    """Sort by the column in the address; numbers begin with the largest, names with A, and unknown ones come last."""
    sort = ask.text("sort") if ask.text("sort") in columns else first
    key = columns[sort]
    known = [(key(row), row) for row in rows]
    with_value = [pair for pair in known if pair[0] is not None]
    numeric = bool(with_value) and not isinstance(with_value[0][0], str)
    down = numeric != bool(ask.text("up"))
    with_value.sort(key=lambda pair: pair[0], reverse=down)
    ordered = [row for _, row in with_value] + [row for value, row in known if value is None]
    pages = max(1, -(-len(ordered) // PAGE))
    page = min(ask.number("page", 0), pages - 1)
    shown = tuple(ordered[page * PAGE : page * PAGE + PAGE])
    query = {name: value for name, value in keep.items() if value not in (None, "", False)}
    return Cut(shown, len(ordered), page, pages, sort, down, query)
