"""Concurrent consumption: messages in any order, as many at a time as there are workers (docs/spec/client.md 3.9).

    pulled ─> backlog ─> handler ─> done ─> offset
                 ^          │
                 │          └─ failed ─> sent back ─> done
                 └────── 5 s later ──────── refused

Messages finished during one turn of the event loop leave the process queue together, at its end. The offset to commit
follows from what is left there: it never passes an unfinished message.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, TypeAlias

from .backlog import Backlog, BacklogClosed, on_loop
from .outcomes import ACK, Ack, DeadLetter, Outcome, Retry, per_message
from .received_message import ReceivedMessage
from .send_back import NEVER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..hooks import ConsumeContext
    from ..producer.send_result import SendResult
    from ..tasks import Tasks
    from .handlers import Handling, Listener, Listeners
    from .offset_store import OffsetStore
    from .process_queue import ProcessQueue
    from .send_back import SendBack

    Reply: TypeAlias = Callable[[ReceivedMessage, bytes, float], Awaitable[SendResult]]

logger = logging.getLogger(__name__)

# Seconds until the next try of a message that failed and that the broker would not take back.
LOCAL_RETRY = 5.0
# Delay level for messages given back because their handler takes too long.
_OVERDUE_LEVEL = 3


class QueueWork:
    """One queue while it is assigned to this consumer: the origin of its messages."""

    __slots__ = ("_consumption", "done", "marked", "process_queue", "queue")

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue, consumption: ConcurrentConsumption) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.done: list[MessageExt] = []  # in this turn of the loop
        self.marked = False  # the user settled single messages
        self._consumption = consumption

    def settled(self, message: ReceivedMessage) -> None:
        self.marked = True
        self._consumption.settled(message)

    async def reply(self, message: ReceivedMessage, body: bytes, timeout: float) -> SendResult:
        return await self._consumption.reply(message, body, timeout)


class Batch:
    """The messages of one handler call, or of one step of an `async for` loop."""

    __slots__ = ("context", "holder", "listener", "messages", "work")

    def __init__(self, work: QueueWork, listener: Listener, messages: list[ReceivedMessage]) -> None:
        self.work = work
        self.listener = listener
        self.messages = messages
        self.holder: asyncio.Task[object] | None = None  # the task that works on it
        self.context: ConsumeContext | None = None


class ConcurrentConsumption:
    """Consumes submitted messages: with `workers` handlers at a time, or, without any, through `take` and `finish`.

    Belongs to the event loop; only `settled` may be called from elsewhere.

    A whole consumer of 1 KB messages, from the socket to a coroutine handler that does not wait, takes 7 to 8 µs of
    one core per message; through an `async for` loop 9 µs (CPython 3.11, uvloop).
    """

    def __init__(
        self,
        handling: Handling,
        listeners: Listeners,
        send_back: SendBack,
        offsets: OffsetStore,
        tasks: Tasks,
        reply: Reply,
        *,
        workers: int,
        batch: int,
        broadcast: bool,
        consume_timeout: float,
    ) -> None:
        self._handling = handling
        self._listeners = listeners
        self._send_back = send_back
        self._offsets = offsets
        self._tasks = tasks
        self.reply = reply
        self._workers = workers
        self._batch = batch
        self._broadcast = broadcast
        self._consume_timeout = consume_timeout
        self._loop = asyncio.get_running_loop()
        self._backlog: Backlog[Batch] = Backlog()
        self._works: dict[MessageQueue, QueueWork] = {}
        self._running: set[Batch] = set()
        self._handed_out: dict[ReceivedMessage, Batch] = {}
        self._worker_tasks: set[asyncio.Task[object]] = set()
        self._dirty: list[QueueWork] = []
        self._watchers: list[asyncio.Future[None]] = []

    def start(self) -> None:
        for number in range(self._workers):
            self._tasks.spawn(f"worker {number}", self._work)
        self._tasks.every("overdue messages", self._consume_timeout, self._consume_timeout, self.release_overdue)

    # Queues

    def added(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self._works[queue] = QueueWork(queue, process_queue, self)

    def removed(self, queue: MessageQueue) -> None:
        """Messages of this queue still in flight no longer count: its next owner delivers them again."""
        self._works.pop(queue, None)

    def submit(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> None:
        """Consume messages just added to the process queue of `queue`."""
        work = self._works.get(queue)
        if work is not None:
            self._backlog.put(self._batches(work, messages))

    def _batches(self, work: QueueWork, messages: Sequence[MessageExt]) -> list[Batch]:
        """Up to `batch` messages each, all of one topic: a retry queue has those of many."""
        queue, size = work.queue, self._batch
        listener = self._listeners.of_queue(queue.topic)
        if listener is not None and size == 1:
            topic = listener.topic
            return [Batch(work, listener, [ReceivedMessage(message, topic, queue, work)]) for message in messages]
        batches: list[Batch] = []
        for message in messages:
            listener = self._listeners.of_message(message)
            received = ReceivedMessage(message, listener.topic, queue, work)
            if batches and batches[-1].listener is listener and len(batches[-1].messages) < size:
                batches[-1].messages.append(received)
            else:
                batches.append(Batch(work, listener, [received]))
        return batches

    # Handlers

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._worker_tasks.add(me)
        try:
            while True:
                try:
                    batch = await self._backlog.take()
                except BacklogClosed:
                    return
                if batch.work.process_queue.dropped:
                    continue
                batch.holder = me
                self._running.add(batch)
                try:
                    await self._consume(batch)
                except BaseException:
                    # Cancelled from outside, or a bug: the messages must not be lost.
                    if not self._handling.closing:
                        self._try_later(batch)
                    raise
                finally:
                    self._ended(batch)
        finally:
            self._worker_tasks.discard(me)

    async def _consume(self, batch: Batch) -> None:
        work, messages = batch.work, batch.messages
        wanted = self._handling.wanted(batch.listener, messages)
        outcome: Outcome = ACK
        if wanted:
            outcome = await self._handling.run(batch.listener, work.queue, wanted)
        if work.process_queue.dropped:
            return
        if outcome is ACK and not work.marked and wanted is messages:
            self._done(work, messages)
        else:
            await self._settle(batch, wanted, outcome)

    # `async for` loops

    async def take(self) -> ReceivedMessage:
        """The next message for a loop; raises BacklogClosed at the end. Call `finish` or `give_back` afterwards."""
        while True:
            batch = await self._backlog.take()
            if batch.work.process_queue.dropped:
                continue
            wanted = self._handling.wanted(batch.listener, batch.messages)
            if not wanted:
                self._settle_soon(batch, batch.messages[0].mark or ACK)
                continue
            (message,) = wanted
            try:
                batch.context = await self._handling.begin(batch.work.queue, wanted)
            except BaseException:
                self._backlog.put_first(batch)
                raise
            batch.holder = asyncio.current_task()
            self._running.add(batch)
            self._handed_out[message] = batch
            message.started = time.monotonic()
            return message

    def finish(self, message: ReceivedMessage, outcome: Outcome) -> None:
        """Report the outcome of a message that was taken."""
        batch = self._handed_out.pop(message, None)
        if batch is None:
            return
        self._ended(batch)
        seconds = time.monotonic() - message.started
        batch.listener.stats.consumed(int(outcome is ACK), int(outcome is not ACK), seconds)
        if self._handling.closing:
            return  # too late to count: it will be delivered again
        if batch.context is not None:
            self._tasks.once(self._handling.end(batch.context, outcome, seconds), "hooks after consuming")
        if not batch.work.process_queue.dropped:
            self._settle_soon(batch, outcome)

    def give_back(self, message: ReceivedMessage) -> None:
        """The loop was left: its message goes back to the front."""
        batch = self._handed_out.pop(message, None)
        if batch is not None:
            self._ended(batch)
            message.started = 0.0
            self._backlog.put_first(batch)

    def settled(self, message: ReceivedMessage) -> None:
        """The user settled `message`. In a handler this takes effect when the handler ends."""
        if message.mark is not None and message in self._handed_out:
            on_loop(self._loop, self.finish, message, message.mark)

    # Ends

    def _done(self, work: QueueWork, messages: list[ReceivedMessage]) -> None:
        done = work.done
        if not done:
            if not self._dirty:
                self._loop.call_soon(self.flush)
            self._dirty.append(work)
        if len(messages) == 1:
            done.append(messages[0].raw)
        else:
            done.extend([message.raw for message in messages])

    def flush(self) -> None:
        """Remove finished messages from the process queues, and note each queue's progress."""
        works, self._dirty = self._dirty, []
        now = time.monotonic()
        for work in works:
            done, work.done = work.done, []
            process_queue = work.process_queue
            process_queue.last_consume = now
            offset = process_queue.remove(done)
            if offset is not None and not process_queue.dropped:
                self._offsets.update(work.queue, offset, True)

    async def _settle(self, batch: Batch, wanted: list[ReceivedMessage], outcome: Outcome) -> None:
        """Settle each message: done, or given back."""
        outcomes = {message: message.mark or ACK for message in batch.messages}
        outcomes.update(zip(wanted, per_message(outcome, [message.mark for message in wanted]), strict=True))
        failed = [message for message in batch.messages if not isinstance(outcomes[message], Ack)]
        if self._broadcast and failed:
            logger.warning("%d messages of %s failed and are skipped: %r", len(failed), batch.work.queue, failed[0])
            failed = []
        left = set(failed)
        if finished := [message for message in batch.messages if message not in left]:
            self._done(batch.work, finished)
        # A missing one took too long and has already been given back.
        failed = [message for message in failed if message.raw in batch.work.process_queue]
        if failed:
            batch.messages = failed
            await self._give_all_back(batch, [_level(outcomes[message]) for message in failed])

    def _settle_soon(self, batch: Batch, outcome: Outcome) -> None:
        """Apply a loop's outcome for its message; the loop does not wait for the consequences."""
        if outcome is ACK:
            self._done(batch.work, batch.messages)
        else:
            self._tasks.once(self._settle_alone(batch, outcome), f"settle {batch.messages}")

    async def _settle_alone(self, batch: Batch, outcome: Outcome) -> None:
        try:
            await self._settle(batch, batch.messages, outcome)
        except BaseException:
            if not self._handling.closing:
                self._try_later(batch)
            raise

    async def _give_all_back(self, batch: Batch, levels: list[int]) -> None:
        taken = await asyncio.gather(*map(self._send_back.send, batch.messages, levels))
        if batch.work.process_queue.dropped:
            return
        back = [message for message, ok in zip(batch.messages, taken, strict=True) if ok]
        if back:
            self._done(batch.work, back)
        batch.messages = [message for message, ok in zip(batch.messages, taken, strict=True) if not ok]
        if batch.messages:
            for message in batch.messages:
                message.reconsume_times += 1
            self._try_later(batch)

    def _try_later(self, batch: Batch) -> None:
        """Messages that the broker would not take back: they stay here, and so does the offset."""
        for message in batch.messages:
            message.mark = None
            message.started = 0.0
        again = Batch(batch.work, batch.listener, batch.messages)
        self._loop.call_later(LOCAL_RETRY, self._backlog.put, (again,))

    async def release_overdue(self) -> None:
        """Give back messages that handlers hold too long, so that the offset can advance. Late answers are ignored."""
        deadline = time.monotonic() - self._consume_timeout
        overdue = [
            (batch.work, message)
            for batch in tuple(self._running)
            for message in batch.messages
            if 0 < message.started < deadline and message.raw in batch.work.process_queue
        ]
        await asyncio.gather(*(self._release(work, message) for work, message in overdue))

    async def _release(self, work: QueueWork, message: ReceivedMessage) -> None:
        logger.warning("%r takes longer than %g s; giving it back", message, self._consume_timeout)
        if not self._broadcast and not await self._send_back.send(message, _OVERDUE_LEVEL):
            return
        if not work.process_queue.dropped:
            self._done(work, [message])
            self.flush()

    # Waiting for the end

    def is_worker(self, task: asyncio.Task[object] | None) -> bool:
        return task in self._worker_tasks

    async def idle(
        self, queues: Collection[MessageQueue] | None, timeout: float, caller: asyncio.Task[object] | None = None
    ) -> bool:
        """Wait until nothing of these queues, or of all, is in flight. False if `timeout` passes first.

        Messages that `caller` holds in its own loop do not count: it cannot finish them while it waits here.
        """
        deadline = time.monotonic() + timeout
        while self._under_way(queues, caller):
            watcher: asyncio.Future[None] = self._loop.create_future()
            self._watchers.append(watcher)
            _, late = await asyncio.wait((watcher,), timeout=deadline - time.monotonic())
            if late:
                watcher.cancel()
                return False
        return True

    def _under_way(self, queues: Collection[MessageQueue] | None, caller: asyncio.Task[object] | None) -> bool:
        return any(
            (queues is None or batch.work.queue in queues) and (caller is None or batch.holder is not caller)
            for batch in self._running
        )

    def stop(self) -> None:
        """Start nothing new. Loops end; workers finish what they are doing."""
        self._backlog.close()

    def _ended(self, batch: Batch) -> None:
        self._running.discard(batch)
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)


def _level(outcome: Outcome) -> int:
    if isinstance(outcome, DeadLetter):
        return NEVER
    return outcome.delay_level if isinstance(outcome, Retry) else 0
