"""Splits long work on the event loop into short turns, so that other work is never held up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

_TURN = 0.002  # seconds


def in_turns(loop: asyncio.AbstractEventLoop, steps: Iterator[object]) -> None:
    """Run as many `steps` as fit into one turn now, the rest in later turns. Usually all fit."""
    enough = loop.time() + _TURN
    for _ in steps:
        if loop.time() > enough:
            loop.call_soon(in_turns, loop, steps)
            return
