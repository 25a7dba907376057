"""PullConsumer: a consumer that asks for messages when it wants them, and decides itself how far it is.

    async with PullConsumer("billing", {"orders": "*"}, namesrv="localhost:9876") as consumer:
        async for batch in consumer:
            handle(batch)

What was handed out counts as done when the next batch is asked for, and is committed soon after; a program that dies
before gets it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Self

import msgspec

from pyromq.errors import ConfigError, OffsetOutOfRange, PyroMQError, RouteNotFound, ServerError, StateError
from pyromq.protocol.bodies.clients import ConsumerRunningInfo
from pyromq.protocol.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel
from pyromq.protocol.command import PROTOCOL_VERSION
from pyromq.protocol.headers import ConsumerSendMessageBack
from pyromq.protocol.names import DEFAULT_CONSUMER_GROUP, is_retry_topic
from pyromq.protocol.versions import version_name

from ..client import Client
from ..names import check_group, check_topic
from ..tasks import Tasks
from .allocation import Averagely
from .assigned_queues import Reading
from .offset_store import BrokerOffsetStore, LocalOffsetStore, ReadFrom
from .poll_reader import ReadSettings, pull_once
from .process_queue import ProcessQueue
from .rebalance import SOON, Rebalancer
from .received_message import ReceivedMessage
from .start_offset import StartAt, consume_from_where, find_offset, is_strict, start_offset
from .subscriptions import ALL, SQL92, Sql, subscription_data
from .topic_watch import TopicWatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from pyromq.protocol.bodies.clients import ConsumeMessageDirectlyResult
    from pyromq.protocol.bodies.heartbeat import SubscriptionData
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..tasks import Periodic
    from .allocation import Strategy
    from .offset_store import OffsetStore
    from .poll_reader import QueueReader
    from .pull_result import PullResult, PullStatus
    from .topic_watch import QueuesListener

logger = logging.getLogger(__name__)

MIN_COMMIT_INTERVAL = 1.0
_PULL_TIMEOUT = 10.0
_SEND_BACK_TIMEOUT = 3.0
_MAX_RECONSUME_TIMES = 16
_FIRST_METADATA = 10.0
_FIRST_COMMIT = 10.0


class _State(Enum):
    CREATED = "not started"
    RUNNING = "running"
    CLOSED = "closed"


class _Mode(Enum):
    NONE = "neither"
    SUBSCRIBE = "subscribe"  # queues are shared with the other members of the group
    ASSIGN = "assign"  # queues are those that the user named


@dataclass(frozen=True, slots=True)
class Pulled:
    """What one `pull` found. The next one goes to `next_offset`; the queue has `min_offset` to `max_offset`."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


