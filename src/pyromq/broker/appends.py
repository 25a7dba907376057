"""Appends: all messages that arrive within one turn of the event loop are stored by one write.

Each message comes with a function to call once it is stored. The turn ends in one `store.put`; then the pulls
that wait for these queues are woken, and the durability gate tells the senders.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import StoreNotWritable
from pyromq.store import PutResult, PutStatus

from .durability import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyromq.protocol.record import MessageRecord
    from pyromq.store import MessageStore
    from pyromq.store.put import Run, Unit
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .durability import DurabilityGate
    from .stats.throughput import Throughput

logger = logging.getLogger(__name__)

__all__ = ["Appends", "Stored"]


class Appends:
    """The way into the store. `arrived` is called with each queue that got messages, before any sender is answered.

    `appended` is called when the log has grown: slaves wait for it.
    """

    def __init__(
        self,
        store: MessageStore,
        gate: DurabilityGate,
        arrived: Callable[[ConsumeQueue], None],
        throughput: Throughput,
        appended: Callable[[], None] = lambda: None,
    ) -> None:
        self._appended = appended
        self._store = store
        self._gate = gate
        self._arrived = arrived
        self._throughput = throughput
        self._loop = asyncio.get_running_loop()
        self._units: list[Unit | Run] = []
        self._stored: list[tuple[Stored, bool]] = []
        # A run to which messages may still be added: it came last.
        self.open_run: Run | None = None

    def put(self, queue: ConsumeQueue, records: Sequence[MessageRecord], stored: Stored, *, wait: bool = True) -> None:
        """Store `records`, side by side, at the end of this turn. With `wait` False, do not wait for the disk."""
        if not self._units:
            self._loop.call_soon(self.flush)
        self.open_run = None
        self._units.append((queue, records))
        self._stored.append((stored, wait))

    def put_run(self, run: Run, stored: Stored, *, now: bool = False) -> None:
        """Store the messages of a run, with those that it gets until something else is put. All senders wait.

        With `now` the turn ends here.
        """
        if not self._units and not now:
            self._loop.call_soon(self.flush)
        self.open_run = run
        self._units.append(run)
        self._stored.append((stored, True))
        if now:
            self.flush()

    def put_again(self, queue: ConsumeQueue, record: MessageRecord) -> PutResult:
        """Store a message, now, that was accepted when longer messages were allowed."""
        try:
            (result,) = self._store.put_again((queue, (record,)))
        except StoreNotWritable as exc:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, error=str(exc))
        self._arrived(queue)
        self._appended()
        return result

    def flush(self) -> None:
        """End the turn now."""
        units, stored = self._units, self._stored
        if not units:
            return
        self._units, self._stored, self.open_run = [], [], None
        too_few = self._gate.too_few_copies()
        if too_few is not None:
            units, stored = self._not_waiting(units, stored, too_few)
            if not units:
                return
        began, log_end = time.perf_counter(), self._store.log.end
        try:
            refusal = self._gate.refusal()
            if refusal is not None:
                raise StoreNotWritable(refusal)
            results = self._store.put(units)
        except StoreNotWritable as exc:
            refused = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, error=str(exc))
            for (tell, _), unit in zip(stored, units, strict=True):
                self._throughput.refused(_messages(unit))
                tell([refused] * _messages(unit))
            return
        took = 1000 * (time.perf_counter() - began)
        self._throughput.stored(sum(map(_messages, units)), self._store.log.end - log_end, took)
        for queue in dict.fromkeys([queue for unit in units for queue in _queues(unit)]):
            self._arrived(queue)
        self._appended()
        self._gate.stored(units, stored, results)

    def _not_waiting(
        self, units: list[Unit | Run], stored: list[tuple[Stored, bool]], reason: str
    ) -> tuple[list[Unit | Run], list[tuple[Stored, bool]]]:
        """Refuse those whose senders wait; gives the others."""
        refused = PutResult(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, error=reason)
        others: list[tuple[Unit | Run, tuple[Stored, bool]]] = []
        for unit, (tell, wait) in zip(units, stored, strict=True):
            if wait:
                self._throughput.refused(_messages(unit))
                tell([refused] * _messages(unit))
            else:
                others.append((unit, (tell, wait)))
        return [unit for unit, _ in others], [sender for _, sender in others]


def _messages(unit: Unit | Run) -> int:
    return len(unit[1]) if isinstance(unit, tuple) else unit.count


def _queues(unit: Unit | Run) -> Iterable[ConsumeQueue]:
    return (unit[0],) if isinstance(unit, tuple) else unit.queues
