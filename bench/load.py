"""A load driver: C connections with W requests in flight each, ready-made frames, replies counted and not decoded.

It runs in a process of its own so that its cost is not the server's, and costs a few microseconds a request, so that
what is measured is the server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load saw: requests a second, and how long they took in milliseconds."""

    rate: float
    p50: float
    p99: float
    count: int  # of all answers, also those before the measured time


class _Driver(asyncio.Protocol):
    """Keeps `window` requests in flight: a reply is followed by the next request, those of one read by one write."""

    def __init__(self, frame: bytes, window: int, times: list[float]) -> None:
        self._frame = frame
        self._window = window
        self._times = times
        self._sent: list[float] = []
        self._rest = b""
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._sent = [time.perf_counter()] * self._window
        transport.write(self._frame * self._window)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        position = replies = 0
        while position + 4 <= len(data):
            end = position + 4 + _LENGTH.unpack_from(data, position)[0]
            if end > len(data):
                break
            position = end
            replies += 1
        self._rest = data[position:]
        if replies:
            now = time.perf_counter()
            # Replies to requests of one kind come in order, so the oldest ones were answered.
            self._times += [now - sent for sent in self._sent[:replies]]
            self._sent = self._sent[replies:] + [now] * replies
            self.count += replies
            self._transport.write(self._frame * replies)  # type: ignore[attr-defined]


def drive(port: int, frame: bytes, connections: int, window: int, seconds: float) -> Measured:
    """Load the server on `port` of this machine with `frame` for so long, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_drive, (port, frame, connections, window, seconds))


def _drive(port: int, frame: bytes, connections: int, window: int, seconds: float) -> Measured:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_load(port, frame, connections, window, seconds))


async def _load(port: int, frame: bytes, connections: int, window: int, seconds: float) -> Measured:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    drivers = []
    for _ in range(connections):
        _, driver = await loop.create_connection(lambda: _Driver(frame, window, times), "127.0.0.1", port)
        drivers.append(driver)
    await asyncio.sleep(min(1.0, seconds / 4))  # until all are under way
    times.clear()
    began, before = time.perf_counter(), sum(driver.count for driver in drivers)
    await asyncio.sleep(seconds)
    rate = (sum(driver.count for driver in drivers) - before) / (time.perf_counter() - began)
    count = sum(driver.count for driver in drivers)
    return Measured(rate, _percentile(times, 50), _percentile(times, 99), count)


def _percentile(times: Sequence[float], percent: int) -> float:
    ordered = sorted(times)
    return 1000 * ordered[len(ordered) * percent // 100] if ordered else 0.0
