"""Ordered consumption: the messages of a queue one after the other, each when the previous one is done (3.11).

One runner per queue. It holds the queue's lock at the broker, so that no other member of the group reads it; without
the lock it stands still. A failed message stops its queue for a moment and is retried: nothing overtakes it.

    outcome           auto_commit (the default)                      manual
    Ack               commit                                         nothing yet
    Commit            commit                                         commit all since the last one
    Rollback          commit                                         all since the last commit again, pause
    Retry, Suspend    again, after a pause; a dead letter after too many tries
    DeadLetter        to the dead letters, then like Ack
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from .backlog import TURN, Backlog, on_loop
from .outcomes import ACK, Ack, Commit, DeadLetter, Outcome, Rollback, Suspend, per_message
from .received_message import Context, ReceivedMessage
from .send_back import NEVER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
    from typing import TypeAlias

    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..producer.send_result import SendResult
    from ..tasks import Supervised, Tasks
    from .concurrent import Reply
    from .handlers import Handling, Listener, Listeners
    from .offset_store import OffsetStore
    from .process_queue import ProcessQueue
    from .send_back import SendBack

    Relock: TypeAlias = Callable[[MessageQueue, ProcessQueue], Awaitable[bool]]

logger = logging.getLogger(__name__)

# Seconds a queue may pause.
MIN_PAUSE, MAX_PAUSE = 0.01, 30.0
# Without its lock a runner asks for it after the first of these, and again after the second.
ASK_FOR_LOCK, ASK_AGAIN = 0.1, 3.0


class HandedOut:
    """A message waiting for an `async for` loop to take and settle it. None: the loop said nothing."""

    __slots__ = ("holder", "message", "outcome")

    def __init__(self, message: ReceivedMessage, outcome: asyncio.Future[Outcome | None]) -> None:
        self.message = message
        self.outcome = outcome
        self.holder: asyncio.Task[object] | None = None


class OrderedConsumption:
    """Consumes submitted messages queue by queue; at most `max_concurrency` handlers run at once.

    Without handlers, use `take` and `finish`.
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
        relock: Relock | None,
        iterate: bool,
        max_concurrency: int,
        batch: int,
        max_retries: int,
        suspend: float,
    ) -> None:
        self.handling = handling
        self.listeners = listeners
        self.send_back = send_back
        self.offsets = offsets
        self.reply = reply
        self.relock = relock
        self.iterate = iterate
        self.batch = 1 if iterate else batch
        self.max_retries = max_retries
        self.suspend = suspend
        self.free = asyncio.Semaphore(max_concurrency)
        self.backlog: Backlog[HandedOut] = Backlog()
        self.stopping = False
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._runners: dict[MessageQueue, QueueRunner] = {}
        self._handed_out: dict[ReceivedMessage, HandedOut] = {}
        self._watchers: list[asyncio.Future[None]] = []

    def start(self) -> None:
        """Runners start with their queues."""

    # Queues

    def added(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        runner = self._runners[queue] = QueueRunner(queue, process_queue, self)
        runner.task = self._tasks.spawn(f"runner of {queue}", runner.run)

    def removed(self, queue: MessageQueue) -> None:
        """The runner ends on its own: it sees that the queue is dropped when its handler ends."""
        runner = self._runners.pop(queue, None)
        if runner is not None:
            runner.arrived.set()

    def submit(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> None:
        runner = self._runners.get(queue)
        if runner is not None:
            runner.arrived.set()

    # `async for` loops

    async def take(self) -> ReceivedMessage:
        """The next message for a loop, from a queue with none handed out; raises BacklogClosed at the end."""
        while True:
            item = await self.backlog.take()
            if item.outcome.done():
                continue
            item.holder = asyncio.current_task()
            self._handed_out[item.message] = item
            return item.message

    def finish(self, message: ReceivedMessage, outcome: Outcome | None) -> None:
        item = self._handed_out.pop(message, None)
        if item is not None and not item.outcome.done():
            item.outcome.set_result(outcome)

    def give_back(self, message: ReceivedMessage) -> None:
        """The loop was left: its queue hands the message out again."""
        self.finish(message, None)

    def settled(self, message: ReceivedMessage) -> None:
        if message.mark is not None and message in self._handed_out:
            on_loop(self._loop, self.finish, message, message.mark)

    async def hand_out(self, message: ReceivedMessage) -> Outcome | None:
        """Give `message` to a loop; returns its outcome, None if it says nothing."""
        item = HandedOut(message, self._loop.create_future())
        self.backlog.put((item,))
        return await item.outcome

    # Waiting for the end

    def flush(self) -> None:
        """Offsets are noted as soon as a message is done."""

    def is_worker(self, task: asyncio.Task[object] | None) -> bool:
        return task is not None and any(
            runner.task is not None and runner.task.task is task for runner in self._runners.values()
        )

    async def idle(
        self, queues: Collection[MessageQueue] | None, timeout: float, caller: asyncio.Task[object] | None = None
    ) -> bool:
        """Wait until no handler works on these queues, or on any. False if `timeout` passes first.

        Messages that `caller` holds in its own loop do not count: it cannot finish them while it waits here.
        """
        held = self._handed_out.values()
        mine = {item.message.queue for item in held if caller is not None and item.holder is caller}
        runners = [
            runner
            for queue, runner in self._runners.items()
            if (queues is None or queue in queues) and queue not in mine
        ]
        self._take_back(runner.queue for runner in runners)
        deadline = time.monotonic() + timeout
        while any(runner.at_work for runner in runners):
            watcher: asyncio.Future[None] = self._loop.create_future()
            self._watchers.append(watcher)
            _, late = await asyncio.wait((watcher,), timeout=deadline - time.monotonic())
            if late:
                watcher.cancel()
                return False
        return True

    def ended(self) -> None:
        """A handler has ended."""
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)

    def _take_back(self, queues: Iterable[MessageQueue]) -> None:
        """Withdraw messages of these queues that wait for a loop."""
        wanted = set(queues)
        for item in self.backlog:
            if item.message.queue in wanted and not item.outcome.done():
                item.outcome.set_result(None)

    def stop(self) -> None:
        """Start nothing new. Loops end; runners finish what they are doing."""
        self.stopping = True
        self._take_back(self._runners)
        self.backlog.close()
        for runner in self._runners.values():
            runner.arrived.set()


class QueueRunner:
    """Consumes one queue while it is assigned to this consumer."""

    __slots__ = ("_consumption", "_marked", "_times", "arrived", "at_work", "process_queue", "queue", "task")

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue, consumption: OrderedConsumption) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.arrived = asyncio.Event()
        self.at_work = False  # a handler is working on the queue
        self._marked = False  # the user settled single messages
        self.task: Supervised | None = None
        self._consumption = consumption
        self._times: dict[int, int] = {}  # how often the message at an offset failed here

    # Where its messages come from (an Origin)

    def settled(self, message: ReceivedMessage) -> None:
        self._marked = True
        self._consumption.settled(message)

    async def reply(self, message: ReceivedMessage, body: bytes, timeout: float) -> SendResult:
        return await self._consumption.reply(message, body, timeout)

    # Its run

    async def run(self) -> None:
        consumption, process_queue = self._consumption, self.process_queue
        # An earlier run may have been cancelled from outside in the middle of a message.
        process_queue.rollback()
        turn_ends = time.monotonic() + TURN
        while not (process_queue.dropped or consumption.stopping):
            if not process_queue.waiting:
                self.arrived.clear()
                await self.arrived.wait()
            elif not self._holds_lock():
                await self._ask_for_lock()
            else:
                pause = await self._step()
                if pause is not None:
                    await self._pause(pause)
                elif time.monotonic() > turn_ends:
                    await asyncio.sleep(0)
                else:
                    continue
            turn_ends = time.monotonic() + TURN

    def _holds_lock(self) -> bool:
        held = self.process_queue
        return self._consumption.relock is None or (held.locked and not held.is_lock_expired(time.monotonic()))

    def _is_ours(self) -> bool:
        """Whether results still count: also while the queue is being given up, which waits for the handler."""
        held = self.process_queue
        return not held.dropped or (self._consumption.relock is not None and held.locked)

    async def _ask_for_lock(self) -> None:
        relock = self._consumption.relock
        assert relock is not None
        await self._pause(ASK_FOR_LOCK)
        if self.process_queue.dropped or self._consumption.stopping or self._holds_lock():
            return
        if not await relock(self.queue, self.process_queue):
            logger.warning("%s is locked by another member; waiting for the lock", self.queue)
            await self._pause(ASK_AGAIN)

    async def _pause(self, seconds: float) -> None:
        """Pause the queue; less, if it is taken away meanwhile."""
        deadline = time.monotonic() + seconds
        while not (self.process_queue.dropped or self._consumption.stopping):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self.arrived.wait()
            except TimeoutError:
                return

    async def _step(self) -> float | None:
        """Consume the next messages; returns the seconds to pause afterwards."""
        consumption = self._consumption
        async with consumption.free:
            if self.process_queue.dropped or consumption.stopping:
                return None
            self.at_work = True
            try:
                return await self._consume()
            finally:
                self.at_work = False
                consumption.ended()

    async def _consume(self) -> float | None:
        process_queue = self.process_queue
        messages, listener = self._take()
        if listener is None:
            return None
        context = messages[0].ctx
        wanted = self._consumption.handling.wanted(listener, messages)
        try:
            outcome = await self._outcome(listener, wanted) if wanted else ACK
        except asyncio.CancelledError:
            process_queue.again(message.raw for message in messages)
            raise
        if outcome is None:
            process_queue.again(message.raw for message in messages)
            return None
        process_queue.last_consume = time.monotonic()
        if not self._is_ours():
            return None
        if outcome is ACK and wanted is messages and context.auto_commit and not self._marked:
            self._commit(messages[-1])
            return None
        said = dict(zip(wanted, per_message(outcome, [message.mark for message in wanted]), strict=True))
        outcomes = [said.get(message) or message.mark or ACK for message in messages]
        return await self._settle(messages, outcomes, context)

    def _take(self) -> tuple[list[ReceivedMessage], Listener | None]:
        """The next messages, all of one topic, and their listener."""
        consumption, process_queue = self._consumption, self.process_queue
        raws = process_queue.take(consumption.batch)
        if not raws:
            return [], None
        listener = consumption.listeners.of_queue(self.queue.topic)
        if listener is None:
            listener = consumption.listeners.of_message(raws[0])
            others = [raw for raw in raws[1:] if consumption.listeners.of_message(raw).topic != listener.topic]
            if others:
                cut = raws.index(others[0])
                process_queue.again(raws[cut:])
                del raws[cut:]
        context = Context(self.queue)
        messages = [ReceivedMessage(raw, listener.topic, self.queue, self) for raw in raws]
        for message in messages:
            message.ctx = context
            if self._times:
                message.reconsume_times += self._times.get(message.offset, 0)
        return messages, listener

    async def _outcome(self, listener: Listener, messages: list[ReceivedMessage]) -> Outcome | None:
        if self._consumption.iterate:
            return await self._through_loop(listener, messages)
        return await self._consumption.handling.run(listener, self.queue, messages)

    async def _through_loop(self, listener: Listener, messages: list[ReceivedMessage]) -> Outcome | None:
        (message,) = messages
        handling = self._consumption.handling
        context = await handling.begin(self.queue, messages)
        started = message.started = time.monotonic()
        outcome = await self._consumption.hand_out(message)
        if outcome is None:
            return None
        seconds = time.monotonic() - started
        listener.stats.consumed(int(outcome is ACK), int(outcome is not ACK), seconds)
        if context is not None:
            await handling.end(context, outcome, seconds)
        return outcome

    # What follows

    async def _settle(self, messages: list[ReceivedMessage], outcomes: list[Outcome], context: Context) -> float | None:
        """Apply the table at the top of this module."""
        process_queue = self.process_queue
        if not context.auto_commit and isinstance(outcomes[0], Rollback):
            process_queue.rollback()
            return self._clamped(None)
        failed_at = await self._first_failure(messages, outcomes)
        pause = None
        if failed_at is not None:
            outcome = outcomes[failed_at]
            process_queue.again(message.raw for message in messages[failed_at:])
            pause = self._clamped(outcome.seconds if isinstance(outcome, Suspend) else None)
            if failed_at == 0:
                return pause
        if context.auto_commit or any(isinstance(outcome, Commit) for outcome in outcomes):
            self._commit(messages[-1] if failed_at is None else messages[failed_at - 1])
        return pause

    async def _first_failure(self, messages: list[ReceivedMessage], outcomes: list[Outcome]) -> int | None:
        """The first message to retry; messages that failed too often become dead letters here."""
        first: int | None = None
        for index, (message, outcome) in enumerate(zip(messages, outcomes, strict=True)):
            if isinstance(outcome, Ack | Commit | Rollback):
                continue
            if isinstance(outcome, DeadLetter):
                done = await self._consumption.send_back.send(message, NEVER)
            elif message.reconsume_times >= self._consumption.max_retries:
                done = await self._consumption.send_back.send_dead(message)
            else:
                done = False
            if not done:
                self._times[message.offset] = self._times.get(message.offset, 0) + 1
                first = index if first is None else first
        return first

    def _commit(self, last: ReceivedMessage) -> None:
        offset = self.process_queue.commit()
        if self._times:
            self._times = {at: times for at, times in self._times.items() if at > last.offset}
        if offset is not None and self._is_ours():
            self._consumption.offsets.update(self.queue, offset, False)

    def _clamped(self, seconds: float | None) -> float:
        return min(max(self._consumption.suspend if seconds is None else seconds, MIN_PAUSE), MAX_PAUSE)
