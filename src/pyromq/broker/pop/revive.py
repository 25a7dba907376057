"""The reviver: stores what `revive_plan` decided, and commits pop offsets as checkpoints reach the disk."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import CorruptRecord, OffsetOutOfRange, PyroMQError, StoreError
from pyromq.protocol import properties as props
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, REVIVE_GROUP, dlq_topic
from pyromq.protocol.pop_handle import normal_topic, pop_retry_topic
from pyromq.protocol.record import decode_record
from pyromq.store.format import PRE_BLANK_SIZE

from ..redelivery import Handover
from ..staying import log_stays
from .records import Ack
from .revive_plan import ReviveQueue

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord
    from pyromq.store import PutResult

    from ..context import Context, Tables
    from ..timers.delivery import TimerService
    from .context import PopContext
    from .records import Checkpoint
    from .revive_plan import OpenCheckpoint

logger = logging.getLogger(__name__)

_AFTER_ERROR = 10.0
_AT_ONCE = 64  # checkpoints revived at a time
_SETTLE = 1.0  # seconds between two commits
# Revival commits lag by this many seconds, or by several saves of the timers' progress, if that is more:
# what timers deliver again after a crash must be read again, too.
_LAG = 5.0
_SAVINGS = 3


class Reviver:
    """Brings messages back, as far as `timers` have delivered what they wait for."""

    def __init__(self, context: Context, tables: Tables, pop: PopContext, timers: TimerService) -> None:
        self._store = context.store
        self._appends = context.appends
        self._log = pop.log
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._pop_offsets = pop.offsets
        self._stats = context.stats
        self._live = context.live
        self._timers = timers
        self._queues: list[ReviveQueue] = []
        self._clock = context.clock
        self._handover: Handover | None = None
        # Times, each with the end of the log that must be confirmed; see `_readable_before`.
        self._parked: tuple[int, int] | None = None
        self._delivered: tuple[int, int] | None = None
        self._readable = -1
        self.revived = 0

    def load(self, count: int) -> None:
        """Continue where the last run ended, with this many queues. Offsets must be loaded."""
        topic = self._log.topic
        room = max(self._live.config.pop_buffer // count, 1)
        for number in range(count):
            done = self._offsets.get(REVIVE_GROUP, topic, number)
            self._queues.append(ReviveQueue(self._store, topic, number, room, done))

    # The loop

    async def run(self) -> None:
        """Revive until cancelled."""
        while True:
            try:
                more = self.step()
            except PyroMQError as exc:
                logger.error("cannot revive popped messages: %s; trying again in %g s", exc, _AFTER_ERROR)
                await asyncio.sleep(_AFTER_ERROR)
            else:
                await asyncio.sleep(0 if more else self._live.config.revive_interval / 1000)

    def step(self) -> bool:
        """Do part of the pending work; True if there is more."""
        if self._handover is not None:
            if not self._handover.waiting:
                self._handover.put()
            return self._handover is None
        # Ask first: anything delivered later may not have been read yet when we reach the ends of the queues.
        delivered_before = self._readable_before()
        more = False
        for queue in self._queues:
            more |= queue.read()
        if more:
            return True
        due = ((queue, each) for queue in self._queues for each in queue.due(delivered_before))
        some = list(itertools.islice(due, _AT_ONCE))
        if not some:
            return False
        records = [record for queue, each in some for record in self._records(queue, each)]

        def finished() -> None:
            self._handover = None
            for queue, each in some:
                queue.decided(each)

        self._handover = Handover(self._store, self._appends, records, self._count, finished)
        self._handover.put()
        return True

    def _readable_before(self) -> int:
        """Up to when all acks can be read from the revive queues, in epoch milliseconds.

        That is what timers have delivered. But in a group that fails over, readers see a record only once the slaves
        have it: timers an ack, and we an ack that they delivered. So both are waited for, one after the other.
        """
        store, timers = self._store, self._timers
        if not store.is_limited:
            self._parked = self._delivered = None
            return timers.delivered_before
        if self._parked is None or self._parked[1] > store.log.end:  # cut off since, while this was a slave
            self._parked, self._delivered = (self._clock(), int(store.log.end)), None
        if self._delivered is None and timers.read_to >= self._parked[1]:
            # An ack that is parked later is for later.
            self._delivered = min(timers.delivered_before, self._parked[0]), int(store.log.end)
        if self._delivered is not None and store.confirmed >= self._delivered[1]:
            self._readable = self._delivered[0]
            self._parked = self._delivered = None
        return self._readable

    def _records(self, queue: ReviveQueue, each: OpenCheckpoint) -> list[MessageRecord]:
        """The messages of a checkpoint that come back, followed by our ack of it."""
        checkpoint = each.checkpoint
        topic = normal_topic(checkpoint.topic, checkpoint.group)
        if topic not in self._topics or self._groups.get(checkpoint.group) is None:
            return []
        offsets = sorted(each.left)
        messages = [self._again(checkpoint, offset) for offset in offsets]
        broker_name = checkpoint.broker_name or self._live.config.broker_name
        ack = self._log.acked(Ack.of(checkpoint.key, offsets, broker_name), queue.number, checkpoint.revive_time)
        return [*(message for message in messages if message is not None), ack]

    def _again(self, checkpoint: Checkpoint, offset: int) -> MessageRecord | None:
        """A message as it is stored again: in the retry topic or the dead-letter topic."""
        message = self._read(checkpoint, offset)
        if message is None:
            return None
        group = checkpoint.group
        properties = props.parse(props.decode(message.properties))
        properties.pop(props.POP_CK, None)
        if not message.reconsume_times:
            properties[props.FIRST_POP_TIME] = str(checkpoint.pop_time)
        properties.setdefault(props.FIRST_POP_TIME, str(checkpoint.pop_time))
        properties[props.ORIGIN_GROUP] = group
        target = self._retry_topic(checkpoint)
        if not checkpoint.suspended and self._is_hopeless(group, message.reconsume_times):
            origin = normal_topic(checkpoint.topic, group)
            target = self._topics.ensure_dlq(group).topic_name
            properties.setdefault(props.RETRY_TOPIC, origin)
            properties.setdefault(props.ORIGIN_MESSAGE_ID, message.offset_msg_id)
            properties |= {props.DLQ_ORIGIN_TOPIC: origin, props.DLQ_ORIGIN_MESSAGE_ID: message.offset_msg_id}
        text = props.encode(props.render(properties))
        return replace(
            message,
            topic=target,
            queue_id=0,
            reconsume_times=message.reconsume_times + (not checkpoint.suspended),
            properties=message.properties if len(text) > props.MAX_LENGTH else text,
            prepared_transaction_offset=0,
        )

    def _read(self, checkpoint: Checkpoint, offset: int) -> MessageRecord | None:
        queue = self._store.queues.find(checkpoint.topic, checkpoint.queue_id)
        entry = None if queue is None else queue.entry(offset)
        if entry is None or entry[1] == PRE_BLANK_SIZE:
            return None  # cleaned up since
        try:
            return decode_record(self._store.log.read(entry[0], entry[1]))
        except (OffsetOutOfRange, CorruptRecord) as exc:
            logger.error("popped message %d of %r is lost: %s", offset, queue, exc)
            return None

    def _retry_topic(self, checkpoint: Checkpoint) -> str:
        topic = checkpoint.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(topic, checkpoint.group, v2=self._live.config.retry_topic_v2)
        if topic not in self._topics:
            self._topics.ensure(topic, 1)
            if self._offsets.get(checkpoint.group, topic, 0) is None:
                self._offsets.commit(checkpoint.group, topic, 0, 0)
        return topic

    def _is_hopeless(self, group: str, reconsume_times: int) -> bool:
        config = self._groups.find(group)
        return self._live.config.pop_dead_letters and config is not None and reconsume_times >= config.retry_max_times

    def _count(self, record: MessageRecord, result: PutResult) -> None:
        if not record.topic.startswith((RETRY_PREFIX, dlq_topic(""))):
            return  # our own ack
        self.revived += 1
        if record.topic.startswith(DLQ_PREFIX):
            origin = record.find_property(props.DLQ_ORIGIN_TOPIC) or ""
            self._stats.events.dead_letter(record.topic.removeprefix(DLQ_PREFIX), origin)
        self._stats.add("TOPIC_PUT_NUMS", record.topic)
        self._stats.add("TOPIC_PUT_SIZE", record.topic, result.size)
        self._stats.add("BROKER_PUT_NUMS", self._live.config.cluster_name)

    # Committing what is on disk

    async def follow(self) -> None:
        """Commit offsets as their checkpoints, and what was revived, reach the disk, until cancelled."""
        lag = max(_LAG, _SAVINGS * self._live.config.timer_flush_interval / 1000)
        looks: deque[dict[int, int]] = deque(maxlen=math.ceil(lag / _SETTLE) + 1)
        while True:
            await asyncio.sleep(_SETTLE)
            looks.append(self._done())
            await self._settle(looks[0] if len(looks) == looks.maxlen else {})

    async def settle(self) -> None:
        """Commit the offsets of pops and revival. Nothing else may run; timers must have saved their progress."""
        await self._settle(self._done())

    def _done(self) -> dict[int, int]:
        return {queue.number: queue.done for queue in self._queues}

    async def _settle(self, done: dict[int, int]) -> None:
        reached = self._pop_offsets.snapshot()
        done = {number: offset for number, offset in done.items() if self._is_news(number, offset)}
        if not reached and not done:
            return
        try:
            await log_stays(self._store)
        except StoreError as exc:
            logger.error("offsets of popped messages not committed: %s", exc)
            return
        self._pop_offsets.settle(reached)
        for number, offset in done.items():
            self._offsets.commit(REVIVE_GROUP, self._log.topic, number, offset)

    def _is_news(self, number: int, offset: int) -> bool:
        return offset >= 0 and offset != self._offsets.get(REVIVE_GROUP, self._log.topic, number)
