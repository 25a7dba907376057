"""Long work on the event loop, in turns: nobody waits for more than a little of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

_TURN = 0.002  # seconds


def in_turns(loop: asyncio.AbstractEventLoop, steps: Iterator[object]) -> None:
    """Take as many of `steps` as fit into a turn now, and the rest in later ones. Usually all fit."""
    enough = loop.time() + _TURN
    for _ in steps:
        if loop.time() > enough:
            loop.call_soon(in_turns, loop, steps)
            return
