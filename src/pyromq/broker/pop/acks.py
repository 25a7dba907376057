"""Acks of popped messages (200051, 200151), and changes of their invisible time (200053).

An ack is answered when it is stored, under SYNC_FLUSH when it is on disk. It comes in time if it is stored before the
invisible time is over; after that, the message may already have come back.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from pyromq.errors import BrokerError, MessageIllegal, NoMessage, RemoteProtocolError, ServerError
from pyromq.protocol.bodies import BatchAck, BatchAckMessageRequestBody
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeReply
from pyromq.protocol.names import MAX_GROUP_LENGTH
from pyromq.protocol.pop_handle import ORDER_REVIVE_QUEUE, PopHandle, decode_handle, marked_topic
from pyromq.remoting import with_body
from pyromq.store import PutStatus

from .log import AckedWith
from .offsets import QueueOfGroup
from .records import Checkpoint, Key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult

    from ..context import Context
    from .context import PopContext

# In a batch, how far past the start of its read a message may lie: farther than any read goes.
_FARTHEST = 16_384
_STORED = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)


class AckProcessors:
    """Takes acks. `clock` gives epoch milliseconds; `revive_queues` are those that checkpoints may be in."""

    def __init__(self, context: Context, pop: PopContext, revive_queues: int) -> None:
        self._access = pop.access
        self._log = pop.log
        self._offsets = pop.offsets
        self._orders = pop.orders
        self._held = pop.held
        self._live = context.live
        self._clock = context.clock
        self._revive_queues = revive_queues

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: with_body(_batch, self.ack_batch),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    def ack(self, connection: Connection, request: Command) -> Command | None:
        header = request.header(AckMessage)
        self._access.check_message(connection, header.topic, header.queue_id, header.offset, at_end=True)
        handle = self._handle(header.extra_info, header.consumer_group)
        queue = QueueOfGroup(header.consumer_group, header.topic, header.queue_id)
        if handle.is_ordered:
            self._ack_in_order(queue, header.offset, handle.pop_time)
            return request.reply()
        answer = _Answer(connection, request, 1)
        self._log.put_ack(_acked_with(queue, handle), [header.offset], answer.stored)
        return None

    def ack_batch(
        self, connection: Connection, request: Command, body: BatchAckMessageRequestBody | None
    ) -> Command | None:
        if body is None or not body.acks:
            raise NoMessage("there is nothing to acknowledge")
        broker_name = body.broker_name or self._live.config.broker_name
        # Check all of them before taking any.
        acks = [self._opened(ack, broker_name) for ack in body.acks]
        unordered = []
        for queue, handle, offsets in acks:
            if handle.is_ordered:
                for offset in offsets:
                    self._ack_in_order(queue, offset, handle.pop_time)
            elif offsets:
                unordered.append((_acked_with(queue, handle), offsets))
        if not unordered:
            return request.reply()
        answer = _Answer(connection, request, len(unordered))
        for name, offsets in unordered:
            try:
                self._log.put_ack(name, offsets, answer.stored)
            except BrokerError as exc:
                answer.failed(exc)
        return None

    def change(self, connection: Connection, request: Command) -> Command | None:
        """The message gets a checkpoint of its own, and is acknowledged under the old one."""
        header = request.header(ChangeInvisibleTime)
        self._access.check_message(connection, header.topic, header.queue_id, header.offset, at_end=False)
        handle = self._handle(header.extra_info, header.consumer_group)
        queue = QueueOfGroup(header.consumer_group, header.topic, header.queue_id)
        now = self._clock()
        if header.invisible_time < 0:
            raise MessageIllegal(f"invisibleTime {header.invisible_time} is negative")
        if handle.is_ordered:
            return self._change_in_order(request, header, queue, handle.pop_time, now)
        checkpoint = Checkpoint(
            broker_name=handle.broker_name,
            group=queue.group,
            distances=[0],
            invisible_time=header.invisible_time,
            count=1,
            pop_time=now,
            queue_id=queue.queue_id,
            start_offset=header.offset,
            suspended=header.suspend,
            topic=queue.topic,
        )
        record = self._log.checkpoint(checkpoint, handle.revive_queue)
        reply = request.reply(header=ChangeInvisibleTimeReply(now, header.invisible_time, handle.revive_queue))
        answer = _Answer(connection, request, 2, reply)
        self._log.put_ack(_acked_with(queue, handle), [header.offset], answer.stored)
        self._log.put(record, answer.stored, wait=True)
        return None

    # In order

    def _ack_in_order(self, queue: QueueOfGroup, offset: int, pop_time: int) -> None:
        committed = self._offsets.get(queue)
        if committed is not None and offset < committed:
            return  # again
        try:
            next_offset = self._orders.acked(queue, offset, pop_time)
        except ValueError:
            raise MessageIllegal(
                f"offset is illegal, key:{queue.topic}@{queue.group}@{queue.queue_id}, old:{committed}, "
                f"commit:{offset}, next:-1"
            ) from None
        if next_offset is not None:
            self._offsets.commit(queue, next_offset)
            if self._orders.free_at(queue, next_offset, None, self._clock()) <= self._clock():
                self._held.wake(queue.topic, queue.group, queue.queue_id)

    def _change_in_order(
        self, request: Command, header: ChangeInvisibleTime, queue: QueueOfGroup, pop_time: int, now: int
    ) -> Command:
        committed = self._offsets.get(queue)
        if committed is not None and header.offset < committed:
            return request.reply(header=ChangeInvisibleTimeReply(0, 0, 0))
        visible_at = now + header.invisible_time
        self._orders.change(queue, header.offset, pop_time, visible_at)
        self._held.wake(queue.topic, queue.group, queue.queue_id)
        return request.reply(header=ChangeInvisibleTimeReply(pop_time, visible_at - pop_time, ORDER_REVIVE_QUEUE))

    # Parsing requests

    def _handle(self, text: str, group: str) -> PopHandle:
        try:
            handle = decode_handle(text)
        except RemoteProtocolError as exc:
            raise MessageIllegal(str(exc)) from exc
        self._check(handle.revive_queue, group, handle.broker_name)
        return handle

    def _check(self, revive_queue: int, *names: str) -> None:
        if revive_queue != ORDER_REVIVE_QUEUE and not 0 <= revive_queue < self._revive_queues:
            raise MessageIllegal(f"there is no revive queue {revive_queue}")
        for name in names:
            # It becomes part of a property, where some characters are special.
            if len(name) > MAX_GROUP_LENGTH or not name.isprintable():
                raise MessageIllegal(f"neither a group nor a broker: {name[:50]!r}")

    def _opened(self, ack: BatchAck, broker_name: str) -> tuple[QueueOfGroup, PopHandle, list[int]]:
        """The queue, the handle and the offsets of one part of a batch; offsets outside the queue are dropped."""
        self._check(ack.revive_queue, ack.consumer_group, broker_name)
        try:
            topic = marked_topic(ack.topic, ack.consumer_group, ack.mark)
            bits = base64.b64decode(ack.bits, validate=True)
        except (RemoteProtocolError, binascii.Error, ValueError) as exc:
            raise MessageIllegal(f"not an ack: {exc}") from exc
        if 8 * len(bits) > _FARTHEST:
            raise MessageIllegal(f"the ack reaches {8 * len(bits)} messages past the first")
        handle = PopHandle(
            start_offset=ack.start_offset,
            pop_time=ack.pop_time,
            invisible_time=ack.invisible_time,
            revive_queue=ack.revive_queue,
            mark=ack.mark,
            broker_name=broker_name,
            queue_id=ack.queue_id,
        )
        low, high = self._access.bounds(topic, ack.queue_id)
        named = (ack.start_offset + number for number in _set_bits(bits))
        offsets = [offset for offset in named if low <= offset < high]
        return QueueOfGroup(ack.consumer_group, topic, ack.queue_id), handle, offsets


def _set_bits(bits: bytes) -> Iterator[int]:
    for at, byte in enumerate(bits):
        yield from (8 * at + number for number in range(8) if byte >> number & 1)


def _acked_with(queue: QueueOfGroup, handle: PopHandle) -> AckedWith:
    key = Key(queue.topic, queue.group, queue.queue_id, handle.start_offset, handle.pop_time)
    return AckedWith(key, handle.broker_name, handle.revive_queue, handle.revive_time)


class _Answer:
    """Answers a request once everything it asked for is stored, or with the first failure."""

    def __init__(self, connection: Connection, request: Command, count: int, reply: Command | None = None) -> None:
        self._connection = connection
        self._request = request
        self._left = count
        self._reply = request.reply() if reply is None else reply

    def stored(self, results: Sequence[PutResult]) -> None:
        status = results[0].status
        if status not in _STORED:
            self.failed(ServerError(status.value))
            return
        self._done()

    def failed(self, exc: BrokerError) -> None:
        self._reply = self._request.reply(exc.code, exc.remark)
        self._done()

    def _done(self) -> None:
        self._left -= 1
        if not self._left:
            self._connection.reply(self._request, self._reply)


def _batch(content: bytes) -> BatchAckMessageRequestBody | None:
    return BatchAckMessageRequestBody.decode(content) if content else None
