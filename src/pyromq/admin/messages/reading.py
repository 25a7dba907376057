"""Reading what queues have, as somebody who only looks: no group, no offset committed."""

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
    """The messages in these ranges, in the order in which they were stored, whichever queue they are in.

    Of each queue one batch is kept in memory. Raises what asking raises if a broker fails on the way.
    """
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(aclosing(_read(admin, part, expression))) for part in ranges.queues]
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
    """The last messages that fit. The more of them do not fit, the further back one has to look."""
    depth = count
    while True:
        near = last_messages(ranges, depth)
        async with aclosing(read_ranges(admin, near, expression)) as messages:
            found = [message async for message in messages if fits(message)]
        if len(found) >= count or near == ranges:
            return found[-count:]
        depth *= 8


class _Head:
    """The next message of one queue. Within a millisecond the place in the log tells the order."""

    __slots__ = ("_age", "message", "reader")

    def __init__(self, message: MessageExt, reader: int) -> None:
        self.message = message
        self.reader = reader
        self._age = message.store_timestamp, message.record.physical_offset, reader

    def __lt__(self, other: _Head) -> bool:
        return self._age < other._age


async def _all_first(readers: list[AsyncGenerator[MessageExt, None]]) -> list[MessageExt | None]:
    """Of all queues at the same time. The first failure is raised as it is."""
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


async def _read(admin: AdminClient, part: QueueRange, expression: Expression) -> AsyncGenerator[MessageExt, None]:
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
            return  # there is nothing more, or a broker that leads in circles
        offset = found.next_offset
