"""The window of a producer: how much may be in flight at once."""

from __future__ import annotations

import asyncio
from collections import deque

from pyromq.errors import TooManyRequests


class Window:
    """Bounds messages by count and bytes. If it is full, callers wait in order of arrival.

    A message larger than the window still gets through, alone.
    """

    __slots__ = ("_bytes", "_count", "_max_bytes", "_max_count", "_waiting")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def count(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return self._bytes

    def try_enter(self, size: int) -> bool:
        """Take room for a message of `size` bytes, if there is some and no one is waiting for it."""
        if self._waiting or not self._has_room(size):
            return False
        self._count += 1
        self._bytes += size
        return True

    async def enter(self, size: int, timeout: float) -> None:
        """Wait for room. TooManyRequests if there is none in time."""
        if self.try_enter(size):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            async with asyncio.timeout(timeout):
                await future
        except BaseException as exc:
            if future.done() and not future.cancelled():
                # Room came at the same moment: pass it to the next.
                self.leave(size)
            else:
                future.cancel()
                self._admit()
            if isinstance(exc, TimeoutError):
                raise TooManyRequests(
                    f"{self._count} messages of {self._bytes} bytes are in flight, none was answered in {timeout:g} s"
                ) from None
            raise

    def leave(self, size: int) -> None:
        """A message is no longer in flight."""
        self._count -= 1
        self._bytes -= size
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        """Let callers in, first come first served, while there is room; skips those that gave up."""
        waiting = self._waiting
        while waiting:
            size, future = waiting[0]
            if not future.done():
                if not self._has_room(size):
                    return
                self._count += 1
                self._bytes += size
                future.set_result(None)
            waiting.popleft()

    def _has_room(self, size: int) -> bool:
        return not self._count or (self._count < self._max_count and self._bytes + size <= self._max_bytes)
