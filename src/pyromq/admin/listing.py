"""Listing: rows from several servers, and which servers did not answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.client.admin.fan_out import Missing

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """A table. Each row is a frozen dataclass of the type `of`; an unknown value is None, never 0.

    `summary` is a sentence for people. Always show `missing` with the rows: without it they look complete.
    """

    of: type[Row]
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...] = ()
    summary: str = ""

    @classmethod
    def make(cls, of: type[Row], rows: Iterable[Row], missing: Iterable[Missing] = (), summary: str = "") -> Self:
        return cls(of, tuple(rows), tuple(missing), summary)

    def with_rows(self, rows: Iterable[Row]) -> Self:
        """The same listing with other rows, for example after a filter."""
        return replace(self, rows=tuple(rows))
