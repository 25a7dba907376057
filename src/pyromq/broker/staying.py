"""When what the log holds is there to stay. Whoever notes elsewhere that something was done waits for it here first.

Otherwise the log could lose what was done, by a power failure or to a new master, and the note would outlive it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.store import MessageStore

_LOOK = 0.01


async def log_stays(store: MessageStore, end: int | None = None) -> None:
    """Return once the log up to `end`, or all of it, is on disk, and confirmed if the broker's group fails over."""
    end = int(store.log.end) if end is None else end
    await asyncio.wrap_future(store.flushed(end))
    while store.confirmed < end:  # noqa: ASYNC110 - a store has no events, and nobody is in a hurry here
        await asyncio.sleep(_LOOK)
