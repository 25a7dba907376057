"""The event loop: uvloop where it is installed, Python's own elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in a new loop; when it returns, end its tasks and close the loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
