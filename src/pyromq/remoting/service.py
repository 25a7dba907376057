"""A whole server: `run` it as a program, or embed it with `async with`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Service(ABC):
    """Once entered, it runs in its own task and can be reached; leaving stops it, or raises what went wrong."""

    _running: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self, listening: Callable[[], None] | None = None) -> None:
        """Serve until cancelled; every task starts and ends here. Calls `listening` once clients can connect."""

    @abstractmethod
    def reload(self) -> None:
        """Reload what may change at run time, such as certificates. Unusable ones change nothing."""

    async def __aenter__(self) -> Self:
        listening = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self.run(lambda: listening.set_result(None)), name=type(self).__name__)
        try:
            await asyncio.wait((self._running, listening), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        if not listening.done():
            await self._running
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait((self._running,))
        if not self._running.cancelled():
            self._running.result()

    async def ended(self) -> None:
        """Wait until it ends on its own, or raise why it did. Cancelling this stops nothing."""
        assert self._running is not None
        await asyncio.shield(self._running)
