"""Requests whose body takes a while to read: a large one is read in a thread, so that nobody else waits for it.

    table = {RequestCode.HEART_BEAT: with_body(HeartbeatData.decode, self.heartbeat)}

While its body is read nothing more is taken from that connection: its requests keep their order, and each peer has at
most one large body waiting for the one thread that all share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyromq.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .connection import Connection
    from .endpoint import Processor

T = TypeVar("T")

# Plain JSON takes 10 ms per megabyte, a text with refs or as strange a hundred times as much: 8 ms at worst.
ON_LOOP = 8 * 1024


def with_body(
    read: Callable[[bytes], T],
    answer: Callable[[Connection, Command, T], Command | Awaitable[Command | None] | None],
    on_loop: int = ON_LOOP,
) -> Processor:
    """A processor that calls `answer` with what `read` makes of the body, in a thread if that is over `on_loop`."""
    return with_read(lambda request: read(request.body_bytes), answer, on_loop)


def with_read(
    read: Callable[[Command], T],
    answer: Callable[[Connection, Command, T], Command | Awaitable[Command | None] | None],
    on_loop: int = ON_LOOP,
) -> Processor:
    """As `with_body`, where reading needs more of the request than its body."""

    def process(connection: Connection, request: Command) -> Command | Awaitable[Command | None] | None:
        if len(request.body_bytes) <= on_loop:
            return answer(connection, request, read(request))
        return process_later(connection, request, connection.run_apart(read, request))

    async def process_later(connection: Connection, request: Command, reading: Awaitable[T]) -> Command | None:
        body = await reading
        if connection.closed:
            return None  # What it says of a peer that is gone must not come after the news of its end.
        result = answer(connection, request, body)
        return result if result is None or isinstance(result, Command) else await result

    return process
