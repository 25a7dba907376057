"""Peers that mean no good, in a process of their own: half frames, garbage, floods. On loopback alone.

They come from addresses of their own, so that a server can tell them from honest ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event

CROWD_SOURCE = "127.0.0.9"
FLOOD_SOURCE = "127.0.0.10"
BOOT_SECONDS = 60.0

# Who was sent away comes back after so many seconds.
_PAUSE = 1.0
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Abuse:
    """How many of each kind. `frame` is an honest request, which those that flood repeat and the others never end."""

    port: int
    frame: bytes
    half_frames: int = 0
    garbage: int = 0
    floods: int = 0


@contextlib.contextmanager
def abused(abuse: Abuse) -> Iterator[None]:
    """Meanwhile, all of them do their worst; entered once each has been there."""
    context = multiprocessing.get_context("spawn")
    begun, over = context.Event(), context.Event()
    process = context.Process(target=_run, args=(abuse, begun, over), daemon=True)
    process.start()
    try:
        assert begun.wait(BOOT_SECONDS), "those who abuse the server did not get ready"
        yield
    finally:
        over.set()
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _run(abuse: Abuse, begun: Event, over: Event) -> None:
    asyncio.run(_abuse(abuse, begun, over))


async def _abuse(abuse: Abuse, begun: Event, over: Event) -> None:
    few = asyncio.Semaphore(_AT_ONCE)
    there = [asyncio.Event() for _ in range(abuse.half_frames + abuse.garbage + abuse.floods)]
    kinds = [_half_frame] * abuse.half_frames + [_garbage] * abuse.garbage + [_flood] * abuse.floods
    tasks = [
        asyncio.create_task(_again_and_again(kind, abuse, few, been)) for kind, been in zip(kinds, there, strict=True)
    ]
    for been in there:
        await been.wait()
    begun.set()
    await asyncio.to_thread(over.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _again_and_again(kind, abuse: Abuse, few: asyncio.Semaphore, been: asyncio.Event) -> None:
    source = FLOOD_SOURCE if kind is _flood else CROWD_SOURCE
    while True:
        with contextlib.suppress(OSError):
            async with few:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", abuse.port, local_addr=(source, 0), family=socket.AF_INET
                )
            try:
                await kind(abuse, reader, writer, been)
            finally:
                writer.transport.abort()
        been.set()
        await asyncio.sleep(_PAUSE * random.uniform(0.5, 1.5))


async def _half_frame(abuse: Abuse, reader, writer, been) -> None:
    writer.write(abuse.frame[: len(abuse.frame) // 2])
    been.set()
    await reader.read()


async def _garbage(abuse: Abuse, reader, writer, been) -> None:
    writer.write(random.randbytes(200))
    await reader.read()


async def _flood(abuse: Abuse, reader, writer, been) -> None:
    async def forget_answers() -> None:
        while await reader.read(1 << 20):
            pass

    forgetting = asyncio.create_task(forget_answers())
    many = abuse.frame * max(1, (1 << 16) // len(abuse.frame))
    been.set()
    try:
        while not forgetting.done():
            writer.write(many)
            await writer.drain()
    finally:
        forgetting.cancel()
