"""POP (200050): a consumer takes messages from any queue, and others do not see them for a while.

    request  ──>  checks  ──>  `reading` takes  ──>  checkpoints into the store  ──>  answer
                                   |  nothing there
                                   └──>  `held_pops` holds it until a message arrives

Nothing is handed out before its checkpoint is stored, so unacknowledged messages come back, even after a crash
(docs/spec/broker.md 6.7, docs/decisions/0007-pop.md).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import (
    BrokerError,
    CorruptRecord,
    InvalidParameter,
    LocalProtocolError,
    PyroMQError,
    ServerError,
)
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import PopMessage, PopMessageReply
from pyromq.protocol.pop_handle import (
    ORDER_REVIVE_QUEUE,
    PopHandle,
    message_offset_info,
    order_count_info,
    pop_retry_topic,
    retry_mark,
    start_offset_info,
)
from pyromq.protocol.record import MAGIC_V1, decode_record, encode_record
from pyromq.store import GetStatus, PutStatus

from ..filters.consumer_filters import is_tag_type, not_allowed, selection_of_expression
from ..pull import tags_of_expression
from ..topics import can_be_topic
from .held_pops import HeldPop, Wanted
from .records import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult

    from ..context import Context
    from ..filters.consumer_filters import Selection
    from .context import PopContext
    from .held_pops import HeldPops
    from .reading import Part, Taken

MOST_MESSAGES = 32

_TOO_LATE_MS = 500
# A pop whose wait would end within so many seconds is answered now.
_NOT_WORTH_WAITING = 0.05
_STORED = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)


class PopProcessor:
    """Serves pops. `clock` gives epoch milliseconds; `longest_topic` is how many bytes a retry topic may have."""

    def __init__(self, context: Context, pop: PopContext, *, longest_topic: int) -> None:
        self._access = pop.access
        self._reader = pop.reader
        self._log = pop.log
        self._orders = pop.orders
        self._held = pop.held
        self._stats = context.stats
        self._live = context.live
        self._clock = context.clock
        self._longest_topic = longest_topic
        self._loop = asyncio.get_running_loop()
        self._turns = itertools.count()
        # Timers only go to topics with legal names, but a cluster may have any name.
        self._can_revive = can_be_topic(pop.log.topic)
        # When to retry groups whose ordered queues hold back, by topic and group.
        self._later: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def table(self) -> dict[int, Processor]:
        return {RequestCode.POP_MESSAGE: self.pop}

    @property
    def now(self) -> int:
        return self._clock()

    def pop(self, connection: Connection, request: Command) -> Command | None:
        header = request.header(PopMessage)
        now = self._clock()
        born = header.born_time or now
        if now - born - header.poll_time > _TOO_LATE_MS:
            remark = f"the broker[{self._live.config.broker_ip1}] pop message is timeout too much"
            return request.reply(ResponseCode.POLLING_TIMEOUT, remark)
        selection = self._checked(connection, header)
        attempt = _Pop(self, connection, request, header, selection)
        if attempt.serve():
            return None
        wait = min(header.poll_time, born + header.poll_time - now) / 1000
        if wait <= _NOT_WORTH_WAITING:
            return attempt.empty(ResponseCode.POLLING_TIMEOUT)
        wanted = Wanted(header.topic, header.consumer_group, header.queue_id)
        if self.is_full(self._held, wanted):
            return attempt.empty(ResponseCode.POLLING_FULL)
        self._held.hold(HeldPop(connection, wanted, attempt.serve, attempt.give_up), wait)
        return None

    def is_full(self, held: HeldPops, wanted: Wanted) -> bool:
        """Whether no more pops may wait. Those whose clients are gone do not count."""
        config = self._live.config
        for look in range(2):
            if len(held) < config.pop_polling_total and held.count(wanted) <= config.pop_polling:
                return False
            if not look:
                held.sweep()
        return True

    def _checked(self, connection: Connection, header: PopMessage) -> Selection:
        """The checks of 6.7 in their order; returns what the pop selects messages by."""
        config = self._live.config
        self._access.check_broker("pop message is forbidden")
        if header.max_msg_nums > MOST_MESSAGES:
            raise InvalidParameter(f"the broker[{config.broker_ip1}] pop message's num is greater than {MOST_MESSAGES}")
        if not config.timer_wheel:
            raise ServerError(
                f"the broker[{config.broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            )
        if not self._can_revive:
            raise ServerError(f"cannot pop messages: {self._log.topic} is not a valid topic name")
        self._access.check(connection, header.consumer_group, header.topic, header.queue_id)
        if header.max_msg_nums < 1 or not 0 <= header.invisible_time <= 1000 * config.timer_max_delay:
            raise InvalidParameter(
                f"cannot pop with maxMsgNums {header.max_msg_nums} and invisibleTime {header.invisible_time}"
            )
        retry = pop_retry_topic(header.topic, header.consumer_group)
        if len(retry.encode("utf-8", "replace")) > self._longest_topic or not retry.isprintable():
            raise InvalidParameter(f"{retry!r} cannot be a retry topic")
        if not header.exp:
            return None, None, None
        if is_tag_type(header.exp_type):
            return tags_of_expression(header.exp), None, None
        selection = selection_of_expression(header.exp_type, header.exp)
        if not config.enable_property_filter:
            raise not_allowed(header.exp_type)
        return selection

    # Trying

    def take(self, header: PopMessage, selection: Selection) -> Taken:
        """Take what there is now for a pop. If queues hold back for a while, schedule a retry."""
        now = self._clock()
        taken = self._reader.take(header, selection, now)
        topic, group = header.topic, header.consumer_group
        if not taken.parts:
            if taken.passed:
                # One turn looks at a limited number of messages. If this pop waits, the next turn continues.
                self._loop.call_soon(self._held.wake, topic, group, header.queue_id)
            elif taken.free_at is not None:
                self._wake_later(topic, group, (taken.free_at - now) / 1000)
        return taken

    def _wake_later(self, topic: str, group: str, seconds: float) -> None:
        at = self._loop.time() + max(seconds, 0.001)
        before = self._later.get((topic, group))
        if before is not None:
            if before.when() <= at:
                return
            before.cancel()

        def wake() -> None:
            del self._later[topic, group]
            self._held.wake(topic, group)

        self._later[topic, group] = self._loop.call_at(at, wake)

    def stop(self) -> None:
        """Wake no more pops: the broker stops."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()

    # Handing out

    def hand_out(self, attempt: _Pop, taken: Taken) -> None:
        """Answer a pop with what was taken, once the checkpoints are stored."""
        now = self._clock()
        header = attempt.header
        if header.order:
            attempt.answer(self._answer_in_order(attempt, taken, now))
            return
        revive_queue = next(self._turns) % self._live.config.revive_queues
        try:
            records = [self._log.checkpoint(self._checkpoint(header, part, now), revive_queue) for part in taken.parts]
        except PyroMQError:
            self._reader.give_back(taken.parts)
            raise
        handed_out: list[Part] = []
        left = len(records)

        def stored(part: Part, results: Sequence[PutResult]) -> None:
            nonlocal left
            left -= 1
            if results[0].status in _STORED:
                handed_out.append(part)
            else:
                self._reader.give_back([part])
            if left:
                return
            if handed_out:
                attempt.answer(self._answer(attempt, handed_out, taken.rest, now, revive_queue))
            else:
                attempt.answer(attempt.request.reply(ResponseCode.SYSTEM_ERROR, results[0].status.value))

        for part, record in zip(taken.parts, records, strict=True):
            # Do not wait for the disk: the group's offset does, see `offsets`.
            self._log.put(record, functools.partial(stored, part), wait=False)

    def _checkpoint(self, header: PopMessage, part: Part, now: int) -> Checkpoint:
        return Checkpoint(
            broker_name=self._live.config.broker_name,
            group=header.consumer_group,
            distances=[offset - part.start for offset in part.offsets],
            invisible_time=header.invisible_time,
            count=len(part.offsets),
            pop_time=now,
            queue_id=part.queue.queue_id,
            start_offset=part.start,
            topic=part.queue.topic,
        )

    def _answer_in_order(self, attempt: _Pop, taken: Taken, now: int) -> Command:
        header = attempt.header
        infos = []
        for part in taken.parts:
            counts, least = self._orders.popped(part.queue, part.offsets, now, header.invisible_time, header.attempt_id)
            infos.append(order_count_info(part.queue.topic, part.queue.queue_id, counts, least))
        return self._answer(attempt, taken.parts, taken.rest, now, ORDER_REVIVE_QUEUE, ";".join(infos))

    def _answer(
        self, attempt: _Pop, parts: list[Part], rest: int, now: int, revive_queue: int, order: str | None = None
    ) -> Command:
        header = attempt.header
        queues = [(part.queue.topic, part.queue.queue_id, part) for part in parts]
        reply = PopMessageReply(
            now,
            header.invisible_time,
            revive_queue,
            rest,
            ";".join(start_offset_info(topic, queue_id, part.start) for topic, queue_id, part in queues),
            ";".join(message_offset_info(topic, queue_id, part.offsets) for topic, queue_id, part in queues),
            order,
        )
        body: list[bytes | memoryview] = []
        for part in parts:
            if part.is_retry:
                body += [self._as_sent(part, record, header, now, revive_queue) for record in part.records]
            else:
                body += part.records
            self._count(part, now)
        return attempt.request.reply(header=reply, remark=GetStatus.FOUND.value, body=body)

    def _as_sent(
        self, part: Part, record: memoryview, header: PopMessage, now: int, revive_queue: int
    ) -> bytes | memoryview:
        """A retried message as consumers know it: with its original topic, and with its handle."""
        try:
            message = decode_record(record, check_crc=False)
            handle = PopHandle(
                start_offset=part.start,
                pop_time=now,
                invisible_time=header.invisible_time,
                revive_queue=revive_queue,
                mark=retry_mark(part.queue.topic),
                broker_name=self._live.config.broker_name,
                queue_id=part.queue.queue_id,
                queue_offset=message.queue_offset,
            )
            properties = props.parse(props.decode(message.properties)) | {props.POP_CK: handle.encode()}
            text = props.encode(props.render(properties))
            return encode_record(replace(message, topic=header.topic, properties=text, magic=MAGIC_V1))
        except (CorruptRecord, LocalProtocolError):
            return record

    def _count(self, part: Part, began: int) -> None:
        count, size = len(part.records), sum(map(len, part.records))
        topic, queue_id, group = part.queue.topic, part.queue.queue_id, part.queue.group
        key = f"{topic}@{group}"
        config = self._live.config
        self._stats.throughput.pulled(count)
        self._stats.add("GROUP_GET_NUMS", key, count)
        self._stats.add("GROUP_GET_SIZE", key, size)
        self._stats.add("BROKER_GET_NUMS", config.cluster_name, count)
        # Includes the time to store the checkpoint.
        millis = max(self._clock() - began, 0)
        self._stats.add_latency(topic, queue_id, group, millis, detailed=config.enable_detail_stat)


