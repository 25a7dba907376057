"""Clients of a broker that is killed: producers that remember what was acknowledged, consumers that commit offsets."""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import ConnectionLost, broker_error
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchItem, encode_batch
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    CreateTopic,
    OffsetReply,
    PullMessage,
    QueryConsumerOffset,
    SendMessageReply,
    SendMessageV2,
    UpdateConsumerOffset,
)
from pyromq.protocol.record import decode_records
from pyromq.remoting import RemotingClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from random import Random

    from pyromq.protocol.header import Header
    from pyromq.protocol.record import MessageRecord

TOPIC, LATER, GROUP = "orders", "later", "readers"
QUEUES = 4
PATIENCE = 20.0
WINDOW = 8  # requests that each producer has under way
MAX_MESSAGES = 4000  # of one round, so that reading them back takes a moment only

SUSPEND, SUBSCRIPTION = 2, 4  # of a pull


class Lost(AssertionError):
    """The broker broke its promise."""


class ReadBack(NamedTuple):
    """What was looked for: how many there had to be, and which of them were not there."""

    required: int
    missing: Collection[object]


@dataclass(slots=True)
class Promises:
    """What the broker said, over all of its lives."""

    stored: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by queue and offset, of TOPIC
    delayed: set[bytes] = field(default_factory=set)  # bodies that are to come to LATER
    # Of each queue: when an offset was acknowledged (monotonic), and the highest that was ever asked for.
    commits: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    asked_commits: dict[int, int] = field(default_factory=dict)

    def acknowledge(self, queue_id: int, offset: int, body: bytes) -> None:
        before = self.stored.setdefault((queue_id, offset), body)
        if before != body:
            raise Lost(f"two messages were acknowledged at {queue_id}/{offset}: {before[:30]!r} and {body[:30]!r}")

    def required_commit(self, queue_id: int, before: float) -> int:
        """The offset that a queue must have, by all that was acknowledged until `before`."""
        return max((offset for when, offset in self.commits.get(queue_id, []) if when <= before), default=0)


def body_of(name: str, random: Random) -> bytes:
    """A body that tells by itself whether it is whole."""
    content = name.encode() + b":" + random.randbytes(int(4096 ** random.random()))
    return zlib.crc32(content).to_bytes(4, "big") + content


def is_whole(body: bytes) -> bool:
    return zlib.crc32(body[4:]) == int.from_bytes(body[:4], "big")


