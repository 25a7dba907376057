"""A push consumer as a member of its group: its parts, from start to end, and what its client sees of it.

    Rebalancer ─ which queues are ours ─> PullLoop per queue ─ messages ─> consumption ─ progress ─> OffsetStore

Topic and group names are those on the wire here; `Consumer` translates the user's.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from typing import TYPE_CHECKING, Protocol

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumeType,
)
from pyromq.protocol.names import retry_topic

from ..hooks import Hook, HookList
from ..producer.request_reply import reply
from ..producer.sender import HiddenProducer
from ..tasks import Tasks
from ..trace import CONSUME, TraceHook
from ..trace_context import TraceContextHook
from .concurrent import ConcurrentConsumption
from .consume_stats import SAMPLE_EVERY, ConsumeStats
from .handlers import Handling, Listeners
from .membership import Membership
from .ordered import OrderedConsumption
from .outcomes import Ack, Commit, Rollback
from .pull_loop import Limits, Puller, PullLoop
from .queue_locks import FIRST_REFRESH, FORCE_AFTER, REFRESH, QueueLocks
from .rebalance import SOON, Rebalancer
from .received_message import ReceivedMessage
from .send_back import SendBack
from .subscriptions import ALL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from pyromq.protocol.bodies import ConsumerData, ConsumerRunningInfo, SubscriptionData
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from ..producer.send_result import SendResult
    from ..tasks import Periodic, Supervised
    from .consume_stats import TopicStats
    from .consumer_settings import ConsumerSettings
    from .handlers import Handler, Predicate
    from .outcomes import Outcome
    from .process_queue import ProcessQueue
    from .subscriptions import Sql

logger = logging.getLogger(__name__)

# Seconds for the steps of an orderly end when brokers do not answer; unregistering takes as long as any call.
_COMMIT_PATIENCE = 1.5
_UNLOCK_PATIENCE = 0.5
_RESET_PATIENCE = 10.0
_RELEASE_PATIENCE = 0.5


class Consumption(Protocol):
    """How messages are consumed: concurrently or in order."""

    def start(self) -> None: ...
    def added(self, queue: MessageQueue, process_queue: ProcessQueue) -> None: ...
    def removed(self, queue: MessageQueue) -> None: ...
    def submit(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> None: ...
    async def take(self) -> ReceivedMessage: ...
    def finish(self, message: ReceivedMessage, outcome: Outcome) -> None: ...
    def give_back(self, message: ReceivedMessage) -> None: ...
    async def idle(
        self, queues: Collection[MessageQueue] | None, timeout: float, caller: asyncio.Task[object] | None = None
    ) -> bool: ...
    def flush(self) -> None: ...
    def is_worker(self, task: asyncio.Task[object] | None) -> bool: ...
    def stop(self) -> None: ...


class Subscription:
    """A user's subscription to one topic, and its handler."""

    __slots__ = ("expression", "handler", "topic", "where")

    def __init__(self, topic: str, expression: str | Sql, handler: Handler | None, where: Predicate | None) -> None:
        self.topic = topic
        self.expression = expression
        self.handler = handler
        self.where = where


