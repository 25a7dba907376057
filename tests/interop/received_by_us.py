"""What consumers of ours got, and ways to wait for it: the brokers are other processes, and no event tells of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from pyromq.client import Client, Consumer, ReceivedMessage, StartAt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 30.0
_PAUSE = 0.05


class Inbox:
    """A handler that takes everything, and remembers it and when it came."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.times: list[float] = []
        self._changed = asyncio.Condition()

    async def __call__(self, message: ReceivedMessage) -> None:
        await self.add(message)

    async def add(self, message: ReceivedMessage) -> None:
        async with self._changed:
            self.messages.append(message)
            self.times.append(time.monotonic())
            self._changed.notify_all()

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]

    async def holds(self, count: int, seconds: float = PATIENCE) -> list[str]:
        """Wait until so many messages came; gives the bodies of all that did."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: len(self.messages) >= count)
        except TimeoutError:
            raise AssertionError(f"{len(self.messages)} of {count} within {seconds:g} s: {self.bodies[:50]}") from None
        return self.bodies

    async def holds_all(self, bodies: set[str], seconds: float = PATIENCE) -> None:
        """Wait until all of these came, whatever else did."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: bodies <= set(self.bodies))
        except TimeoutError:
            missing = sorted(bodies - set(self.bodies))
            raise AssertionError(f"{len(missing)} missing after {seconds:g} s: {missing[:10]}") from None


def consumer_of(group: str, topic: str, handler: Any = None, *, expr: Any = "*", **settings: Any) -> Consumer:
    """A consumer of one topic, from its first message on unless told otherwise."""
    consumer = Consumer(group, **({"start_at": StartAt.FIRST} | settings))
    consumer.subscribe(topic, expr, handler)
    return consumer


def queues_of(consumer: Consumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in consumer.assignment if queue.topic == topic}


async def eventually(condition: Callable[[], Awaitable[Any] | Any], what: str, seconds: float = PATIENCE) -> Any:
    """Ask until the answer is true, and give it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(_PAUSE)


async def cut_off(client: Client) -> None:
    """End a client as a kill of its process would, as far as its broker can see."""
    await client.tasks.close()
    await client.remoting.close()