class PullConsumer:
    """Reads the queues that the group's members share (`subscribe`), or those that it is told (`assign`).

    Polling, committing and seeking are for one task at a time: with `auto_commit` asking for the next batch says that
    the one before is done. `start_at` counts for queues that the group never committed. Times are in seconds.

    Without `auto_commit` nothing is committed but by `commit`. `commit_interval` is how often commits that nobody
    waits for are told to the brokers.
    """

    def __init__(
        self,
        group: str,
        topics: Mapping[str, str | Sql] | None = None,
        *,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        broadcast: bool = False,
        start_at: StartAt | datetime = StartAt.LAST,
        allocate: Strategy | None = None,
        pull_batch: int = 32,
        broker_wait: float = 20.0,
        max_buffered: int = 10_000,
        max_cached: int = 1000,
        max_cached_mib: int = 100,
        max_span: int = 2000,
        auto_commit: bool = True,
        commit_interval: float = 5.0,
        metadata_interval: float = 30.0,
        offset_store: OffsetStore | None = None,
    ) -> None:
        check_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise ConfigError(f"{DEFAULT_CONSUMER_GROUP} is RocketMQ's own; give your consumers a group name")
        _check_range("pull_batch", pull_batch, 1, 1024)
        _check_range("max_cached", max_cached, 1, 65535)
        _check_range("max_cached_mib", max_cached_mib, 1, 1024)
        _check_range("max_span", max_span, 1, 65535)
        _check_range("max_buffered", max_buffered, 1, 6_553_500)
        if commit_interval < MIN_COMMIT_INTERVAL:
            raise ConfigError(f"commit_interval is {commit_interval:g} s, at least {MIN_COMMIT_INTERVAL:g} is needed")
        if broker_wait <= 0 or metadata_interval <= 0:
            raise ConfigError("broker_wait and metadata_interval must be more than 0")
        # The folder of a broadcasting member's offsets is named by its client id, which so must not change.
        instance_name = "DEFAULT" if broadcast else None
        self._client = client or Client(namesrv, stream=True, instance_name=instance_name)
        self.group = group
        self._group = self._client.namespace.wrap(group)
        self._broadcast = broadcast
        self._start_at = start_at
        self._settings = ReadSettings(
            pull_batch=pull_batch,
            suspend=broker_wait,
            suspend_timeout=broker_wait + 10.0,
            max_cached=max_cached,
            max_cached_mib=max_cached_mib,
            max_span=max_span,
        )
        self._max_buffered = max_buffered
        self._auto_commit = auto_commit
        self._commit_interval = commit_interval
        self._metadata_interval = metadata_interval
        self._strategy = allocate or Averagely()
        self._given_store = offset_store
        self._store: OffsetStore
        self._tasks: Tasks
        self._reading: Reading
        self._rebalancer: Rebalancer
        self._rebalances: Periodic | None = None
        self._state = _State.CREATED
        self._mode = _Mode.NONE
        self._started_at = 0.0
        # All names in here are those of the wire.
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned: list[MessageQueue] = []
        self._committed_by_hand: set[MessageQueue] = set()
        self._watch = TopicWatch(self._client, self._bare)
        for topic, expr in (topics or {}).items():
            self.subscribe(topic, expr)

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group} {self._state.value}>"

    # Life

    async def start(self) -> Self:
        """Start reading. Raises what keeps it from doing so, and has then undone everything.

        A topic that does not exist yet is no reason: it is read as soon as it does.
        """
        if self._state is not _State.CREATED:
            raise StateError(f"pull consumer {self.group} is {self._state.value}")
        self._tasks = Tasks(f"pull consumer {self.group}")
        self._reading = self._new_reading()
        self._store = self._given_store or self._new_store()
        self._rebalancer = self._new_rebalancer()
        await self._client.join(self)
        try:
            await self._store.load()
            for topic in self.topics():
                await self._prepare_topic(topic)
            await self._client.heartbeat()
            self._state = _State.RUNNING
            self._started_at = time.time()
            if self._mode is _Mode.SUBSCRIBE:
                await self._rebalancer.run_once()
            self._start_tasks()
        except BaseException:
            self._state = _State.CREATED
            await self._stop()
            raise
        return self

    async def close(self) -> None:
        """Stop reading, commit what is to be committed, say goodbye. Always ends; what was last handed out is not done.

        Whoever wants the last batch to count calls `commit` first.
        """
        if self._state is not _State.RUNNING:
            self._state = _State.CLOSED
            return
        self._state = _State.CLOSED
        self._reading.buffer.wake()
        try:
            await self._tasks.close()
            await self._store.persist_all(self._owned(), wait=True)
        finally:
            await self._stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # What to read

    def subscribe(self, topic: str, expr: str | Sql = ALL) -> None:
        """Share the queues of `topic` with the other members of the group; again, to select by another expression.

        All members must subscribe alike: a broker keeps only what it heard last.
        """
        self._enter(_Mode.SUBSCRIBE)
        check_topic(topic)
        wire = self._wrap(topic)
        self._subscriptions[wire] = subscription_data(wire, expr, _now_ms())
        if self._state is _State.RUNNING:
            self._tasks.once(self._subscribed(wire), f"subscribe {topic}")

    def unsubscribe(self, topic: str) -> None:
        """Read `topic` no more; its progress is committed."""
        self._subscriptions.pop(self._wrap(topic), None)
        self.wake_rebalance()

    def assign(self, queues: Iterable[MessageQueue], filters: Mapping[str, str | Sql] | None = None) -> None:
        """Read exactly these queues, whatever other members of the group read; again, to read others.

        `filters` selects messages by topic; without it, all. Queues that stay go on where they are.
        """
        self._enter(_Mode.ASSIGN)
        wanted = [self._wire(queue) for queue in queues]
        expressions = {self._wrap(topic): expr for topic, expr in (filters or {}).items()}
        version = _now_ms()
        self._subscriptions = {
            topic: subscription_data(topic, expressions.get(topic, ALL), version)
            for topic in dict.fromkeys(queue.topic for queue in wanted)
        }
        self._assigned = wanted
        if self._state is _State.RUNNING:
            self._read_assigned()

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are being read."""
        return frozenset(map(self._bare, self._reading.readers)) if self._state is _State.RUNNING else frozenset()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`, whoever reads them. Raises RouteNotFound if there is no such topic."""
        self._check_running()
        return [self._bare(queue) for queue in await self._client.routes.subscribe_queues(self._wrap(topic))]

    def watch(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener(topic, queues)`, plain or async, when the queues of `topic` are not what they were.

        Also once with those that it has. Looked at every `metadata_interval` seconds; for who assigns queues and
        wants to hear of new ones.
        """
        check_topic(topic)
        self._watch.add(self._wrap(topic), listener)

    # Messages

    async def poll(self, max: int | None = None, timeout: float = 5.0) -> list[ReceivedMessage]:  # noqa: A002
        """Messages, in their order within each queue: what one pull brought, or with `max` up to so many, of any queue.

        Empty when none came within `timeout`. With `auto_commit` all that was handed out before is now done.
        """
        self._check_running()
        if max is not None and max < 1:
            raise ConfigError(f"cannot poll {max} messages")
        reading = self._reading
        if self._auto_commit and reading.moved:
            self._note_progress(reading.moved)
            reading.moved.clear()
        if not reading.buffer and timeout > 0:
            await reading.buffer.wait(timeout)
            self._check_running()
        return [message for queue, batch in reading.take(max) for message in self._received(queue, batch)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        """The next messages, however long it takes. Ends when the consumer is closed."""
        while True:
            try:
                if messages := await self.poll():
                    return messages
            except StateError:
                if self._state is _State.CLOSED:
                    raise StopAsyncIteration from None
                raise

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max: int = 32,  # noqa: A002
        *,
        expr: str | Sql = ALL,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Pulled:
        """One pull of any queue, assigned or not, buffered nowhere: where to go on is the caller's business.

        With `wait` the broker waits for a message if there is none, up to `broker_wait` seconds.
        """
        self._check_running()
        if offset < 0 or max < 1:
            raise ConfigError(f"cannot pull {max} messages from offset {offset}")
        settings = self._settings
        default_timeout = settings.suspend_timeout if wait else _PULL_TIMEOUT
        wire = self._wire(queue)
        result = await pull_once(
            self._client,
            self._group,
            wire,
            subscription_data(wire.topic, expr, _now_ms()),
            offset,
            max,
            suspend=settings.suspend if wait else 0.0,
            timeout=default_timeout if timeout is None else timeout,
        )
        return self._pulled(wire, result)

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the group get `message` once more, from its retry topic; with -1 put it among the dead letters."""
        self._check_running()
        queue = self._wire(message.queue)
        header = ConsumerSendMessageBack(
            offset=message.commit_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.id,
            origin_topic=queue.topic,
            max_reconsume_times=_MAX_RECONSUME_TIMES,
        )
        address = await self._client.routes.master_or_refresh(queue)
        await self._client.calls.send_back(address, header, _SEND_BACK_TIMEOUT)

    # Where to read

    async def seek(self, queue: MessageQueue, to: int | StartAt | datetime) -> None:
        """Go on at an offset, at the first or the end of what there is, or at the first message since a time.

        What was pulled and not polled is forgotten. Raises OffsetOutOfRange for an offset outside of the queue.
        """
        reader = self._reader(queue)
        if isinstance(to, int):
            first, end = await self.bounds(queue)
            if not first <= to <= end:
                raise OffsetOutOfRange(f"{queue} has offsets {first} to {end}, not {to}")
            offset = to
        else:
            offset = await find_offset(self._client, reader.queue, to)
        if self._reading.readers.get(reader.queue) is not reader:
            raise StateError(f"{queue} was given up while its offset was looked for")
        self._reading.go_on_at(reader, offset)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message of `queue` to be handed out; None while that is not known."""
        return self._reader(queue).position

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The offset of the first message that `queue` has, and that of the next it will have."""
        self._check_running()
        wire = self._wire(queue)
        address = await self._client.routes.master_or_refresh(wire)
        calls = self._client.calls
        return await calls.min_offset(address, wire), await calls.max_offset(address, wire)

    def pause(self, *queues: MessageQueue) -> None:
        """Pull no more of these queues, or of all that are assigned now; what was pulled is still handed out."""
        for reader in self._readers_of(queues):
            reader.pause()

    def resume(self, *queues: MessageQueue) -> None:
        """Pull again."""
        for reader in self._readers_of(queues):
            reader.resume()

    # How far the group is

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None, wait: bool = True) -> None:
        """Everything handed out is done; or of each queue in `offsets` everything before that offset.

        Stored once this returns; raises why it could not be, and some of the queues may then be committed. With
        `wait=False` it only takes note, and the brokers are told within `commit_interval`.
        """
        self._check_running()
        if offsets is None:
            wanted = self._reading.positions()
            self._reading.moved.clear()
        else:
            wanted = {self._wire(queue): offset for queue, offset in offsets.items()}
        self._check_committable(wanted)
        self._committed_by_hand.update(wanted.keys() - self._reading.readers.keys())
        self._note_progress(wanted)
        if wait:
            outcomes = await asyncio.gather(
                *(self._store.persist(queue, wait=True) for queue in wanted), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def committed(self, queue: MessageQueue) -> int | None:
        """What the group has committed of `queue`; None if it never did. Raises if that cannot be found out.

        Of a queue that still has its first message a broker may also say 0 when the group never did, see StartAt.
        """
        self._check_running()
        return await self._store.read(self._wire(queue), ReadFrom.MEMORY_FIRST)

    # What the client asks of its members

    def topics(self) -> Collection[str]:
        return self._subscriptions.keys() | self._watch.topics

    def route_changed(self, topic: str) -> None:
        self.wake_rebalance()

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.BROADCASTING if self._broadcast else MessageModel.CLUSTERING,
            consume_from_where=consume_from_where(self._start_at),
            # Who assigns queues by hand takes no part in what the others of the group subscribe.
            subscription_data_set=[] if self._mode is _Mode.ASSIGN else list(self._subscriptions.values()),
            unit_mode=bool(self._client.unit_name),
        )

    def wake_rebalance(self) -> None:
        if self._rebalances is not None:
            self._rebalances.wake()

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        if self._state is _State.RUNNING:
            self._tasks.once(self._reset(offsets), f"reset {topic}")

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._store.memory(topic) | self._reading.positions(topic)

    def running_info(self, jstack: bool) -> ConsumerRunningInfo:
        epoch = time.time() - time.monotonic()
        committed = {queue: offset for topic in self.topics() for queue, offset in self._store.memory(topic).items()}
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(self._client.name_servers.addresses),
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
                "PROP_CLIENT_VERSION": version_name(PROTOCOL_VERSION),
                "PROP_CONSUMEORDERLY": "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(int(self._started_at * 1000)),
            },
            subscription_set=list(self._subscriptions.values()),
            mq_table={
                queue: reader.process_queue.info(committed.get(queue, 0), epoch)
                for queue, reader in self._reading.readers.items()
            },
        )

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        raise ServerError(f"{self.group} is a pull consumer and has no handler")

    # Inside: starting and stopping

    def _new_store(self) -> OffsetStore:
        if self._broadcast:
            return LocalOffsetStore.of(self._client.client_id, self._group)
        return BrokerOffsetStore(self._client, self._group, strict=is_strict(self._start_at))

    def _new_reading(self) -> Reading:
        return Reading(
            self._client,
            self._group,
            self._tasks,
            self._settings,
            self._max_buffered,
            subscription=lambda topic: self._subscriptions.get(topic),
            start=self._start_offset,
        )

    def _new_rebalancer(self) -> Rebalancer:
        return Rebalancer(
            self._client,
            self._group,
            self._strategy,
            self._store,
            topics=lambda: self._subscriptions.keys(),
            start=self._start_offset,
            added=self._reading.add,
            removed=self._reading.remove,
            renew=self._renew,
            broadcast=self._broadcast,
            watch_pulls=False,
        )

    def _start_tasks(self) -> None:
        if self._mode is _Mode.SUBSCRIBE:
            self._start_rebalancing()
        elif self._mode is _Mode.ASSIGN:
            self._read_assigned()
        self._tasks.every("commit", min(_FIRST_COMMIT, self._commit_interval), self._commit_interval, self._persist)
        first = min(_FIRST_METADATA, self._metadata_interval)
        self._tasks.every("topic metadata", first, self._metadata_interval, self._watch.look)

    async def _stop(self) -> None:
        self._rebalances = None
        self._reading.clear()
        self._rebalancer.owned.clear()
        try:
            await self._tasks.close()
        finally:
            await self._client.leave(self)

    async def _prepare_topic(self, topic: str) -> None:
        """Find out where a topic is, and whether its brokers understand what is asked of them."""
        try:
            await self._client.routes.find(topic)
        except RouteNotFound as exc:
            logger.warning("%s: %s", self.group, exc)
            return
        subscription = self._subscriptions.get(topic)
        if subscription is not None and subscription.expression_type == SQL92:
            for name in self._client.routes.brokers_of(topic):
                if (address := self._client.routes.master(name)) is not None:
                    calls = self._client.calls
                    await calls.check_subscription(address, self._client.client_id, self._group, subscription)
                    return

    async def _subscribed(self, topic: str) -> None:
        try:
            await self._prepare_topic(topic)
        except PyroMQError as exc:
            logger.warning("%s: %s", self.group, exc)
        await self._client.heartbeat()
        if self._rebalances is None:
            self._start_rebalancing()
        self.wake_rebalance()

    def _start_rebalancing(self) -> None:
        # Soon, even after a round at the start: who joined the group during that was not heard.
        rebalancer = self._rebalancer
        self._rebalances = self._tasks.every("rebalance", SOON, rebalancer.period, rebalancer.run_once)

    # Inside: queues

    def _read_assigned(self) -> None:
        wanted = frozenset(self._assigned)
        readers = self._reading.readers
        for queue, reader in tuple(readers.items()):
            if queue not in wanted:
                self._reading.remove(queue, reader.process_queue)
                self._tasks.once(self._forget(queue), f"forget {queue}")
        for queue in self._assigned:
            if queue not in readers:
                self._reading.add(queue, ProcessQueue(time.monotonic()), None)

    async def _forget(self, queue: MessageQueue) -> None:
        try:
            await self._store.persist(queue)
        except (PyroMQError, OSError) as exc:
            logger.warning("%s: progress at %s not committed: %s", self.group, queue, exc)
        if queue not in self._reading.readers:
            self._store.remove(queue)

    async def _start_offset(self, queue: MessageQueue) -> int | None:
        return await start_offset(self._client, self._group, queue, self._start_at, self._store)

    def _renew(self, topic: str) -> None:
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            self._subscriptions[topic] = msgspec.structs.replace(subscription, sub_version=_now_ms())

    async def _reset(self, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            reader = self._reading.readers.get(queue)
            if reader is not None:
                self._reading.go_on_at(reader, offset)
                self._store.update(queue, offset)
                await self._store.persist(queue)

    # Inside: progress

    def _note_progress(self, offsets: Mapping[MessageQueue, int]) -> None:
        """These are to be committed, by whoever tells the brokers next."""
        for queue, offset in offsets.items():
            self._store.update(queue, offset)

    async def _persist(self) -> None:
        await self._store.persist_all(self._owned())

    def _owned(self) -> set[MessageQueue]:
        return self._reading.readers.keys() | self._committed_by_hand

    def _check_committable(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if offset < 0:
                raise ConfigError(f"cannot commit offset {offset} of {queue}")
            if self._mode is _Mode.SUBSCRIBE and queue not in self._reading.readers:
                raise StateError(f"{queue} is not assigned to this member; another one may be reading it")

    # Inside: small things

    def _enter(self, mode: _Mode) -> None:
        if self._state is _State.CLOSED:
            raise StateError(f"pull consumer {self.group} is closed")
        if self._mode not in (mode, _Mode.NONE):
            raise StateError(f"pull consumer {self.group} is in {self._mode.value} mode and cannot also {mode.value}")
        self._mode = mode

    def _check_running(self) -> None:
        if self._state is not _State.RUNNING:
            raise StateError(f"pull consumer {self.group} is {self._state.value}")
        self._client.check_open()

    def _reader(self, queue: MessageQueue) -> QueueReader:
        self._check_running()
        reader = self._reading.readers.get(self._wire(queue))
        if reader is None:
            raise StateError(f"{queue} is not assigned to this consumer")
        return reader

    def _readers_of(self, queues: Sequence[MessageQueue]) -> list[QueueReader]:
        self._check_running()
        return [self._reader(queue) for queue in queues] if queues else list(self._reading.readers.values())

    def _received(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> list[ReceivedMessage]:
        bare = self._bare(queue)
        if is_retry_topic(queue.topic):
            unwrap = self._client.namespace.unwrap
            return [ReceivedMessage(message, unwrap(message.real_topic), bare) for message in messages]
        return [ReceivedMessage(message, bare.topic, bare) for message in messages]

    def _pulled(self, queue: MessageQueue, result: PullResult) -> Pulled:
        messages = self._received(queue, result.messages)
        return Pulled(result.status, result.next_offset, result.min_offset, result.max_offset, messages)

    def _wrap(self, topic: str) -> str:
        return self._client.namespace.wrap(topic)

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        topic = self._client.namespace.wrap(queue.topic)
        return queue if topic == queue.topic else msgspec.structs.replace(queue, topic=topic)

    def _bare(self, queue: MessageQueue) -> MessageQueue:
        topic = self._client.namespace.unwrap(queue.topic)
        return queue if topic == queue.topic else msgspec.structs.replace(queue, topic=topic)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}, not within {low} and {high}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
