"""`async for message in consumer`: iterate over the messages of a consumer without handlers."""

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
    """The source of a loop's messages."""

    async def take(self) -> ReceivedMessage: ...

    def finish(self, message: ReceivedMessage, outcome: Outcome) -> None: ...

    def give_back(self, message: ReceivedMessage) -> None: ...


class Iteration:
    """One `async for` loop. It holds one message at a time, which is done when it asks for the next one.

    If the loop is left by an exception or `break`, its message is delivered again, unless `ack()` was called. We learn
    that a loop was left when Python collects this object.
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
        # It may be collected anywhere, even in the middle of the source's work or in another thread: only leave a note.
        if self._message is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it everything
                self._loop.call_soon_threadsafe(self._source.give_back, self._message)