class PushMember:
    """A started consumer; a `ConsumerMember` of its client."""

    # From the start on.
    consumption: Consumption

    def __init__(self, client: Client, settings: ConsumerSettings, iterated: bool) -> None:
        wrap = client.namespace.wrap
        self.settings = settings
        self.group = wrap(settings.group)
        self._client = client
        self._iterated = iterated
        self._retry_topic = retry_topic(self.group)
        self._membership = Membership(
            client,
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            start_at=settings.start_at,
            broadcast=settings.broadcast,
            offset_store=settings.offset_store,
        )
        self._membership.begin()
        self._subscriptions = self._membership.subscriptions
        self._offsets = self._membership.offsets
        self._stats = ConsumeStats()
        self._listeners = Listeners(client.namespace, self.group, self._topic_stats)
        if not settings.broadcast:
            self._membership.subscribe(self._retry_topic, ALL)
        self._trace = TraceHook(client, settings.group, CONSUME) if client.trace else None
        own: list[Hook] = [self._trace] if self._trace else []
        if client.trace_context:
            own.append(TraceContextHook())
        hooks = HookList([*client.hooks, *own])
        self._handling = Handling(
            settings.group,
            hooks,
            ordered=settings.ordered,
            batch=settings.batch,
            max_concurrency=settings.max_concurrency,
            consume_timeout=settings.consume_timeout,
            on_error=settings.on_error,
        )
        self._tasks = Tasks(f"consumer {self.group}")
        self._lock_refresh: Periodic | None = None
        self._locks = QueueLocks(client, self.group) if settings.ordered and not settings.broadcast else None
        self._pulls: dict[MessageQueue, Supervised] = {}
        # Only one task at a time may change the owned queues.
        self._changing = asyncio.Lock()
        self._paused = False

    # Life

    async def start(self) -> None:
        """Join the client and begin. All or nothing: whatever fails here is raised, after it was undone."""
        await self._client.join(self)
        try:
            self._assemble()
            await self._offsets.load()
            await asyncio.gather(*map(self._find_route, list(self._subscriptions)))
            await asyncio.gather(*map(self._membership.check, list(self._subscriptions.values())))
            await self._client.heartbeat()
            self._begin()
        except BaseException:
            await self._abandon()
            raise
        logger.info("consumer %s started as %s", self.group, self._client.client_id)

    def _assemble(self) -> None:
        client, settings = self._client, self.settings
        self._producer = HiddenProducer(client)
        send_back = SendBack(client, self.group, self._producer, settings.retries)
        if settings.ordered:
            self.consumption = OrderedConsumption(
                self._handling,
                self._listeners,
                send_back,
                self._offsets,
                self._tasks,
                self.reply,
                relock=self._locks.lock if self._locks else None,
                iterate=self._iterated,
                max_concurrency=settings.max_concurrency,
                batch=settings.batch,
                max_retries=settings.retries,
                suspend=settings.suspend,
            )
        else:
            self.consumption = ConcurrentConsumption(
                self._handling,
                self._listeners,
                send_back,
                self._offsets,
                self._tasks,
                self.reply,
                workers=0 if self._iterated else settings.max_concurrency,
                batch=1 if self._iterated else settings.batch,
                broadcast=settings.broadcast,
                consume_timeout=settings.consume_timeout,
            )
        self._puller = Puller(
            client,
            self.group,
            self._offsets,
            subscription=self._subscriptions.get,
            stats=self._topic_stats,
            submit=self.consumption.submit,
            illegal=self._offset_illegal,
            limits=Limits(settings.max_cached, settings.max_cached_mib, settings.max_span),
            batch=settings.pull_batch,
            ordered=settings.ordered,
            locking=self._locks is not None,
            broadcast=settings.broadcast,
        )
        self._rebalancer = Rebalancer(
            client,
            self.group,
            settings.allocate,
            self._offsets,
            topics=self._subscriptions.keys,
            start=self._membership.start_offset,
            added=self._added,
            removed=self._removed,
            renew=self._membership.renew,
            lock=self._locks.lock if self._locks else None,
            release=self._release if self._locks else None,
            broadcast=settings.broadcast,
        )

    def _begin(self) -> None:
        tasks = self._tasks
        if self._trace is not None:
            self._trace.start()
        self.consumption.start()
        if self._paused:
            self._puller.running.clear()
        interval = self._client.offset_interval
        tasks.every("offsets", interval, interval, self._persist)
        tasks.every("statistics", SAMPLE_EVERY, SAMPLE_EVERY, self._sample)
        if self._locks is not None:
            self._lock_refresh = tasks.every("locks", FIRST_REFRESH, REFRESH, self._refresh_locks)
        self._membership.rebalance = tasks.every("rebalance", 0.0, self._rebalance_period, self._rebalance_once)

    async def _find_route(self, topic: str) -> None:
        if topic != self._retry_topic:  # the broker creates that one when it hears of the group
            await self._membership.find_route(topic)

    async def _abandon(self) -> None:
        """Undo a failed start."""
        self._handling.closing = True
        await self._tasks.close()
        self._handling.close()
        if self._trace is not None:
            await self._trace.close()
        await self._client.leave(self)

    async def close(self, caller: asyncio.Task[object] | None = None) -> None:
        """Stop pulling, let handlers finish, commit, unlock, unregister. Always ends, even without brokers.

        `caller` is the task that asked for it.
        """
        consumption = self.consumption
        if self._membership.rebalance is not None:
            await self._membership.rebalance.stop()
        for pull in self._pulls.values():
            pull.cancel()
        consumption.stop()
        if not await consumption.idle(None, self.settings.drain, caller):
            logger.warning("%s: handlers still running after %g s; cancelling them", self.group, self.settings.drain)
        self._handling.closing = True
        await self._tasks.close()
        consumption.flush()
        await self._within(_COMMIT_PATIENCE, self._persist(wait=True), "progress not committed")
        owned = self._rebalancer.owned
        if self._locks is not None:
            await self._within(_UNLOCK_PATIENCE, self._locks.unlock(owned, wait=True), "locks not given back")
        for held in owned.values():
            held.dropped = True
        self._handling.close()
        if self._trace is not None:
            await self._trace.close()
        await self._client.leave(self)
        logger.info("consumer %s closed", self.group)

    async def _within(self, seconds: float, last_words: Awaitable[None], otherwise: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                await last_words
        except TimeoutError:
            logger.warning("%s: %s within %g s", self.group, otherwise, seconds)

    # Subscriptions

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to a topic, or change the subscription; takes effect at once while running."""
        topic = self._client.namespace.wrap(subscription.topic)
        data = self._membership.subscribe(topic, subscription.expression)
        self._listeners.set(topic, subscription.handler, subscription.where)
        if self._membership.rebalance is not None:
            self._tasks.once(self._subscribed(data), f"subscribe {topic}")

    async def _subscribed(self, data: SubscriptionData) -> None:
        try:
            await self._find_route(data.topic)
            await self._membership.check(data)
        except PyroMQError as exc:
            self._handling.report(exc, None)
        await self._client.heartbeat()
        self.wake_rebalance()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic: commit its progress and give up its queues."""
        topic = self._client.namespace.wrap(topic)
        if self._subscriptions.pop(topic, None) is None:
            return
        async with self._changing:
            await self._rebalancer.run_once()
        self._listeners.remove(topic)
        await self._client.heartbeat()

    # Queues

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        return frozenset(queue for queue, held in self._rebalancer.owned.items() if not held.dropped)

    def pause(self) -> None:
        self._paused = True
        self._puller.running.clear()

    def resume(self) -> None:
        self._paused = False
        self._puller.running.set()
        self.wake_rebalance()

    async def _rebalance_once(self) -> None:
        if not self._paused:
            async with self._changing:
                await self._rebalancer.run_once()

    def _rebalance_period(self) -> float:
        """The broker creates the retry topic when it first hears of the group; its route follows a moment later."""
        routes, owned = self._client.routes, self._rebalancer.owned
        if owned and self._retry_topic in self._subscriptions and routes.cached(self._retry_topic) is None:
            return SOON
        return self._rebalancer.period()

    def _added(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        self.consumption.added(queue, process_queue)
        pull = PullLoop(self._puller, queue, process_queue, offset)
        self._pulls[queue] = self._tasks.spawn(f"pull of {queue}", pull.run)

    def _removed(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.consumption.removed(queue)
        if (pull := self._pulls.pop(queue, None)) is not None:
            pull.cancel()

    async def _release(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Give up a locked queue, but only once its handler has ended, so that no one else starts before."""
        assert self._locks is not None
        await self._membership.persist(queue)
        overdue = time.monotonic() - held.last_lock > FORCE_AFTER
        if not await self.consumption.idle((queue,), _RELEASE_PATIENCE) and not overdue:
            held.try_unlock_times += 1
            return False
        await self._membership.persist(queue)
        held.locked = False
        await self._locks.unlock((queue,))
        return True

    async def _refresh_locks(self) -> None:
        assert self._locks is not None
        await self._locks.refresh(self._rebalancer.owned)

    def _offset_illegal(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        self._tasks.once(self._move(queue, held, offset), f"move to {offset} in {queue}")

    async def _move(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """Continue elsewhere in a dropped queue: the next rebalancing takes it again."""
        async with self._changing:
            if self._rebalancer.owned.get(queue) is not held:
                return
            self._offsets.freeze(queue, offset)
            await self._membership.persist(queue, wait=True)
            await self._rebalancer.drop(queue, held)
        self.wake_rebalance()

    # Progress

    async def _persist(self, *, wait: bool = False) -> None:
        await self._offsets.persist_all(self._rebalancer.owned.keys(), wait=wait)

    async def _reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        async with self._changing:
            owned = self._rebalancer.owned
            moving = {queue: owned[queue] for queue in offsets if queue.topic == topic and queue in owned}
            for held in moving.values():
                held.dropped = True
                held.clear()
            if not await self.consumption.idle(moving, _RESET_PATIENCE):
                logger.warning("%s: resetting offsets of %s while handlers are still running", self.group, topic)
            for queue, held in moving.items():
                self._offsets.freeze(queue, offsets[queue])
                await self._membership.persist(queue, wait=True)
                await self._rebalancer.drop(queue, held)
        self.wake_rebalance()

    # Statistics

    def _topic_stats(self, topic: str) -> TopicStats:
        return self._stats.topic(topic, time.monotonic())

    async def _sample(self) -> None:
        self._stats.sample(time.monotonic())

    # What its client asks (a ConsumerMember)

    def topics(self) -> Collection[str]:
        return self._subscriptions.keys()

    def route_changed(self, topic: str) -> None:
        self.wake_rebalance()
        if self._lock_refresh is not None:
            self._lock_refresh.wake()  # a new master knows nothing of our locks

    def heartbeat_data(self) -> ConsumerData:
        return self._membership.heartbeat_data()

    def wake_rebalance(self) -> None:
        self._membership.wake_rebalance()

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        if self._membership.rebalance is not None:
            self._tasks.once(self._reset(topic, offsets), f"reset offsets of {topic}")

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._offsets.memory(topic)

    def running_info(self, jstack: bool) -> ConsumerRunningInfo:
        return self._membership.running_info(
            self._rebalancer.owned,
            stacks=jstack,
            settings=self.settings.java_names(),
            ordered=self.settings.ordered,
            pool_size=self.settings.max_concurrency,
            status=self._stats.status(list(self._subscriptions), time.monotonic()),
        )

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Give `message` to its handler and report the outcome. Commits nothing and sends nothing back."""
        listener = self._listeners.of_message(message)
        received = ReceivedMessage(message, listener.topic, message.queue, self)
        started = time.monotonic()
        remark: str | None = None
        try:
            outcome = await self._handling.call(listener, [received])
            result = _direct_result(received.mark or outcome)
        except Exception as exc:  # the handler's error is the answer
            result = CMResult.CR_THROW_EXCEPTION
            remark = "".join(traceback.format_exception(exc))
        return ConsumeMessageDirectlyResult(
            order=self.settings.ordered,
            auto_commit=received.ctx.auto_commit,
            consume_result=result,
            remark=remark,
            spent_time_mills=int((time.monotonic() - started) * 1000),
        )

    # Where messages come from that were consumed directly (an Origin)

    def settled(self, message: ReceivedMessage) -> None:
        """Only told."""

    async def reply(self, message: ReceivedMessage, body: bytes, timeout: float) -> SendResult:
        """Answer `message`, sent with `request()`, through the broker it came from."""
        return await reply(self._producer, message.raw.properties, message.raw.broker_name, body, timeout)


def _direct_result(outcome: Outcome) -> CMResult:
    if isinstance(outcome, Ack):
        return CMResult.CR_SUCCESS
    if isinstance(outcome, Commit):
        return CMResult.CR_COMMIT
    return CMResult.CR_ROLLBACK if isinstance(outcome, Rollback) else CMResult.CR_LATER
