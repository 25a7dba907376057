"""Ends of transactions: commit or rollback by the producer (37), or another check asked for by an operator (323).

A commit stores the message in its real topic, followed directly by the op record; a rollback stores only the op record
(docs/spec/broker.md 5.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord, OffsetOutOfRange, RemoteProtocolError, ServerError, SystemBusy
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import EndTransaction, ResumeCheckHalfMessage
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.names import HALF_TOPIC
from pyromq.protocol.record import decode_record
from pyromq.protocol.rights import Action, on_topic
from pyromq.store import PutStatus

from ..needs import topic_of
from ..stats.incoming import TRANSACTION
from .half_messages import as_sent, comes_too_late, committed, objection, resumed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyromq.protocol.command import Command
    from pyromq.protocol.record import MessageRecord
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult

    from ..context import Context
    from ..topics import TopicTable
    from .half_queue import HalfQueue

logger = logging.getLogger(__name__)

_UNKNOWN = 0  # the producer does not know; the broker will ask
_ENDS = (_UNKNOWN, sysflag.COMMIT, sysflag.ROLLBACK)

_STORED = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)
_FAILURES = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: (ResponseCode.SYSTEM_ERROR, "Create mapped file failed."),
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
}
_SENDS = frozenset((Action.PUB,))
_CHANGES = frozenset((Action.UPDATE,))
_UNKNOWN_ERROR = (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR")

# Properties that mean a message may be delayed.
_DELAYING = (props.DELAY.encode(), b"TIMER_")

_OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_NOT_FOUND = "Find prepared transaction message failed"
_NOT_RESUMED = f"Put message back to {HALF_TOPIC} failed."
_UNREADABLE = f"Exception was thrown when putting message back to {HALF_TOPIC}."


class TransactionProcessors:
    """Serves the ends of transactions. `clock` gives epoch milliseconds.

    `placed` says where a message with these properties is stored first: like any other, a committed message may be
    delayed.
    """

    def __init__(
        self,
        context: Context,
        topics: TopicTable,
        halves: HalfQueue,
        *,
        placed: Callable[[MessageRecord, dict[str, str]], MessageRecord],
    ) -> None:
        self._store = context.store
        self._gate = context.gate
        self._appends = context.appends
        self._halves = halves
        self._topics = topics
        self._stats = context.stats
        self._live = context.live
        self._clock = context.clock
        self._placed = placed
        self._guard = context.access.guard
        self._store_host = context.store_host

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, connection: Connection, request: Command) -> Command | None:
        """37, most often one-way. A producer that does not know gets no answer even if it waits for one."""
        header = request.header(EndTransaction)
        if header.commit_or_rollback not in _ENDS:
            raise ServerError("commitOrRollback field wrong")
        config = self._live.config
        if config.is_slave:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE)
        if header.commit_or_rollback == _UNKNOWN:
            return None
        if self._gate.waiting >= config.end_transaction_queue_capacity:
            raise SystemBusy(_OVERLOAD)
        half = self._halves.named(header.commit_log_offset)
        if half is None:
            raise ServerError(_NOT_FOUND)
        if not header.from_transaction_check and comes_too_late(half, config.transaction_timeout, self._clock()):
            return request.reply(ResponseCode.ILLEGAL_OPERATION)
        wrong = objection(half, header)
        if wrong is not None:
            raise ServerError(wrong)
        if not self._guard.is_open:
            self._guard.require(connection, request, [on_topic(as_sent(half).topic, _SENDS)])
        end = _End(self, connection, request, half)
        if header.commit_or_rollback == sysflag.COMMIT:
            self._commit(half, end)
        else:
            self._roll_back(half, end)
        return None

    def _commit(self, half: MessageRecord, end: _End) -> None:
        message = committed(half, self._store_host)
        if message is None:
            raise ServerError(f"{_NOT_FOUND}: it names no topic")
        end.topic = message.topic
        if any(name in half.properties for name in _DELAYING):
            message = self._placed(message, props.parse(props.decode(half.properties)))
        offset = self._halves.decide(half)
        if offset is None:
            end.answer(None)
            return
        end.offset = offset
        queue = self._store.queue(message.topic, message.queue_id)
        if self._store.fits(queue, message):
            self._appends.put(queue, (message,), end.message_stored)
        else:
            # Longer messages were allowed when it was sent. Nothing may come between it and its op record in the log.
            self._appends.flush()
            result = self._appends.put_again(queue, message)
            end.message_stored((result,))
            if not end.is_stored:
                self.ended(end, result)
                return
        op_queue, op = self._halves.op(offset)
        self._appends.put(op_queue, (op,), end.op_stored)

    def _roll_back(self, half: MessageRecord, end: _End) -> None:
        offset = self._halves.decide(half)
        if offset is None:
            end.answer(None)
            return
        end.offset = offset
        op_queue, op = self._halves.op(offset)
        self._appends.put(op_queue, (op,), end.op_stored)

    def ended(self, end: _End, op: PutResult) -> None:
        """The end of a transaction was stored, or not."""
        if end.result is None:  # rolled back: the op record is all there is
            if op.status not in _STORED:
                self._halves.undecide(end.half)
            else:
                self._stats.events.rolled_back(as_sent(end.half).topic)
            end.answer(op)
            return
        if not end.is_stored:
            self._halves.undecide(end.half)
        elif op.status not in _STORED and op.physical_offset < 0:
            # Consumers have the message. Its half message must not be checked and committed again.
            self._halves.close(end.offset)
        if end.is_stored:
            self._stats.add("TOPIC_PUT_NUMS", end.topic)
            self._stats.add("TOPIC_PUT_SIZE", end.topic, end.result.size)
            self._stats.incoming.note(end.topic, TRANSACTION, end.result.size)
            self._stats.events.committed(end.topic, self._clock() - end.half.born_timestamp)
            self._stats.add("BROKER_PUT_NUMS", self._live.config.cluster_name)
        end.answer(end.result)

    def resume(self, connection: Connection, request: Command) -> None:
        """323: ask again about a message that was given up."""
        try:
            place = decode_offset_message_id(request.header(ResumeCheckHalfMessage).msg_id).physical_offset
            record = decode_record(self._store.stored_at(place), check_crc=False)
        except (RemoteProtocolError, OffsetOutOfRange, CorruptRecord) as exc:
            raise ServerError(_UNREADABLE) from exc
        half = resumed(record, self._store_host)
        if not self._guard.is_open:
            # Where the message is, and where it would go: a sender can write any property.
            needs = [on_topic(name, _CHANGES) for name in {topic_of(record), as_sent(half).topic}]
            self._guard.require(connection, request, needs)
        self._topics.ensure(HALF_TOPIC, 1)

        def stored(results: Sequence[PutResult]) -> None:
            if results[0].status is PutStatus.PUT_OK:
                connection.reply(request, request.reply())
            else:
                connection.reply(request, request.reply(ResponseCode.SYSTEM_ERROR, _NOT_RESUMED))

        self._appends.put(self._store.queue(half.topic, half.queue_id), (half,), stored)


class _End:
    """A transaction that is ending: its answer waits for the message and its op record."""

    __slots__ = ("_connection", "_processors", "_request", "half", "offset", "result", "topic")

    def __init__(
        self, processors: TransactionProcessors, connection: Connection, request: Command, half: MessageRecord
    ) -> None:
        self._processors = processors
        self._connection = connection
        self._request = request
        self.half = half
        self.offset = -1
        self.topic = ""
        self.result: PutResult | None = None

    @property
    def is_stored(self) -> bool:
        return self.result is not None and self.result.status in _STORED

    def message_stored(self, results: Sequence[PutResult]) -> None:
        self.result = results[0]

    def op_stored(self, results: Sequence[PutResult]) -> None:
        self._processors.ended(self, results[0])

    def answer(self, result: PutResult | None) -> None:
        """Answer with the result of storing. None: it was decided before, and stays so."""
        if result is None or result.status in _STORED:
            self._connection.reply(self._request, self._request.reply())
            return
        logger.warning("%s: transaction not ended: %s", self._connection.peer, result.error)
        self._connection.reply(self._request, self._request.reply(*_FAILURES.get(result.status, _UNKNOWN_ERROR)))
