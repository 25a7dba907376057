"""What one test of our consumers works with at an Apache broker: a topic, a group, and someone to send and to look."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tests.interop.apache_with_client import Apache, committed
from tests.interop.received_by_us import Inbox, consumer_of, eventually, queues_of

from pyromq.client import (
    AdminClient,
    Hook,
    Message,
    Producer,
)
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyromq.client import Consumer, MessageQueue, ReceivedMessage
    from pyromq.protocol.command import Command


class Scene:
    """What one test works with: a topic and a group of its own at a broker, and someone to send and to look."""

    def __init__(self, apache: Apache, topic: str, producer: Producer, admin: AdminClient) -> None:
        self.apache = apache
        self.topic = topic
        self.group = f"g-{topic}"
        self.producer = producer
        self.admin = admin

    def consumer(self, handler: Any = None, **settings: Any) -> Consumer:
        if "client" not in settings:
            settings["client"] = self.apache.client()
        return consumer_of(self.group, self.topic, handler, **settings)

    def queue(self, queue_id: int = 0) -> MessageQueue:
        return self.apache.queue(self.topic, queue_id)

    async def send(self, *bodies: str, queue_id: int = 0, **fields: Any) -> None:
        for body in bodies:
            await self.producer.send(Message(self.topic, body.encode(), **fields), queue=self.queue(queue_id))

    async def send_numbers(self, count: int, queues: int = 1) -> set[str]:
        """Send 0, 1, … to the queues in turn; gives the bodies."""
        for number in range(count):
            await self.send(str(number), queue_id=number % queues)
        return set(map(str, range(count)))

    async def commits(self, offset: int, queue_id: int = 0) -> None:
        async def reached() -> bool:
            return await committed(self.admin, self.group, self.queue(queue_id)) == offset

        await eventually(reached, f"{offset} is committed")

    async def owns(self, consumer: Consumer, count: int) -> None:
        await eventually(lambda: len(queues_of(consumer, self.topic)) == count, f"{count} queues are owned")

    async def dead_letters(self, count: int) -> list[ReceivedMessage]:
        """Wait until the group has so many dead letters; gives them."""
        inbox = Inbox()
        consumer = consumer_of(f"{self.group}-dead", f"%DLQ%{self.group}", inbox, client=self.apache.client())
        async with consumer:
            await inbox.holds(count)
        return inbox.messages


@contextlib.asynccontextmanager
async def scene_of(apache: Apache, test: str) -> AsyncIterator[Scene]:
    """The scene of the test of that name."""
    letters = (letter if letter.isalnum() else "-" for letter in test.removeprefix("test_"))
    topic = "".join(letters).strip("-")[-90:]  # the version stands at the end
    async with Producer("makers", namesrv=apache.namesrv) as producer, AdminClient(apache.namesrv) as admin:
        yield Scene(apache, topic, producer, admin)


class Changed(Hook):
    """Changes requests of one code on their way out, so that the broker has a reason to refuse them."""

    def __init__(self, code: int, *, becomes: int | None = None, **fields: object) -> None:
        self._code = code
        self._becomes = becomes
        self._fields = {name: str(value) for name, value in fields.items()}
        self.count = 0
        self.active = True

    def before_rpc(self, address: str, request: Command) -> None:
        if self.active and request.code == self._code:
            self.count += 1
            request.code = self._code if self._becomes is None else self._becomes
            request.ext = (request.ext or {}) | self._fields


class Counted(Hook):
    """Counts the pulls of each queue."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.pulls: dict[str, int] = {}
        self.codes: set[int] = set()

    def before_rpc(self, address: str, request: Command) -> None:
        self.codes.add(int(request.code))
        fields = request.ext or {}
        if request.code == RequestCode.PULL_MESSAGE and fields["topic"] == self._topic:
            queue = fields["queueId"]
            self.pulls[queue] = self.pulls.get(queue, 0) + 1
