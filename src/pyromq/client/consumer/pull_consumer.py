"""PullConsumer: you ask for messages when you want them, and decide how far the group is.

    async with PullConsumer("billing", {"orders": "*"}, namesrv="localhost:9876") as consumer:
        async for batch in consumer:
            handle(batch)

A batch counts as done when you ask for the next one, and is committed soon after; a program that dies before gets it
again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Self

import msgspec

from pyromq.errors import ConfigError, OffsetOutOfRange, StateError
from pyromq.protocol.headers import ConsumerSendMessageBack
from pyromq.protocol.names import is_retry_topic

from ..client import Client
from ..identity import DEFAULT_INSTANCE
from ..names import check_topic
from .allocation import Averagely
from .consumer_settings import PullSettings
from .offset_store import ReadFrom
from .poll_reader import pull_once
from .pull_member import PullMember
from .received_message import ReceivedMessage
from .send_back import CONCURRENT_RETRIES
from .start_offset import StartAt, find_offset
from .subscriptions import ALL, Sql, subscription_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from .allocation import Strategy
    from .offset_store import OffsetStore
    from .poll_reader import PollReader
    from .pull_result import PullResult, PullStatus
    from .topic_watch import QueuesListener

_PULL_TIMEOUT = 10.0
_SEND_BACK_TIMEOUT = 3.0


class _State(Enum):
    CREATED = "not started"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of one `pull`. Continue at `next_offset`; the queue has `min_offset` to `max_offset`."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


class PullConsumer:
    """Reads its share of the group's queues (`subscribe`), or the queues you name (`assign`).

    Polling, committing and seeking are for one task at a time: with `auto_commit`, asking for the next batch means
    that the one before is done. `start_at` applies to queues the group never committed. Times are in seconds.

    Without `auto_commit` only `commit` commits. `commit_interval` is how often background commits go to the brokers.
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
        settings = PullSettings(
            group=group,
            broadcast=broadcast,
            start_at=start_at,
            allocate=allocate or Averagely(),
            pull_batch=pull_batch,
            broker_wait=broker_wait,
            max_buffered=max_buffered,
            max_cached=max_cached,
            max_cached_mib=max_cached_mib,
            max_span=max_span,
            auto_commit=auto_commit,
            commit_interval=commit_interval,
            metadata_interval=metadata_interval,
            offset_store=offset_store,
        )
        # A broadcasting member's offset folder is named after its client id, which therefore must not change.
        instance_name = DEFAULT_INSTANCE if broadcast else None
        self.group = group
        self._client = client or Client(namesrv, stream=True, instance_name=instance_name)
        self._settings = settings
        self._state = _State.CREATED
        self._member = PullMember(self._client, settings, self._bare)
        for topic, expr in (topics or {}).items():
            self.subscribe(topic, expr)

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group} {self._state.value}>"

    # Life

    async def start(self) -> Self:
        """Start reading. If that fails, it raises the reason and undoes everything.

        A topic need not exist yet: it is read as soon as it does.
        """
        if self._state is not _State.CREATED:
            raise StateError(f"pull consumer {self.group} is {self._state.value}")
        await self._member.start()
        try:
            self._check_open()  # `close` may have been called meanwhile
        except StateError:
            await self._member.close()
            raise
        self._state = _State.RUNNING
        return self

    async def close(self) -> None:
        """Stop reading, commit pending offsets, unregister. Always ends; the last batch does not count as done.

        Call `commit` first if it should.
        """
        if self._state is not _State.RUNNING:
            self._state = _State.CLOSED
            return
        self._state = _State.CLOSED
        self._member.queues.buffer.wake()
        await self._member.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # What to read

    def subscribe(self, topic: str, expr: str | Sql = ALL) -> None:
        """Share the queues of `topic` with the other members of the group; call it again to change the expression.

        All members must subscribe alike: a broker keeps only the last subscription it heard of.
        """
        self._check_open()
        check_topic(topic)
        self._member.subscribe(self._wrap(topic), expr)

    def unsubscribe(self, topic: str) -> None:
        """Stop reading `topic`; its progress is committed."""
        self._member.unsubscribe(self._wrap(topic))

    def assign(self, queues: Iterable[MessageQueue], filters: Mapping[str, str | Sql] | None = None) -> None:
        """Read exactly these queues, whatever other members of the group read; call it again to read others.

        `filters` selects messages by topic; the default is all. Queues that stay keep their positions.
        """
        self._check_open()
        expressions = {self._wrap(topic): expr for topic, expr in (filters or {}).items()}
        self._member.assign(map(self._wire, queues), expressions)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues being read now."""
        if self._state is not _State.RUNNING:
            return frozenset()
        return frozenset(map(self._bare, self._member.queues.readers))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`, whoever reads them. Raises RouteNotFound if it does not exist."""
        self._check_running()
        return [self._bare(queue) for queue in await self._client.routes.subscribe_queues(self._wrap(topic))]

    def watch(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener(topic, queues)`, plain or async, when the queues of `topic` change.

        It is also called once with the current ones. Checked every `metadata_interval` seconds; useful with `assign`,
        to hear of new queues.
        """
        check_topic(topic)
        self._member.watch.add(self._wrap(topic), listener)

    # Messages

    async def poll(self, max: int | None = None, timeout: float = 5.0) -> list[ReceivedMessage]:  # noqa: A002
        """The next messages, in order within each queue: one pull's batch, or up to `max` from any queue.

        Empty if none came within `timeout`. With `auto_commit`, everything handed out before now counts as done.
        """
        self._check_running()
        if max is not None and max < 1:
            raise ConfigError(f"cannot poll {max} messages")
        queues = self._member.queues
        if self._settings.auto_commit and queues.moved:
            self._member.note_progress(queues.moved)
            queues.moved.clear()
        if not queues.buffer and timeout > 0:
            await queues.buffer.wait(timeout)
            self._check_running()
        return [message for queue, batch in queues.take(max) for message in self._received(queue, batch)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        """Wait for the next messages, however long it takes. Ends when the consumer is closed."""
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
        """Pull once from any queue, assigned or not, without buffering: the caller keeps track of the offset.

        With `wait` the broker waits for a message if there is none, up to `broker_wait` seconds.
        """
        self._check_running()
        if offset < 0 or max < 1:
            raise ConfigError(f"cannot pull {max} messages from offset {offset}")
        settings = self._settings.reads
        default_timeout = settings.suspend_timeout if wait else _PULL_TIMEOUT
        wire = self._wire(queue)
        result = await pull_once(
            self._client,
            self._member.group,
            wire,
            subscription_data(wire.topic, expr, _now_ms()),
            offset,
            max,
            suspend=settings.suspend if wait else 0.0,
            timeout=default_timeout if timeout is None else timeout,
        )
        return self._pulled(wire, result)

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Deliver `message` to the group again, through its retry topic; -1 makes it a dead letter."""
        self._check_running()
        queue = self._wire(message.queue)
        header = ConsumerSendMessageBack(
            offset=message.commit_offset,
            group=self._member.group,
            delay_level=delay_level,
            origin_msg_id=message.id,
            origin_topic=queue.topic,
            max_reconsume_times=CONCURRENT_RETRIES,
        )
        address = await self._client.routes.master_or_refresh(queue)
        await self._client.calls.send_back(address, header, _SEND_BACK_TIMEOUT)

    # Where to read

    async def seek(self, queue: MessageQueue, to: int | StartAt | datetime) -> None:
        """Continue at an offset, at the beginning or end of the queue, or at the first message since a time.

        Messages pulled but not polled are dropped. Raises OffsetOutOfRange for an offset outside the queue.
        """
        reader = self._reader(queue)
        if isinstance(to, int):
            first, end = await self.bounds(queue)
            if not first <= to <= end:
                raise OffsetOutOfRange(f"{queue} has offsets {first} to {end}, not {to}")
            offset = to
        else:
            offset = await find_offset(self._client, reader.queue, to)
        if self._member.queues.readers.get(reader.queue) is not reader:
            raise StateError(f"{queue} was unassigned while its offset was being looked up")
        self._member.queues.go_on_at(reader, offset)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message of `queue` to hand out; None while unknown."""
        return self._reader(queue).position

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The offset of the first message in `queue`, and the one after the last."""
        self._check_running()
        wire = self._wire(queue)
        address = await self._client.routes.master_or_refresh(wire)
        calls = self._client.calls
        return await calls.min_offset(address, wire), await calls.max_offset(address, wire)

    def pause(self, *queues: MessageQueue) -> None:
        """Stop pulling these queues, or all assigned now; messages already pulled are still handed out."""
        for reader in self._readers_of(queues):
            reader.pause()

    def resume(self, *queues: MessageQueue) -> None:
        """Pull again."""
        for reader in self._readers_of(queues):
            reader.resume()

    # How far the group is

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None, wait: bool = True) -> None:
        """Commit everything handed out; or, for each queue in `offsets`, everything before that offset.

        It is stored when this returns; if it raises, some queues may be committed. With `wait=False` it returns at
        once, and the brokers are told within `commit_interval`.
        """
        self._check_running()
        if offsets is None:
            wanted = self._member.queues.positions()
            self._member.queues.moved.clear()
        else:
            wanted = {self._wire(queue): offset for queue, offset in offsets.items()}
        self._member.note_commit(wanted)
        if wait:
            outcomes = await asyncio.gather(
                *(self._member.offsets.persist(queue, wait=True) for queue in wanted), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset the group committed for `queue`; None if it never did. Raises if the broker cannot be asked.

        For a queue that still has its first message, a broker may answer 0 instead of None, see StartAt.
        """
        self._check_running()
        return await self._member.offsets.read(self._wire(queue), ReadFrom.MEMORY_FIRST)

    # Inside

    def _check_open(self) -> None:
        if self._state is _State.CLOSED:
            raise StateError(f"pull consumer {self.group} is closed")

    def _check_running(self) -> None:
        if self._state is not _State.RUNNING:
            raise StateError(f"pull consumer {self.group} is {self._state.value}")
        self._client.check_open()

    def _reader(self, queue: MessageQueue) -> PollReader:
        self._check_running()
        reader = self._member.queues.readers.get(self._wire(queue))
        if reader is None:
            raise StateError(f"{queue} is not assigned to this consumer")
        return reader

    def _readers_of(self, queues: Sequence[MessageQueue]) -> list[PollReader]:
        self._check_running()
        return [self._reader(queue) for queue in queues] if queues else list(self._member.queues.readers.values())

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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
