"""Appends: all messages that arrive within one turn of the event loop are stored by one write.

Whoever has messages puts them here with a function to call when they are stored. The turn ends in one `store.put`; then
the pulls that wait for these queues are woken, and the senders answered: at once, or under SYNC_FLUSH when the whole
turn's messages are on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyromq.errors import StoreNotWritable
from pyromq.store import PutResult, PutStatus

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyromq.protocol.record import MessageRecord
    from pyromq.store import MessageStore
    from pyromq.store.put import Unit
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .stats.throughput import Throughput

logger = logging.getLogger(__name__)

_OK = PutStatus.PUT_OK

# Called once with a result for each message of the unit.
Stored = Callable[[Sequence[PutResult]], None]


class Appends:
    """The way of messages into the store. `arrived` is told each queue that got some, before any sender is answered."""

    def __init__(
        self,
        store: MessageStore,
        arrived: Callable[[ConsumeQueue], None],
        throughput: Throughput,
        *,
        sync_flush: bool = False,
        sync_flush_timeout: float = 5.0,
    ) -> None:
        self._store = store
        self._arrived = arrived
        self._throughput = throughput
        self._sync_flush = sync_flush
        self._sync_flush_timeout = sync_flush_timeout
        self._loop = asyncio.get_running_loop()
        self._units: list[Unit] = []
        self._stored: list[tuple[Stored, bool]] = []
        # Turns whose senders wait for the disk, and how many senders these are.
        self._waiting: set[_Turn] = set()
        self.waiting = 0

    def put(self, queue: ConsumeQueue, records: Sequence[MessageRecord], stored: Stored, *, wait: bool = True) -> None:
        """Store `records`, side by side, at the end of this turn. `wait` False: not to wait for the disk."""
        if not self._units:
            self._loop.call_soon(self.flush)
        self._units.append((queue, records))
        self._stored.append((stored, wait))

    def put_again(self, queue: ConsumeQueue, record: MessageRecord) -> PutResult:
        """Store a message now that was taken before, when longer ones were allowed."""
        try:
            (result,) = self._store.put_again((queue, (record,)))
        except StoreNotWritable as exc:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, error=str(exc))
        self._arrived(queue)
        return result

    def flush(self) -> None:
        """End the turn now."""
        units, stored = self._units, self._stored
        if not units:
            return
        self._units, self._stored = [], []
        began, log_end = time.perf_counter(), self._store.log.end
        try:
            results = self._store.put(units)
        except StoreNotWritable as exc:
            refused = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, error=str(exc))
            for (tell, _), (_, records) in zip(stored, units, strict=True):
                self._throughput.refused(len(records))
                tell([refused] * len(records))
            return
        took = 1000 * (time.perf_counter() - began)
        self._throughput.stored(len(results), self._store.log.end - log_end, took)
        for queue in dict.fromkeys([unit[0] for unit in units]):
            self._arrived(queue)
        waiting: list[tuple[Stored, Sequence[PutResult]]] = []
        at = 0
        sync_flush = self._sync_flush
        for (tell, wait), (_, records) in zip(stored, units, strict=True):
            count = len(records)
            part = results[at : at + count]
            at += count
            if sync_flush and wait and part[0].status is _OK:
                waiting.append((tell, part))
            else:
                tell(part)
        if waiting:
            self._wait_for_disk(waiting)

    def _wait_for_disk(self, waiting: list[tuple[Stored, Sequence[PutResult]]]) -> None:
        turn = _Turn(waiting)
        self._waiting.add(turn)
        self.waiting += len(waiting)
        timer = self._loop.call_later(self._sync_flush_timeout, self._answer, turn, PutStatus.FLUSH_DISK_TIMEOUT)

        def flushed(future: Future[None]) -> None:
            # In the flush thread, or here if the disk was faster.
            failed = future.exception() is not None
            status = PutStatus.SERVICE_NOT_AVAILABLE if failed else PutStatus.PUT_OK
            self._loop.call_soon_threadsafe(self._flushed, turn, timer, status)

        self._store.flushed().add_done_callback(flushed)

    def _flushed(self, turn: _Turn, timer: asyncio.TimerHandle, status: PutStatus) -> None:
        timer.cancel()
        self._answer(turn, status)

    def _answer(self, turn: _Turn, status: PutStatus) -> None:
        if turn not in self._waiting:
            return  # too late: they were told of a time-out
        self._waiting.discard(turn)
        self.waiting -= len(turn.waiting)
        for tell, results in turn.waiting:
            if status is PutStatus.PUT_OK:
                tell(results)
            else:
                tell([result.with_status(status) for result in results])


class _Turn:
    """Senders that wait for the same flush."""

    __slots__ = ("waiting",)

    def __init__(self, waiting: list[tuple[Stored, Sequence[PutResult]]]) -> None:
        self.waiting = waiting
