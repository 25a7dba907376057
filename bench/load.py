"""A load driver: C connections with W requests in flight each, ready-made frames, replies counted and not decoded.

It runs in a process of its own so that its cost is not the server's, and costs a few microseconds a request, so that
what is measured is the server. Of a reply it reads the length field only; the rest passes through one buffer that is
never copied, whether a reply has 200 bytes or 40,000. `Measured.busy` says how much of a core it took: a driver near 1
measured itself.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import struct
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

T = TypeVar("T")

_LENGTH = struct.Struct(">i")
_READ_SIZE = 1 << 18
_UNLIMITED = sys.maxsize
_LATEST = 10.0  # seconds until the last answers of a steady load must be there


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load saw: requests a second, and how long they took in milliseconds."""

    rate: float
    p50: float
    p99: float
    count: int  # of all answers, also those before the measured time
    busy: float  # the driver's own CPU time per second


class _Driver(asyncio.BufferedProtocol):
    """Keeps `window` requests in flight until `limit` were sent: a reply is followed by the next, a read by one write.

    Latencies assume replies in the order of the requests. A server that answers out of order looks steadier than it is:
    the sum of its latencies stays, their spread shrinks.
    """

    def __init__(self, frames: Sequence[bytes], window: int, limit: int, times: list[float]) -> None:
        self._frames = frames
        self._rotation = itertools.cycle(frames)
        self._window = window
        self._times = times
        self._sent: list[float] = []
        self._limit = limit
        self._unsent = limit
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self._held = 0  # bytes of a length field that arrived in part; they stand at the start of the buffer
        self._left = 0  # bytes that are still to come of a reply whose length is known
        self.count = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send(self._window, time.perf_counter())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._held :] if self._held else self._view

    def buffer_updated(self, nbytes: int) -> None:
        end = self._held + nbytes
        position = self._left
        if position > end:
            self._left = position - end
            return
        replies = 1 if position else 0
        while position + 4 <= end:
            following: int = position + 4 + _LENGTH.unpack_from(self._buffer, position)[0]
            if following > end:
                self._held, self._left = 0, following - end
                break
            position = following
            replies += 1
        else:
            self._held, self._left = end - position, 0
            self._buffer[: self._held] = self._buffer[position:end]
        if replies:
            now = time.perf_counter()
            self._times += [now - sent for sent in self._sent[:replies]]
            del self._sent[:replies]
            self.count += replies
            self._send(replies, now)
            if self.count >= self._limit and not self.ended.done():
                self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(f"the server closed a connection after {self.count:,} replies"))

    def _send(self, number: int, now: float) -> None:
        number = min(number, self._unsent)
        if not number:
            return
        self._unsent -= number
        self._sent += [now] * number
        if len(self._frames) == 1:
            data = self._frames[0] * number
        else:
            data = b"".join(itertools.islice(self._rotation, number))
        self._transport.write(data)  # type: ignore[attr-defined]


class _SteadyDriver(_Driver):
    """Sends when it is time to, whatever the server does; no more than `_MOST` requests wait for an answer."""

    _MOST = 4096

    def __init__(self, frames: Sequence[bytes], times: list[float]) -> None:
        super().__init__(frames, 0, _UNLIMITED, times)
        self._unsent = 0

    def send(self, number: int) -> int:
        """Send so many, or fewer if too many wait; how many it were."""
        number = self._unsent = min(number, self._MOST - len(self._sent))
        self._send(number, time.perf_counter())
        return number


def drive(port: int, frames: bytes | Sequence[bytes], connections: int, window: int, seconds: float) -> Measured:
    """Load the server on `port` of this machine for so long, with one frame or with several in turn."""
    return _in_a_process(_timed, port, _several(frames), connections, window, seconds)


def drive_count(port: int, frames: bytes | Sequence[bytes], connections: int, window: int, count: int) -> Measured:
    """Send `count` requests and wait for all their answers."""
    return _in_a_process(_counted, port, _several(frames), connections, window, count)


