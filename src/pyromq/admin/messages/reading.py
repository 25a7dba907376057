"""Read queues as an onlooker: without a group and without committing offsets."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

from pyromq.client.consumer.subscriptions import ALL
from pyromq.errors import PyroMQError

from .ranges import last_messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pyromq.client.admin import AdminClient
    from pyromq.client.consumer.subscriptions import Expression
    from pyromq.protocol.message import MessageExt

    from .ranges import QueueRange, TopicRanges

_BATCH = 32


async def read_ranges(
    admin: AdminClient, ranges: TopicRanges, expression: Expression = ALL
) -> AsyncGenerator[MessageExt, None]:
    """The messages in these ranges, in the order they were stored, across all queues.

    Keeps one batch per queue in memory. If a broker fails on the way, its error is raised.
    """
    async with AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(aclosing(read_range(admin, part, expression))) for part in ranges.queues
        ]
        firsts = await _all_first(readers)
        heads = [_Head(message, number) for number, message in enumerate(firsts) if message is not None]
        heapq.heapify(heads)
        while heads:
            head = heads[0]
            yield head.message
            following = await _next(readers[head.reader])
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, _Head(following, head.reader))


async def read_last(
    admin: AdminClient, ranges: TopicRanges, count: int, expression: Expression, fits: Callable[[MessageExt], bool]
) -> list[MessageExt]:
    """The last messages that match. The fewer match, the further back it has to read."""
    depth = count
    while True:
        near = last_messages(ranges, depth)
        async with aclosing(read_ranges(admin, near, expression)) as messages:
            found = [message async for message in messages if fits(message)]
        if len(found) >= count or near == ranges:
            return found[-count:]
        depth *= 8


class _Head:
    """The next message of one queue. Within a millisecond, the place in the log decides the order."""

    __slots__ = ("_age", "message", "reader")

    def __init__(self, message: MessageExt, reader: int) -> None:
        self.message = message
        self.reader = reader
        self._age = message.store_timestamp, message.record.physical_offset, reader

    def __lt__(self, other: _Head) -> bool:
        return self._age < other._age


async def _all_first(readers: list[AsyncGenerator[MessageExt, None]]) -> list[MessageExt | None]:
    """Ask all queues at the same time. Raises the first failure unchanged."""
    failure: BaseException | None = None
    tasks = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_next(reader), name="first message") for reader in readers]
    except* PyroMQError as failures:
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure
    return [task.result() for task in tasks]


async def _next(reader: AsyncGenerator[MessageExt, None]) -> MessageExt | None:
    return await anext(reader, None)


async def read_range(admin: AdminClient, part: QueueRange, expression: Expression) -> AsyncGenerator[MessageExt, None]:
    """The messages of a part of one queue, in order."""
    offset = part.begin
    while offset < part.end:
        found = await admin.messages.pull(
            part.address, part.queue, offset, min(_BATCH, part.end - offset), expression=expression
        )
        for message in found.messages:
            if message.queue_offset >= part.end or message.store_timestamp > part.until:
                return
            if message.store_timestamp >= part.since:
                yield message
        if found.next_offset <= offset:
            return  # nothing more, or a broker that sends us in circles
        offset = found.next_offset