class Load(RemotingClient):
    """All clients of one broker, over one connection each way."""

    def __init__(self, address: str, promises: Promises, random: Random, prefix: str) -> None:
        super().__init__()
        self.address = address
        self.promises = promises
        self.acknowledged = 0
        self._random = random
        self._prefix = prefix
        self._count = 0

    async def ask(self, code: int, header: Header, body: bytes | None = None) -> Command:
        reply = await self.invoke(self.address, Command.request(code, header, body), PATIENCE)
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        return reply

    async def create_topics(self) -> None:
        for topic in (TOPIC, LATER):
            header = CreateTopic(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=QUEUES,
                write_queue_nums=QUEUES,
                perm=6,
                topic_filter_type="SINGLE_TAG",
                order=False,
            )
            await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def run_until_killed(self) -> None:
        """Work until the broker is gone. Whatever else goes wrong is raised."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WINDOW):
                tasks.create_task(self._produce())
                tasks.create_task(self._produce_batches())
            tasks.create_task(self._produce_delayed())
            for queue_id in range(QUEUES):
                tasks.create_task(self._consume(queue_id))

    def _body(self) -> bytes:
        self._count += 1
        return body_of(f"{self._prefix}-{self._count}", self._random)

    # Producers

    async def _send(self, topic: str, queue_id: int, code: int, body: bytes, **fields: object) -> SendMessageReply:
        header = SendMessageV2("producers", topic, "TBW102", 4, queue_id, 0, 1, 0, **fields)  # type: ignore[arg-type]
        return (await self.ask(code, header, body)).header(SendMessageReply)

    async def _produce(self) -> None:
        try:
            while self.acknowledged < MAX_MESSAGES:
                queue_id, body = self._random.randrange(QUEUES), self._body()
                reply = await self._send(TOPIC, queue_id, RequestCode.SEND_MESSAGE_V2, body)
                self.promises.acknowledge(queue_id, reply.queue_offset, body)
                self.acknowledged += 1
        except ConnectionLost:
            return

    async def _produce_batches(self) -> None:
        try:
            while self.acknowledged < MAX_MESSAGES:
                queue_id, bodies = self._random.randrange(QUEUES), [self._body() for _ in range(5)]
                batch = encode_batch([BatchItem(body) for body in bodies])
                reply = await self._send(TOPIC, queue_id, RequestCode.SEND_BATCH_MESSAGE, batch, batch=True)
                for number, body in enumerate(bodies):
                    self.promises.acknowledge(queue_id, reply.queue_offset + number, body)
                self.acknowledged += len(bodies)
        except ConnectionLost:
            return

    async def _produce_delayed(self) -> None:
        delay = props.render({props.DELAY: "1"})
        try:
            while True:
                body = self._body()
                await self._send(LATER, 0, RequestCode.SEND_MESSAGE_V2, body, properties=delay)
                self.promises.delayed.add(body)
                await asyncio.sleep(0.01)
        except ConnectionLost:
            return

    # Consumers

    async def committed(self, queue_id: int) -> int:
        header = QueryConsumerOffset(GROUP, TOPIC, queue_id)
        return (await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)).header(OffsetReply).offset

    async def pull(self, topic: str, queue_id: int, offset: int, wait: int = 0) -> tuple[list[MessageRecord], int]:
        """The messages from `offset` on, and the offset behind them."""
        flag = SUBSCRIPTION | SUSPEND if wait else SUBSCRIPTION
        header = PullMessage(GROUP, topic, queue_id, offset, 32, flag, 0, wait, 0, subscription="*")
        reply = await self.invoke(self.address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE)
        if reply.ext is None or reply.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND):
            raise Lost(f"pull of {topic}/{queue_id} at {offset}: code {reply.code} {reply.remark} {reply.ext}")
        return list(decode_records(reply.body_bytes)), int(reply.ext["nextBeginOffset"])

    async def _consume(self, queue_id: int) -> None:
        promises = self.promises
        try:
            offset = await self.committed(queue_id)
            while True:
                messages, following = await self.pull(TOPIC, queue_id, offset, wait=15_000)
                for number, message in enumerate(messages):
                    self._check(message, queue_id, offset + number)
                if following == offset:
                    continue
                offset = following
                promises.asked_commits[queue_id] = max(offset, promises.asked_commits.get(queue_id, 0))
                header = UpdateConsumerOffset(GROUP, TOPIC, queue_id, offset)
                await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
                promises.commits.setdefault(queue_id, []).append((time.monotonic(), offset))
        except ConnectionLost:
            return

    def _check(self, message: MessageRecord, queue_id: int, offset: int) -> None:
        place = (message.queue_id, message.queue_offset)
        if place != (queue_id, offset):
            raise Lost(f"asked for {queue_id}/{offset}, got {place}")
        if not is_whole(message.body):
            raise Lost(f"half a message at {place}: {message.body[:40]!r}")
        if self.promises.stored.get(place, message.body) != message.body:
            raise Lost(f"another message than the acknowledged one at {place}: {message.body[:40]!r}")

    # Looking back

    async def all_messages(self, topic: str, queue_id: int) -> AsyncIterator[MessageRecord]:
        offset = 0
        while True:
            messages, following = await self.pull(topic, queue_id, offset)
            for message in messages:
                yield message
            if following == offset:
                return
            offset = following

    async def verify(self, killed: float | None, oldest: float) -> ReadBack:
        """Look for everything that was acknowledged; offsets are no older than `oldest` seconds before the end.

        `killed` is when the broker was killed, None if it stopped in order.
        """
        missing = set(self.promises.stored)
        for queue_id in range(QUEUES):
            expected = 0
            async for message in self.all_messages(TOPIC, queue_id):
                self._check(message, queue_id, expected)
                missing.discard((queue_id, expected))
                expected += 1
            committed = await self.committed(queue_id)
            before = time.monotonic() if killed is None else killed - oldest
            required = self.promises.required_commit(queue_id, before)
            highest = self.promises.asked_commits.get(queue_id, 0)
            if not required <= committed <= highest:
                raise Lost(f"group is at {committed} in queue {queue_id}, not between {required} and {highest}")
            # From now on this is what it is.
            self.promises.commits[queue_id] = [(0.0, committed)]
            self.promises.asked_commits[queue_id] = committed
        return ReadBack(len(self.promises.stored), sorted(missing))

    async def wait_for_delayed(self) -> ReadBack:
        """Wait until all delayed messages have come, each at least once, or nobody would wait any longer."""
        missing = self.promises.delayed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while missing:
                    missing = self.promises.delayed - {message.body async for message in self.all_messages(LATER, 0)}
                    await asyncio.sleep(0.1 if missing else 0)
        return ReadBack(len(self.promises.delayed), missing)