def drive_steadily(
    port: int, frame: bytes, connections: int, rate: float, seconds: float, meanwhile: Callable[[], T]
) -> tuple[Measured, T]:
    """Send `rate` requests a second, spread evenly, for so long, and what `meanwhile` gives, which runs here.

    TimeoutError if some stay unanswered: those would be the slowest, and a figure without them says nothing.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        measured = pool.apply_async(_run, (_steadily, (port, (frame,), connections, rate, seconds)))
        result = meanwhile()
        return measured.get(), result


def _several(frames: bytes | Sequence[bytes]) -> Sequence[bytes]:
    return (frames,) if isinstance(frames, bytes) else frames


def _in_a_process(load: Callable[..., Coroutine[Any, Any, Measured]], *arguments: object) -> Measured:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_run, (load, arguments))


def _run(load: Callable[..., Coroutine[Any, Any, Measured]], arguments: tuple[object, ...]) -> Measured:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load(*arguments))


async def _timed(port: int, frames: Sequence[bytes], connections: int, window: int, seconds: float) -> Measured:
    times: list[float] = []
    drivers = await _connect(port, frames, window, [_UNLIMITED] * connections, times)
    await asyncio.sleep(min(1.0, seconds / 4))  # until all are under way
    times.clear()
    before, began, busy = sum(driver.count for driver in drivers), time.perf_counter(), time.process_time()
    # Only a lost connection ends one of these, and then what was measured is worth nothing.
    lost, _ = await asyncio.wait([driver.ended for driver in drivers], timeout=seconds, return_when="FIRST_EXCEPTION")
    took, busy = time.perf_counter() - began, time.process_time() - busy
    for future in lost:
        future.result()
    count = sum(driver.count for driver in drivers)
    return _measured(times, count - before, took, count, busy)


async def _steadily(port: int, frames: Sequence[bytes], connections: int, rate: float, seconds: float) -> Measured:
    times: list[float] = []
    loop = asyncio.get_running_loop()
    drivers = []
    for _ in range(connections):
        _, driver = await loop.create_connection(lambda: _SteadyDriver(frames, times), "127.0.0.1", port)
        drivers.append(driver)
    began, busy, due, sent = time.perf_counter(), time.process_time(), 0, 0
    while (passed := time.perf_counter() - began) < seconds:
        more = int(passed * rate) - due
        for number, driver in enumerate(drivers):
            sent += driver.send(more // connections + (number < more % connections))
        due += more
        await asyncio.sleep(0.001)
    busy = time.process_time() - busy
    count = sum(driver.count for driver in drivers)
    async with asyncio.timeout(_LATEST):
        while sum(driver.count for driver in drivers) < sent:
            await asyncio.sleep(0.001)
            for driver in drivers:
                if driver.ended.done():
                    driver.ended.result()
    return _measured(times, count, passed, sent, busy)


async def _counted(port: int, frames: Sequence[bytes], connections: int, window: int, count: int) -> Measured:
    times: list[float] = []
    limits = [count // connections + (number < count % connections) for number in range(connections)]
    began, busy = time.perf_counter(), time.process_time()
    drivers = await _connect(port, frames, window, [limit for limit in limits if limit], times)
    await asyncio.gather(*(driver.ended for driver in drivers))
    return _measured(times, count, time.perf_counter() - began, count, time.process_time() - busy)


async def _connect(
    port: int, frames: Sequence[bytes], window: int, limits: Sequence[int], times: list[float]
) -> list[_Driver]:
    """One connection for each limit. Each starts at another place of the frames, so that they do not march in step."""
    loop = asyncio.get_running_loop()
    drivers = []
    for number, limit in enumerate(limits):
        start = len(frames) * number // len(limits)
        own = (*frames[start:], *frames[:start])
        _, driver = await loop.create_connection(
            lambda own=own, limit=limit: _Driver(own, window, limit, times),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        drivers.append(driver)
    return drivers


def _measured(times: list[float], replies: int, took: float, count: int, busy: float) -> Measured:
    if not times:
        raise TimeoutError("no request was answered in the measured time")
    times.sort()
    return Measured(replies / took, _percentile(times, 50), _percentile(times, 99), count, busy / took)


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return 1000 * ordered[len(ordered) * percent // 100]
