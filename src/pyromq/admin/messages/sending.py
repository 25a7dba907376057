"""Send many messages: at a steady rate, or as fast as brokers answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

    from pyromq.client import Client, Producer, SendResult
    from pyromq.protocol.message import Message
    from pyromq.protocol.message_queue import MessageQueue

_AT_ONCE = 256


class Pace:
    """Limits a rate evenly: says when the next message may go.

    A late sender catches up with a burst of at most a tenth of a second.
    """

    def __init__(self, rate: float | None) -> None:
        self._gap = 1.0 / rate if rate else 0.0
        self._next = 0.0

    def due(self, now: float) -> float:
        """When the next message, ready at `now`, may go."""
        self._next = max(self._next, now - 0.1)
        due, self._next = self._next, self._next + self._gap
        return due

    async def turn(self) -> None:
        if self._gap:
            now = asyncio.get_running_loop().time()
            if not self._next:
                self._next = now
            if (wait := self.due(now) - now) > 0:
                await asyncio.sleep(wait)


class Pause:
    """Marks a pause in a stream of messages: send what there is, the next may take a while."""


PAUSE: Any = Pause()


async def send_all(
    client: Client,
    group: str,
    messages: AsyncIterable[Message],
    *,
    queue: MessageQueue | None = None,
    rate: float | None = None,
) -> AsyncGenerator[SendResult, None]:
    """Send messages, many at the same time unless there is a rate; yields the results in the same order.

    A broker with many threads may store concurrent messages in another order. Stops at the first failure.
    """
    from pyromq.client import Producer

    pace = Pace(rate)
    async with Producer(group, client=client) as producer:
        async for batch in _batches(messages, 1 if rate else _AT_ONCE):
            await pace.turn()
            for result in await _send_batch(producer, batch, queue):
                yield result


async def _send_batch(producer: Producer, batch: list[Message], queue: MessageQueue | None) -> list[SendResult]:
    if len(batch) == 1:
        return [await producer.send(batch[0], queue=queue)]
    waiting = [await producer.submit(message, queue=queue) for message in batch]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    results = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results


async def _batches(messages: AsyncIterable[Message], size: int) -> AsyncIterator[list[Message]]:
    batch: list[Message] = []
    async for message in messages:
        if message is not PAUSE:
            batch.append(message)
        if batch and (message is PAUSE or len(batch) >= size):
            yield batch
            batch = []
    if batch:
        yield batch
