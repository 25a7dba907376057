"""Listing: rows that several servers gave, and what is missing because others did not answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.client.admin.fan_out import Missing

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """A table. Each row is a frozen dataclass of the type `of`; what is not known in a row is None, never 0.

    `summary` is a sentence for people. Whoever shows rows has to show `missing`, too: without it they look complete.
    """

    of: type[Row]
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...] = ()
    summary: str = ""

    @classmethod
    def make(cls, of: type[Row], rows: Iterable[Row], missing: Iterable[Missing] = (), summary: str = "") -> Self:
        return cls(of, tuple(rows), tuple(missing), summary)

    def with_rows(self, rows: Iterable[Row]) -> Self:
        """The same with other rows, as after a filter."""
        return replace(self, rows=tuple(rows))
