"""Answers to request(): who waits for which, by correlation id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyromq.protocol import properties as props

if TYPE_CHECKING:
    from pyromq.errors import PyroMQError
    from pyromq.protocol.message import MessageExt


class Replies:
    """The requests of a client that wait for an answer of another client. Deadlines are those who wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """A future that ends with the answer. Whoever stops waiting calls `forget`."""
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def resolve(self, message: MessageExt) -> bool:
        """Give the answer to whoever waits for it; False if nobody does (any more)."""
        future = self._waiting.pop(message.properties.get(props.CORRELATION_ID, ""), None)
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    def fail_all(self, error: PyroMQError) -> None:
        """No answer can come any more."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever still waits raises it; nobody else need be told
