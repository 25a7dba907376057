"""Transactions: a half message and its commit, by a driver that reads of one answer what the next request needs.

It costs more than the plain driver, some ten microseconds a transaction, and runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import statistics
import struct
import time
from typing import TYPE_CHECKING

import uvloop

from . import features_frames
from .broker_rounds import BUSY, COLUMNS, ROUNDS, Round, comparison, title, warm_seconds
from .broker_table import progress, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .broker_peers import Peer

TOPIC, BODY = "TransactionTest", 1024
# Connections and transactions under way on each. With few connections broker and driver wait for one another in turn.
LOADS = ((4, 32), (16, 16))
LENGTHS = struct.Struct(">ii")
# Transactions a second and how long half of them and 99 % took (ms); how many; refusals; the driver's share of a core.
Driven = tuple[tuple[float, float, float], int, int, float]
# JSON headers as a Java client writes them; the only numbers that differ from message to message are filled in.
HALF = (
    '{"code":310,"extFields":{"a":"bench","b":"%s","c":"TBW102","d":"4","e":"0","f":"4","g":"1700000000000","h":"0",'
    '"i":"TRAN_MSG\\u0001true\\u0002PGROUP\\u0001bench\\u0002UNIQ_KEY\\u0001%s\\u0002WAIT\\u0001true","j":"0",'
    '"k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":%d,"version":409}'
)
END = (
    '{"code":37,"extFields":{"producerGroup":"bench","topic":"%s","tranStateTableOffset":"%d","commitLogOffset":"%d",'
    '"commitOrRollback":"8","fromTransactionCheck":"false","msgId":"%s","transactionId":"%s"},'
    '"flag":0,"language":"JAVA","opaque":%d,"version":409}'
)
OPAQUE = re.compile(rb'"opaque":(\d+)')
QUEUE_OFFSET = re.compile(rb'"queueOffset":"(\d+)"')
PHYSICAL = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})"')
BUSY_CODE = b"2"
CODE = re.compile(rb'"code":(\d+)')


def run(peers: Sequence[Peer], seconds: float) -> None:
    for peer in peers:
        features_frames.create_topic(peer, TOPIC)
    _drive(peers[1], warm_seconds(seconds) / 3, LOADS[0])
    notes: list[str] = []
    rows = [_compared(peers, seconds, load, notes) for load in LOADS]
    show(title(f"Transactions, half message and commit, {BODY} B", seconds), COLUMNS, rows, notes)


def _compared(peers: Sequence[Peer], seconds: float, load: tuple[int, int], notes: list[str]) -> Sequence[object]:
    results: list[list[Round]] = [[] for _ in peers]
    for _ in range(ROUNDS):
        for peer, rounds in zip(peers, results, strict=True):
            before, cpu = features_frames.stored(peer, TOPIC), peer.cpu_seconds()
            (rate, p50, p99), count, refused, busy = _drive(peer, seconds, load)
            rounds.append(Round(rate, p50, p99, (peer.cpu_seconds() - cpu) / count * 1e6, busy))
            progress(f"transactions: {peer.make} {rate:,.0f}/s, {rounds[-1].cpu:.1f} µs")
            if refused:
                notes.append(f"{peer.make} refused {refused:,} requests beside {count:,} transactions.")
            if not features_frames.wait_until_stored(peer, TOPIC, before + count, 10.0):
                there = features_frames.stored(peer, TOPIC) - before
                notes.append(f"{peer.make} has {there:,} messages of {count:,} transactions.")
    ours, theirs = (Round(*map(statistics.median, zip(*rounds, strict=True))) for rounds in results)
    if max(ours.busy, theirs.busy) > BUSY:
        notes.append("the driver took nearly a whole core and may be what was measured.")
    return comparison(f"{load[0]} × {load[1]}", ours, theirs)


def _drive(peer: Peer, seconds: float, load: tuple[int, int]) -> Driven:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (peer.port, seconds, load))


def _run(port: int, seconds: float, load: tuple[int, int]) -> Driven:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_timed(port, seconds, *load))


async def _timed(port: int, seconds: float, connections: int, window: int) -> Driven:
    loop = asyncio.get_running_loop()
    drivers = []
    began, busy = time.perf_counter(), time.process_time()
    for number in range(connections):
        _, driver = await loop.create_connection(lambda number=number: _Driver(number, window), "127.0.0.1", port)  # type: ignore[misc]
        drivers.append(driver)
    await asyncio.wait([driver.ended for driver in drivers], timeout=seconds, return_when="FIRST_EXCEPTION")
    took, busy = time.perf_counter() - began, time.process_time() - busy
    # What has begun is ended, so that every half message has its commit.
    for driver in drivers:
        driver.stop()
    measured = sum(len(driver.times) for driver in drivers)
    await asyncio.gather(*(driver.ended for driver in drivers))
    times = sorted(each for driver in drivers for each in driver.times)
    p50, p99 = (1000 * times[len(times) * percent // 100] for percent in (50, 99))
    refused = sum(driver.refused for driver in drivers)
    return (measured / took, p50, p99), len(times), refused, busy / took


class _Driver(asyncio.Protocol):
    """Keeps `window` transactions under way until told to stop. An even opaque is a half message, the next its end."""

    def __init__(self, number: int, window: int) -> None:
        self._window = window
        self.times: list[float] = []
        self.refused = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keys = f"{time.time_ns():016X}{number:04X}"
        self._body = b"x" * BODY
        self._began: dict[int, float] = {}
        self._next = 0
        self._data = b""
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._write([self._half() for _ in range(self._window)])

    def stop(self) -> None:
        self._stopped = True

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        at, frames = 0, []
        try:
            while at + 4 <= len(data):
                following = at + 4 + int.from_bytes(data[at : at + 4], "big")
                if following > len(data):
                    break
                frames.append(self._after(data[at + 8 : following]))
                at = following
        except ConnectionError as exc:
            self.connection_lost(exc)
            return
        self._data = data[at:]
        self._write([each for each in frames if each])
        if self._stopped and not self._began and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the broker closed a connection"))

    def _write(self, frames: list[bytes]) -> None:
        self._transport.write(b"".join(frames))  # type: ignore[attr-defined]

    def _after(self, reply: bytes) -> bytes:
        """What follows an answer: the end of a half message, or the next half message."""
        code, opaque = CODE.search(reply), OPAQUE.search(reply)
        if code is None or opaque is None or code[1] not in (b"0", BUSY_CODE):
            raise ConnectionError(f"the broker answered {reply[:300]!r}")
        number = int(opaque[1])
        if code[1] == BUSY_CODE:
            self.refused += 1
            del self._began[number - number % 2]
            return b"" if self._stopped else self._half()
        if number % 2 == 0:
            return self._end(number, reply)
        self.times.append(time.perf_counter() - self._began.pop(number - 1))
        return b"" if self._stopped else self._half()

    def _half(self) -> bytes:
        number, self._next = self._next, self._next + 2
        self._began[number] = time.perf_counter()
        return _framed(HALF % (TOPIC, self._key(number), number), self._body)

    def _end(self, number: int, reply: bytes) -> bytes:
        physical, offset = PHYSICAL.search(reply), QUEUE_OFFSET.search(reply)
        if physical is None or offset is None:
            raise ConnectionError(f"the broker answered {reply[:300]!r}")
        return _framed(
            END % (TOPIC, int(offset[1]), int(physical[1], 16), self._key(number), self._key(number), number + 1)
        )

    def _key(self, number: int) -> str:
        return f"{self._keys}{number:012X}"


def _framed(header: str, body: bytes = b"") -> bytes:
    text = header.encode()
    return LENGTHS.pack(4 + len(text) + len(body), len(text)) + text + body
