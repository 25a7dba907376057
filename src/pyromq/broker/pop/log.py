"""Writes checkpoints and acks of POP to the store, as timers on their way to the revive topic.

    pop  ──ck──>  timer topic  ── a second before the messages are to come back ──>  revive topic  ──>  `revive_plan`
    ack  ─────>   timer topic  ── when they are ──────────────────────────────────────────^

So the revive queues hold only what is to be decided now, each checkpoint before its acks, whatever the invisible
times are; and both are stored, in RocketMQ's format, before any client is answered. What is due already, because the
invisible time is short or an ack is late, goes to the revive topic at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import BrokerError, MessageIllegal
from pyromq.protocol import properties as props
from pyromq.protocol.names import revive_topic
from pyromq.protocol.record import MessageRecord
from pyromq.store import PutResult, PutStatus

from ..timers.parking import TimerParking
from .records import Ack, ack_properties, checkpoint_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..appends import Stored
    from ..context import Context
    from .records import Checkpoint, Key


class AckedWith(NamedTuple):
    """The key of acks that may share a record."""

    key: Key
    broker_name: str
    revive_queue: int
    revive_time: int


class PopLog:
    """Writes checkpoints and acks. `clock` gives epoch milliseconds, `store_host` stands for this broker."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._appends = context.appends
        # No limit on how many fall due together: refusing an ack would deliver its message once more.
        self._parking = TimerParking(context.live)
        self._live = context.live
        self._clock = context.clock
        self._store_host = context.store_host
        self.topic = revive_topic(context.live.config.cluster_name)
        self._loop = asyncio.get_running_loop()
        self._acks: dict[AckedWith, list[tuple[Sequence[int], Stored]]] = {}

    def checkpoint(self, checkpoint: Checkpoint, revive_queue: int) -> MessageRecord:
        """The record of a checkpoint, for `put`. BrokerError if timers refuse it."""
        return self._record(checkpoint.encode(), checkpoint_properties(checkpoint), revive_queue)

    def acked(self, ack: Ack, revive_queue: int, revive_time: int) -> MessageRecord:
        """The record of an ack, for `put`. BrokerError if timers refuse it."""
        return self._record(ack.encode(), ack_properties(ack, revive_time), revive_queue)

    def put(self, record: MessageRecord, stored: Stored, *, wait: bool) -> None:
        """Store a record by the end of this turn; with `wait`, wait for the disk as senders do."""
        self._appends.put(self._store.queue(record.topic, record.queue_id), (record,), stored, wait=wait)

    def put_ack(self, name: AckedWith, offsets: Sequence[int], stored: Stored) -> None:
        """Store an ack. Acks of one checkpoint that arrive in the same turn share one record.

        MessageIllegal for a time that no pop could have given.
        """
        if not -(2**63) <= name.revive_time <= self._clock() + 1000 * self._live.config.timer_max_delay:
            raise MessageIllegal(f"cannot acknowledge a message that stays invisible until {name.revive_time}")
        if not self._acks:
            self._loop.call_soon(self.flush)
        self._acks.setdefault(name, []).append((offsets, stored))

    def flush(self) -> None:
        """Store the acks of this turn."""
        acks, self._acks = self._acks, {}
        for name, parts in acks.items():
            offsets = sorted({offset for part, _ in parts for offset in part})
            told = _all_told([stored for _, stored in parts])
            try:
                record = self.acked(Ack.of(name.key, offsets, name.broker_name), name.revive_queue, name.revive_time)
            except BrokerError as exc:  # there are no timers, or the settings changed within this turn
                told([PutResult(PutStatus.SERVICE_NOT_AVAILABLE, error=exc.remark)])
            else:
                self.put(record, told, wait=True)

    def _record(self, body: bytes, properties: dict[str, str], revive_queue: int) -> MessageRecord:
        now = self._clock()
        record = MessageRecord(
            self.topic,
            body,
            props.encode(props.render(properties)),
            queue_id=revive_queue,
            born_timestamp=now,
            born_host=self._store_host,
            store_host=self._store_host,
        )
        return self._parking.parked(record, properties, now)


def _all_told(each: Sequence[Stored]) -> Stored:
    def stored(results: Sequence[PutResult]) -> None:
        for tell in each:
            tell(results)

    return stored
