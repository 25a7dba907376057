"""Peers that mean no good, in a process of their own: half frames, garbage, floods. On loopback alone.

They come from addresses of their own, so that a server can tell them from honest ones. Their process runs only when
nobody else wants the processor: on a small machine it would otherwise take from the honest client what it means to
take from the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import uvloop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.sharedctypes import SynchronizedArray
    from multiprocessing.synchronize import Event

GARBAGE_SOURCE = "127.0.0.9"
FLOOD_SOURCE = "127.0.0.10"
HALF_FRAME_SOURCE = "127.0.0.11"
BOOT_SECONDS = 60.0

# Whoever was sent away comes back after so many seconds, on average.
_PAUSE = 1.0
_AT_ONCE = 200
_FLOOD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Abuse:
    """How many of each kind. `frame` is an honest request, which those that flood repeat and the others never end.

    Each of those that flood sends up to `flood_rate` requests a second; 0 means as many as the server takes. If they
    are `meek`, they get what others leave of the processor.
    """

    port: int
    frame: bytes
    half_frames: int = 0
    garbage: int = 0
    floods: int = 0
    flood_rate: int = 0
    meek: bool = True


class Done(NamedTuple):
    """What they have done so far."""

    connections: float
    flooded: float  # requests
    cpu: float  # seconds


@dataclass(frozen=True, slots=True)
class Crowd:
    """Those who do it, as seen from outside their process."""

    counts: SynchronizedArray[float]

    def done(self) -> Done:
        return Done(*self.counts[:])


@contextlib.contextmanager
def abused(abuse: Abuse) -> Iterator[Crowd]:
    """Meanwhile, all of them do their worst; entered once each has been there."""
    context = multiprocessing.get_context("spawn")
    begun, over = context.Event(), context.Event()
    crowd = Crowd(context.Array("d", len(Done._fields)))
    process = context.Process(target=_run, args=(abuse, crowd.counts, begun, over), daemon=True)
    process.start()
    try:
        assert begun.wait(BOOT_SECONDS), "those who abuse the server did not get ready"
        yield crowd
    finally:
        over.set()
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _run(abuse: Abuse, counts: SynchronizedArray[float], begun: Event, over: Event) -> None:
    if not abuse.meek:
        pass
    elif hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Abusers(abuse).run(counts, begun, over))


class _Abusers:
    """All of them, and what they count."""

    def __init__(self, abuse: Abuse) -> None:
        self.abuse = abuse
        self.flood = abuse.frame * max(1, _FLOOD_BYTES // len(abuse.frame))
        self.connections = 0
        self.flooded = 0
        self.few = asyncio.Semaphore(_AT_ONCE)

    async def run(self, counts: SynchronizedArray[float], begun: Event, over: Event) -> None:
        abuse = self.abuse
        kinds = [_HalfFrame] * abuse.half_frames + [_Garbage] * abuse.garbage + [_Flood] * abuse.floods
        been = [asyncio.Event() for _ in kinds]
        tasks = [asyncio.create_task(self._again_and_again(kind, each)) for kind, each in zip(kinds, been, strict=True)]
        for each in been:
            await each.wait()
        begun.set()
        while not over.is_set():
            counts[:] = self.connections, self.flooded, time.process_time()
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _again_and_again(self, kind: type[_Abuser], been: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(OSError):
                async with self.few:
                    transport, abuser = await loop.create_connection(
                        lambda: kind(self), "127.0.0.1", self.abuse.port, local_addr=(kind.source, 0)
                    )
                self.connections += 1
                been.set()
                try:
                    await abuser.lost
                finally:
                    transport.abort()
            been.set()
            await asyncio.sleep(_PAUSE * random.uniform(0.5, 1.5))


class _Abuser(asyncio.Protocol):
    source: str

    def __init__(self, all_of_them: _Abusers) -> None:
        self.all = all_of_them
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not subclass asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self.start()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def start(self) -> None:
        raise NotImplementedError


class _HalfFrame(_Abuser):
    source = HALF_FRAME_SOURCE

    def start(self) -> None:
        frame = self.all.abuse.frame
        self.transport.write(frame[: len(frame) // 2])


class _Garbage(_Abuser):
    source = GARBAGE_SOURCE

    def start(self) -> None:
        self.transport.write(random.randbytes(200))


class _Flood(_Abuser):
    """Forgets all answers."""

    source = FLOOD_SOURCE

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests = len(self.all.flood) // len(self.all.abuse.frame)
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.flooding = self.loop.create_task(self._write_on())

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.flooding.cancel()
        super().connection_lost(exc)

    async def _write_on(self) -> None:
        rate = self.all.abuse.flood_rate
        due = self.loop.time()
        while True:
            await self.may_write.wait()
            self.transport.write(self.all.flood)
            self.all.flooded += self.requests
            # What could not be sent in time is not made up for.
            due = max(due + self.requests / rate, self.loop.time() - 0.1) if rate else 0.0
            await asyncio.sleep(max(0.0, due - self.loop.time()))
