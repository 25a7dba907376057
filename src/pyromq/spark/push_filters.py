"""How a reader takes part in Spark's filter push-down, whether that is switched on or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import DataSourceReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import Filter


class TakesFilters(Protocol):
    """A reader that applies some filters itself."""

    def push(self, filters: list[Filter]) -> Sequence[Filter]:
        """Take filters over; gives those that Spark has to apply."""


class PushFilters:
    """`pushFilters` of a reader, in a form that does no harm while Spark's push-down is off, which it is by default.

    Then Spark refuses any reader whose method is not the one of the base class, and looks at `__func__` to tell. While
    it is on, Spark only calls it.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: TakesFilters) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Sequence[Filter]:
        return self._reader.push(filters)
