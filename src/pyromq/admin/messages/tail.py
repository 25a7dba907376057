"""Tail: follow the messages of a topic as they arrive."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from pyromq.client.consumer.subscriptions import ALL
from pyromq.errors import PyroMQError

from .ranges import topic_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyromq.client.admin import AdminClient
    from pyromq.client.consumer.subscriptions import Expression
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from .ranges import TopicRanges

_HELD = 5.0  # seconds a broker waits for a message
_AFTER_TROUBLE = 1.0
_AT_ONCE = 0.05
_NEW_QUEUES = 5.0
_AHEAD = 256  # messages to read ahead
_BATCH = 32


class Tail:
    """Follows queues of a topic. Each message comes once; no offset is committed.

        async with Tail(admin, await topic_ranges(admin, "orders")) as tail:
            async for message in tail:
                ...

    It starts where the ranges begin and never ends. With `new_queues` it also follows queues that the topic gets later,
    from their beginning; those of a broker that was silent at the start, from their end at that moment. A failing
    broker is asked again, and `trouble` hears of it; messages it stores meanwhile are not lost. Messages of one queue
    come in order, those of several as they arrive.
    """

    def __init__(
        self,
        admin: AdminClient,
        ranges: TopicRanges,
        expression: Expression = ALL,
        trouble: Callable[[str], None] = lambda line: None,
        *,
        new_queues: bool = True,
    ) -> None:
        self._admin = admin
        self._topic = ranges.topic
        self._begins = {part.queue: part.begin for part in ranges.queues}
        self._since = {part.queue: part.since for part in ranges.queues}
        self._addresses = {part.queue.broker_name: part.address for part in ranges.queues}
        self._silent = {each.server for each in ranges.missing}
        self._new_queues = new_queues
        self._expression = expression
        self._trouble = trouble
        self._troubles: dict[MessageQueue, str] = {}
        self._found: asyncio.Queue[MessageExt] = asyncio.Queue(_AHEAD)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for queue in self._begins:
            self._start(self._follow(queue))
        if self._new_queues:
            self._start(self._look_for_new_queues())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        return await self._found.get()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"tail {self._topic}"))

    async def _follow(self, queue: MessageQueue) -> None:
        offset, since = self._begins[queue], self._since.get(queue, 0)
        while True:
            began = time.monotonic()
            try:
                found = await self._admin.messages.pull(
                    self._addresses[queue.broker_name], queue, offset, _BATCH, expression=self._expression, wait=_HELD
                )
            except PyroMQError as exc:
                self._say(queue, str(exc))
                await asyncio.sleep(_AFTER_TROUBLE)
                continue
            self._troubles.pop(queue, None)
            for message in found.messages:
                if message.store_timestamp >= since:
                    await self._found.put(message)
            if found.next_offset == offset and time.monotonic() - began < _AT_ONCE:
                await asyncio.sleep(_AT_ONCE)  # it does not hold pulls
            offset = found.next_offset

    def _say(self, queue: MessageQueue, line: str) -> None:
        """Report once, not every second; and once for all queues of a broker."""
        if line not in self._troubles.values():
            self._trouble(line)
        self._troubles[queue] = line

    async def _look_for_new_queues(self) -> None:
        while True:
            await asyncio.sleep(_NEW_QUEUES)
            try:
                self._addresses |= await self._admin.brokers.of_topic(self._topic)
                ranges = (await topic_ranges(self._admin, self._topic)).queues
            except PyroMQError:
                continue  # the tasks that ask that broker report it
            for part in ranges:
                if part.queue not in self._begins:
                    old = part.queue.broker_name in self._silent
                    self._begins[part.queue] = part.end if old else part.begin
                    self._start(self._follow(part.queue))
