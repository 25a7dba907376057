"""`async for message in consumer`: the messages of a consumer without handlers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from .backlog import BacklogClosed
from .outcomes import ACK

if TYPE_CHECKING:
    import asyncio

    from .outcomes import Outcome
    from .received_message import ReceivedMessage


class Source(Protocol):
    """Where loops get their messages from."""

    async def take(self) -> ReceivedMessage: ...

    def finish(self, message: ReceivedMessage, outcome: Outcome) -> None: ...

    def give_back(self, message: ReceivedMessage) -> None: ...


class Iteration:
    """One `async for` loop. It holds one message at a time, which is done when the next one is asked for.

    A loop that is left, by an exception or by `break`, has not asked for the next one: its message is delivered again,
    unless `ack()` was called for it. Python tells us that a loop was left by collecting this object.
    """

    __slots__ = ("_loop", "_message", "_source")

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._message: ReceivedMessage | None = None

    def __aiter__(self) -> Iteration:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message, self._message = self._message, None
        if message is not None:
            self._source.finish(message, message.mark or ACK)
        try:
            self._message = await self._source.take()
        except BacklogClosed:
            raise StopAsyncIteration from None
        return self._message

    def __del__(self) -> None:
        # Collected anywhere, also in the middle of what the source is doing, or in another thread: only leave word.
        if self._message is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it everything
                self._loop.call_soon_threadsafe(self._source.give_back, self._message)