class _Pop:
    """One request, which may be tried several times."""

    __slots__ = ("_connection", "_processor", "_rest", "_selection", "header", "request")

    def __init__(
        self,
        processor: PopProcessor,
        connection: Connection,
        request: Command,
        header: PopMessage,
        selection: Selection,
    ) -> None:
        self._processor = processor
        self._connection = connection
        self._selection = selection
        self._rest = 0
        self.request = request
        self.header = header

    def serve(self) -> bool:
        """Take what there is; False if that is nothing.

        Errors become the answer: they must not reach the senders and other pops that call this.
        """
        try:
            taken = self._processor.take(self.header, self._selection)
            self._rest = taken.rest
            if taken.parts:
                self._processor.hand_out(self, taken)
                return True
        except BrokerError as exc:
            self.answer(self.request.reply(exc.code, exc.remark))
            return True
        except PyroMQError as exc:
            self.answer(self.request.reply(ResponseCode.SYSTEM_ERROR, str(exc)))
            return True
        return False

    def give_up(self) -> None:
        self.answer(self.empty(ResponseCode.POLLING_TIMEOUT))

    def answer(self, response: Command) -> None:
        self._connection.reply(self.request, response)

    def empty(self, code: ResponseCode) -> Command:
        """The answer of a pop that found nothing."""
        header = self.header
        revive_queue = ORDER_REVIVE_QUEUE if header.order else 0
        reply = PopMessageReply(self._processor.now, header.invisible_time, revive_queue, self._rest, "", "")
        return self.request.reply(code, GetStatus.NO_MESSAGE_IN_QUEUE.value, header=reply)
