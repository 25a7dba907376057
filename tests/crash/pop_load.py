"""Consumers that pop from a broker that is killed: what they acknowledged, and what they were given again."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.broker_load import PATIENCE, QUEUES, TOPIC, Lost

from pyromq.errors import ConnectionLost, broker_error
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    AckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeReply,
    CreateTopic,
    PopMessage,
    PopMessageReply,
    SendMessageV2,
)
from pyromq.protocol.pop_handle import PopHandle, decode_handle, marked_topic
from pyromq.protocol.record import decode_records
from pyromq.remoting import RemotingClient

if TYPE_CHECKING:
    from random import Random

    from pyromq.protocol.header import Header

GROUP = "poppers"
WORKERS = 8
INVISIBLE = 1500  # ms
# Of that, what must be left when an ack is answered, for it to count as one that came in time.
IN_TIME = 500


class Popped(NamedTuple):
    body: bytes
    handle: PopHandle
    received: float  # monotonic


@dataclass(slots=True)
class Deeds:
    """What became of messages over all lives of the broker, by their bodies."""

    sent: set[bytes] = field(default_factory=set)  # of which the broker said that it has them
    acked: set[bytes] = field(default_factory=set)  # in time, and answered
    # Acks and changes of which no answer came, or came too late: such a message may come back or not.
    open: set[bytes] = field(default_factory=set)
    pops: int = 0
    again: int = 0


class PopLoad(RemotingClient):
    """Producers and consumers of one group, over one connection."""

    def __init__(self, address: str, deeds: Deeds, random: Random, prefix: str) -> None:
        super().__init__()
        self.address = address
        self.deeds = deeds
        self._random = random
        self._prefix = prefix
        self._numbers = itertools.count()

    async def ask(self, code: int, header: Header, body: bytes | None = None) -> Command:
        return await self.invoke(self.address, Command.request(code, header, body), PATIENCE)

    async def told(self, code: int, header: Header, body: bytes | None = None) -> Command:
        reply = await self.ask(code, header, body)
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        return reply

    async def create_topic(self) -> None:
        header = CreateTopic(
            topic=TOPIC,
            default_topic="TBW102",
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self.told(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def run_until_killed(self) -> None:
        """Work until the broker is gone. Whatever else goes wrong is raised."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(WORKERS):
                tasks.create_task(self._until_lost(self._produce if number % 2 else self._consume))

    async def _until_lost(self, work) -> None:
        try:
            while True:
                await work()
        except ConnectionLost:
            return

    async def _produce(self) -> None:
        body = f"{self._prefix}-{next(self._numbers)}".encode()
        header = SendMessageV2(
            *(GROUP, TOPIC, "TBW102", 4, self._random.randrange(QUEUES), 0, time.time_ns() // 1_000_000, 0),
            properties=props.render({props.UNIQ_KEY: body.decode()}),
        )
        await self.told(RequestCode.SEND_MESSAGE_V2, header, body)
        self.deeds.sent.add(body)
        await asyncio.sleep(0.01 * self._random.random())

    async def _consume(self) -> None:
        some = await self.pop(self._random.randrange(1, 33), poll=200)
        # Those of one pop together, as a client that consumes in threads.
        for result in await asyncio.gather(*map(self._process, some), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _process(self, one: Popped) -> None:
        fate = self._random.random()
        if fate < 0.2:
            return  # it comes back
        await self._ack(await self._change(one) if fate < 0.3 else one)

    async def pop(self, count: int, poll: int) -> list[Popped]:
        header = PopMessage(GROUP, TOPIC, -1, count, INVISIBLE, poll, time.time_ns() // 1_000_000)
        reply = await self.ask(RequestCode.POP_MESSAGE, header)
        now = time.monotonic()
        if reply.code == ResponseCode.POLLING_TIMEOUT:
            return []
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        said = reply.header(PopMessageReply)
        starts = {}
        for part in (said.start_offset_info or "").split(";"):
            mark, queue_id, start = part.split(" ")
            starts[mark, int(queue_id)] = int(start)
        some = []
        for record in decode_records(reply.body_bytes):
            text = record.find_property(props.POP_CK)
            handle = (
                PopHandle(
                    *(starts["0", record.queue_id], said.pop_time, said.invisible_time, said.revive_qid),
                    *("0", "broker-a", record.queue_id, record.queue_offset),
                )
                if text is None
                else decode_handle(text)
            )
            if record.body in self.deeds.acked and record.body not in self.deeds.open:
                raise Lost(f"{record.body!r} was acknowledged and comes back as {handle}")
            self.deeds.again += record.reconsume_times > 0
            some.append(Popped(record.body, handle, now))
        self.deeds.pops += 1
        return some

    async def _ack(self, one: Popped) -> None:
        topic = marked_topic(TOPIC, GROUP, one.handle.mark)
        assert one.handle.queue_offset is not None
        header = AckMessage(GROUP, topic, one.handle.queue_id, one.handle.encode(), one.handle.queue_offset)
        # Until it is answered nobody knows; and it was open before if some earlier ack or change of it was.
        was_open = one.body in self.deeds.open
        self.deeds.open.add(one.body)
        await self.told(RequestCode.ACK_MESSAGE, header)
        if 1000 * (time.monotonic() - one.received) < one.handle.invisible_time - IN_TIME:
            self.deeds.acked.add(one.body)
            if not was_open:
                self.deeds.open.discard(one.body)

    async def _change(self, one: Popped) -> Popped:
        topic = marked_topic(TOPIC, GROUP, one.handle.mark)
        assert one.handle.queue_offset is not None
        offset = one.handle.queue_offset
        header = ChangeInvisibleTime(GROUP, topic, one.handle.queue_id, one.handle.encode(), offset, INVISIBLE)
        was_open = one.body in self.deeds.open
        self.deeds.open.add(one.body)
        began = time.monotonic()
        said = (await self.told(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)).header(ChangeInvisibleTimeReply)
        if 1000 * (time.monotonic() - one.received) < one.handle.invisible_time - IN_TIME and not was_open:
            self.deeds.open.discard(one.body)
        handle = one.handle._replace(start_offset=offset, pop_time=said.pop_time, invisible_time=said.invisible_time)
        return Popped(one.body, handle, began)

    async def drain(self) -> int:
        """Acknowledge everything: all that was sent and not acknowledged must come."""
        missing = self._missing()
        try:
            async with asyncio.timeout(PATIENCE):
                while missing:
                    await asyncio.gather(*map(self._ack, await self.pop(32, poll=500)))
                    missing = self._missing()
                # And then nothing more, but for what may come back.
                for one in await self.pop(32, poll=INVISIBLE + 2000):
                    if one.body not in self.deeds.open:
                        raise Lost(f"{one.body!r} comes back")
        except TimeoutError:
            raise Lost(f"{len(missing)} messages did not come back: {sorted(missing)[:5]}") from None
        return len(self.deeds.acked)

    def _missing(self) -> set[bytes]:
        return self.deeds.sent - self.deeds.acked - self.deeds.open
