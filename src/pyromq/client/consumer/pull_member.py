"""A pull consumer as a member of its group: its queues, its progress, and what its client sees of it.

    Rebalancer ─ which queues are ours ─> AssignedQueues, a PollReader each ─ messages ─> PollBuffer ─> poll()

Topic and group names are those on the wire here; `PullConsumer` translates the user's.
"""

from __future__ import annotations

import logging
import time
from enum import Enum
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, PyroMQError, ServerError, StateError
from pyromq.protocol.bodies import ConsumeType

from ..tasks import Tasks
from .assigned_queues import AssignedQueues
from .membership import Membership
from .process_queue import ProcessQueue
from .rebalance import SOON, Rebalancer
from .subscriptions import ALL
from .topic_watch import TopicWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyromq.protocol.bodies import ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from .consumer_settings import PullSettings
    from .offset_store import OffsetStore
    from .subscriptions import Sql

logger = logging.getLogger(__name__)

_FIRST_METADATA = 10.0
_FIRST_COMMIT = 10.0


class Mode(Enum):
    NONE = "neither"
    SUBSCRIBE = "subscribe"  # shares queues with the other members of the group
    ASSIGN = "assign"  # reads the queues the user named


class PullMember:
    """A `ConsumerMember` of its client. Subscriptions may be set before the start; the rest needs it.

    `bare` translates a queue's wire name to the user's.
    """

    # From the start on.
    queues: AssignedQueues
    _tasks: Tasks
    _rebalancer: Rebalancer

    def __init__(self, client: Client, settings: PullSettings, bare: Callable[[MessageQueue], MessageQueue]) -> None:
        self.group = client.namespace.wrap(settings.group)
        self.mode = Mode.NONE
        self.watch = TopicWatch(client, bare)
        self._client = client
        self._settings = settings
        self._membership = Membership(
            client,
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            start_at=settings.start_at,
            broadcast=settings.broadcast,
            offset_store=settings.offset_store,
        )
        self._running = False
        self._assigned: list[MessageQueue] = []
        self._committed_by_hand: set[MessageQueue] = set()

    @property
    def offsets(self) -> OffsetStore:
        return self._membership.offsets

    # Life

    async def start(self) -> None:
        """Join the client and begin. All or nothing: a failure is undone and raised."""
        membership = self._membership
        self._tasks = Tasks(f"pull consumer {self._settings.group}")
        self.queues = self._new_queues()
        membership.begin()
        self._rebalancer = self._new_rebalancer()
        await self._client.join(self)
        try:
            await membership.offsets.load()
            for topic in self.topics():
                await self._prepare(topic)
            await self._client.heartbeat()
            self._running = True
            if self.mode is Mode.SUBSCRIBE:
                await self._rebalancer.run_once()
            self._start_tasks()
        except BaseException:
            await self._stop()
            raise

    def _new_queues(self) -> AssignedQueues:
        return AssignedQueues(
            self._client,
            self.group,
            self._tasks,
            self._settings.reads,
            self._settings.max_buffered,
            subscription=lambda topic: self._membership.subscriptions.get(topic),
            start=self._membership.start_offset,
        )

    def _new_rebalancer(self) -> Rebalancer:
        return Rebalancer(
            self._client,
            self.group,
            self._settings.allocate,
            self._membership.offsets,
            topics=lambda: self._membership.subscriptions.keys(),
            start=self._membership.start_offset,
            added=self.queues.add,
            removed=self.queues.remove,
            renew=self._membership.renew,
            broadcast=self._settings.broadcast,
            watch_pulls=False,
        )

    def _start_tasks(self) -> None:
        if self.mode is Mode.SUBSCRIBE:
            self._start_rebalancing()
        elif self.mode is Mode.ASSIGN:
            self._read_assigned()
        settings = self._settings
        self._tasks.every(
            "commit", min(_FIRST_COMMIT, settings.commit_interval), settings.commit_interval, self._commit
        )
        first = min(_FIRST_METADATA, settings.metadata_interval)
        self._tasks.every("topic metadata", first, settings.metadata_interval, self.watch.look)

    def _start_rebalancing(self) -> None:
        # Soon, even after a round at the start: it missed members that joined during it.
        rebalancer = self._rebalancer
        self._membership.rebalance = self._tasks.every("rebalance", SOON, rebalancer.period, rebalancer.run_once)

    async def close(self) -> None:
        """Commit pending offsets and unregister. Always ends."""
        try:
            await self._tasks.close()
            await self.offsets.persist_all(self._owned(), wait=True)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._running = False
        self._membership.rebalance = None
        self.queues.clear()
        self._rebalancer.owned.clear()
        try:
            await self._tasks.close()
        finally:
            await self._client.leave(self)

    # What to read

    def enter(self, mode: Mode) -> None:
        """A member either subscribes or assigns queues, not both."""
        if self.mode not in (mode, Mode.NONE):
            raise StateError(
                f"pull consumer {self._settings.group} is in {self.mode.value} mode and cannot also {mode.value}"
            )
        self.mode = mode

    def subscribe(self, topic: str, expression: str | Sql) -> None:
        """Subscribe to a topic, or change its expression; takes effect at once while running."""
        self.enter(Mode.SUBSCRIBE)
        self._membership.subscribe(topic, expression)
        if self._running:
            self._tasks.once(self._subscribed(topic), f"subscribe {topic}")

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic: the next rebalancing commits its progress and gives up its queues."""
        self._membership.subscriptions.pop(topic, None)
        self.wake_rebalance()

    def assign(self, queues: Iterable[MessageQueue], expressions: Mapping[str, str | Sql]) -> None:
        """Read exactly these queues. Those that stay keep their positions."""
        self.enter(Mode.ASSIGN)
        wanted = list(queues)
        membership = self._membership
        before = membership.subscriptions
        membership.subscriptions = {}
        try:
            for topic in dict.fromkeys(queue.topic for queue in wanted):
                membership.subscribe(topic, expressions.get(topic, ALL))
        except ConfigError:
            membership.subscriptions = before
            raise
        self._assigned = wanted
        if self._running:
            self._read_assigned()

    def _read_assigned(self) -> None:
        wanted = frozenset(self._assigned)
        readers = self.queues.readers
        for queue, reader in tuple(readers.items()):
            if queue not in wanted:
                self.queues.remove(queue, reader.process_queue)
                self._tasks.once(self._forget(queue), f"forget {queue}")
        for queue in self._assigned:
            if queue not in readers:
                self.queues.add(queue, ProcessQueue(time.monotonic()), None)

    async def _forget(self, queue: MessageQueue) -> None:
        await self._membership.persist(queue)
        if queue not in self.queues.readers:
            self.offsets.remove(queue)

    async def _prepare(self, topic: str) -> None:
        """Find a topic's route, and check that its brokers understand the expression."""
        await self._membership.find_route(topic)
        subscription = self._membership.subscriptions.get(topic)
        if subscription is not None:
            await self._membership.check(subscription)

    async def _subscribed(self, topic: str) -> None:
        try:
            await self._prepare(topic)
        except PyroMQError as exc:
            logger.warning("%s: %s", self.group, exc)
        await self._client.heartbeat()
        if self._membership.rebalance is None:
            self._start_rebalancing()
        self.wake_rebalance()

    # How far it is

    def note_progress(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Note these offsets for the next commit."""
        for queue, offset in offsets.items():
            self.offsets.update(queue, offset)

    def note_commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Like `note_progress`, for offsets given by the user. Raises if this member may not commit them."""
        for queue, offset in offsets.items():
            if offset < 0:
                raise ConfigError(f"cannot commit offset {offset} of {queue}")
            if self.mode is Mode.SUBSCRIBE and queue not in self.queues.readers:
                raise StateError(f"{queue} is not assigned to this member; another one may be reading it")
        self._committed_by_hand.update(offsets.keys() - self.queues.readers.keys())
        self.note_progress(offsets)

    async def _commit(self) -> None:
        await self.offsets.persist_all(self._owned())

    def _owned(self) -> set[MessageQueue]:
        return self.queues.readers.keys() | self._committed_by_hand

    async def _reset(self, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            reader = self.queues.readers.get(queue)
            if reader is not None:
                self.queues.go_on_at(reader, offset)
                self.offsets.update(queue, offset)
                await self.offsets.persist(queue)

    # What its client asks (a ConsumerMember)

    def topics(self) -> Collection[str]:
        return self._membership.subscriptions.keys() | self.watch.topics

    def route_changed(self, topic: str) -> None:
        self.wake_rebalance()

    def heartbeat_data(self) -> ConsumerData:
        # A member with assigned queues takes no part in the group's subscriptions.
        return self._membership.heartbeat_data(subscribed=self.mode is not Mode.ASSIGN)

    def wake_rebalance(self) -> None:
        self._membership.wake_rebalance()

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        if self._running:
            self._tasks.once(self._reset(offsets), f"reset {topic}")

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self.offsets.memory(topic) | self.queues.positions(topic)

    def running_info(self, jstack: bool) -> ConsumerRunningInfo:
        queues = {queue: reader.process_queue for queue, reader in self.queues.readers.items()}
        return self._membership.running_info(queues, stacks=jstack)

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        raise ServerError(f"{self._settings.group} is a pull consumer and has no handler")
