"""From an operation that raises PartialFailure to what it found nevertheless, and who is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import PartialFailure

from .listing import Missing

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def partly(operation: Awaitable[T]) -> tuple[T, tuple[Missing, ...]]:
    """The result, whole or in part. Raises PartialFailure where nothing was found out at all."""
    try:
        return await operation, ()
    except PartialFailure as exc:
        if exc.partial is None or not exc.done:
            raise
        found: T = exc.partial
        return found, tuple(Missing(server, error) for server, error in exc.failures)
