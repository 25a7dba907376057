"""Producers and a consumer that remember: what brokers acknowledged, what became of transactions, what was consumed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from tests.chaos.server import NAME

from pyromq.client import (
    AdminClient,
    Client,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    SendStatus,
    StartAt,
    TransactionProducer,
    TxState,
)
from pyromq.errors import PyroMQError
from pyromq.protocol.ids import decode_host, decode_offset_message_id
from pyromq.remoting.addresses import join_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from random import Random

    from pyromq.client import ReceivedMessage, SendResult

PLAIN, DELAYED, PAID = "plain", "delayed", "paid"
TOPICS = (PLAIN, DELAYED, PAID)
QUEUES = 4


class Place(NamedTuple):
    topic: str
    queue_id: int
    offset: int


class Acknowledged(NamedTuple):
    """A message that a broker answered with 0."""

    topic: str  # that it was sent to
    queue_id: int
    offset: int  # in its queue; of delayed and half messages in the queue where they wait
    body: bytes
    broker: str  # the address of the broker that took it
    log_offset: int


@dataclass(slots=True)
class Records:
    """What clients were told over the whole life of a group."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    decided: dict[bytes, TxState] = field(default_factory=dict)  # about transactions, by body
    prepared: set[bytes] = field(default_factory=set)  # those whose half message was acknowledged
    consumed: dict[Place, bytes] = field(default_factory=dict)
    bodies: dict[str, set[bytes]] = field(default_factory=lambda: {topic: set() for topic in TOPICS})
    changed: list[str] = field(default_factory=list)  # where a consumer saw two different messages in one place
    errors: int = 0

    def missing(self) -> list[bytes]:
        """What should have been consumed and was not yet."""
        plain = [each.body for each in self.acknowledged if each.body not in self.bodies[each.topic]]
        return [body for body in plain if self.decided.get(body) is not TxState.ROLLBACK]

    def add(self, body: bytes, result: SendResult) -> bool:
        if result.status is not SendStatus.SEND_OK:
            self.errors += 1
            return False
        place = decode_offset_message_id(result.offset_id)
        broker = join_address(*decode_host(place.store_host))
        queue = result.queue
        self.acknowledged.append(
            Acknowledged(queue.topic, queue.queue_id, result.offset, body, broker, place.physical_offset)
        )
        return True

    def save(self, path: Path) -> None:
        """Write down what clients were told, for whoever looks for the cause of a violation."""
        told = [repr(each) for each in (*self.acknowledged, *self.consumed.items(), *self.decided.items())]
        path.write_text("\n".join(told))

    async def consume(self, message: ReceivedMessage) -> None:
        record = message.raw.record
        place = Place(message.topic, record.queue_id, record.queue_offset)
        before = self.consumed.setdefault(place, message.body)
        if before != message.body:
            self.changed.append(f"{place} was {before!r} and became {message.body!r}")
        self.bodies[message.topic].add(message.body)

    async def outcome(self, message: ReceivedMessage) -> TxState:
        return self.decided.get(message.body, TxState.UNKNOWN)


class Load:
    """Sends at a low rate: one task per queue, one for delayed messages, one for transactions."""

    def __init__(self, records: Records, producer: Producer, payer: TransactionProducer) -> None:
        self.records = records
        self._producer = producer
        self._payer = payer

    async def run(self, prefix: str, chance: Random, ended: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            for queue_id in range(QUEUES):
                tasks.create_task(self._send(f"{prefix}-{queue_id}", queue_id, chance, ended))
            tasks.create_task(self._delay(f"{prefix}-later", chance, ended))
            tasks.create_task(self._pay(f"{prefix}-paid", chance, ended))

    async def _send(self, prefix: str, queue_id: int, chance: Random, ended: asyncio.Event) -> None:
        queue = MessageQueue(broker_name=NAME, queue_id=queue_id, topic=PLAIN)
        number = 0
        while not ended.is_set():
            number += 1
            body = f"{prefix}-{number}-".encode() + b"x" * chance.randrange(600)
            try:
                self.records.add(body, await self._producer.send(Message(PLAIN, body), queue=queue))
            except PyroMQError:
                self.records.errors += 1
            await _pause(ended, chance.uniform(0.0, 0.06))

    async def _delay(self, prefix: str, chance: Random, ended: asyncio.Event) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            body = f"{prefix}-{number}".encode()
            message = Message(DELAYED, body, delay_level=1)
            if chance.random() < 0.5:
                message = Message(DELAYED, body, delay=timedelta(seconds=chance.choice((1, 2))))
            try:
                self.records.add(body, await self._producer.send(message))
            except PyroMQError:
                self.records.errors += 1
            await _pause(ended, chance.uniform(0.1, 0.4))

    async def _pay(self, prefix: str, chance: Random, ended: asyncio.Event) -> None:
        records = self.records
        number = 0
        while not ended.is_set():
            number += 1
            body = f"{prefix}-{number}".encode()
            records.decided[body] = chance.choice((TxState.COMMIT, TxState.ROLLBACK))
            says = TxState.UNKNOWN if chance.random() < 0.3 else records.decided[body]  # its end gets lost

            async def execute(half: object, says: TxState = says) -> TxState:
                return says

            try:
                result = await self._payer.send_in_transaction(Message(PAID, body), execute)
                if records.add(body, result):
                    records.prepared.add(body)
                else:
                    # The producer has rolled it back.
                    records.decided[body] = TxState.ROLLBACK
            except PyroMQError:
                records.errors += 1
            await _pause(ended, chance.uniform(0.1, 0.4))


async def _pause(ended: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ended.wait()


@contextlib.asynccontextmanager
async def running_load(namesrv: str) -> AsyncIterator[Load]:
    records = Records()

    def client(name: str) -> Client:
        return Client(
            namesrv,
            instance_name=name,
            api_timeout=2.0,
            route_interval=0.5,
            heartbeat_interval=1.0,
            offset_interval=0.5,
        )

    async with AdminClient(namesrv) as admin:
        for topic in TOPICS:
            await _made(admin, topic)
    consumer = Consumer(
        "readers", client=client("consumer"), start_at=StartAt.FIRST, on_error=lambda *_: None, drain=1.0
    )
    for topic in TOPICS:
        consumer.subscribe(topic, "*", records.consume)
    shared = client("producer")
    async with (
        Producer("senders", client=shared, attempt_timeout=1.0) as producer,
        TransactionProducer("payers", client=shared, check=records.outcome, attempt_timeout=1.0) as payer,
        consumer,
    ):
        yield Load(records, producer, payer)


async def _made(admin: AdminClient, topic: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await admin.topics.create(topic, write_queues=QUEUES, read_queues=QUEUES)
            except PyroMQError:
                await asyncio.sleep(0.1)
            else:
                return
