"""Lets a reader take part in Spark's filter push-down, whether or not that is enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import DataSourceReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import Filter


class TakesFilters(Protocol):
    """A reader that applies some filters itself."""

    def push(self, filters: list[Filter]) -> Sequence[Filter]:
        """Take over filters; returns those that Spark must apply."""


class PushFilters:
    """`pushFilters` of a reader, in a form that also works while Spark's push-down is off, the default.

    Then Spark refuses any reader that overrides the base class's method, which it detects by `__func__`. While
    push-down is on, Spark only calls it.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: TakesFilters) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Sequence[Filter]:
        return self._reader.push(filters)
