"""PollBuffer: pulled messages waiting to be polled, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

R = TypeVar("R")  # who reads a queue
M = TypeVar("M")  # a message


class PollBuffer(Generic[R, M]):
    """Batches, each from one pull of one queue. Pulling stops above `limit` messages."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._batches: deque[tuple[R, Sequence[M]]] = deque()
        self._count = 0
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        """Messages, not batches."""
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count > self._limit

    def put(self, reader: R, messages: Sequence[M]) -> None:
        self._batches.append((reader, messages))
        self._count += len(messages)
        self._filled.set()

    def take(self, most: int | None = None) -> list[tuple[R, Sequence[M]]]:
        """The first batch; with `most`, up to that many messages from any queue."""
        taken: list[tuple[R, Sequence[M]]] = []
        left = most
        while self._batches and (left is None or left > 0):
            reader, messages = self._batches.popleft()
            if left is not None and len(messages) > left:
                self._batches.appendleft((reader, messages[left:]))
                messages = messages[:left]
            taken.append((reader, messages))
            self._count -= len(messages)
            if left is None:
                break
            left -= len(messages)
        if not self._batches:
            self._filled.clear()
        return taken

    def discard(self, reader: R) -> None:
        """Drop the messages of one queue."""
        self._batches = deque(batch for batch in self._batches if batch[0] is not reader)
        self._count = sum(len(messages) for _, messages in self._batches)
        if not self._batches:
            self._filled.clear()

    async def wait(self, timeout: float) -> None:
        """Wait until there is something, `wake` is called, or the time is up."""
        try:
            async with asyncio.timeout(timeout):
                await self._filled.wait()
        except TimeoutError:
            pass

    def wake(self) -> None:
        """Make a waiting poll check again, although nothing came."""
        self._filled.set()
