"""Producers of transactions, for a broker that is killed: what they decided, and what the broker said to that."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.broker_load import PATIENCE, QUEUES, SUBSCRIPTION, TOPIC, Lost

from pyromq.errors import ConnectionLost, broker_error
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import HeartbeatData
from pyromq.protocol.bodies.heartbeat import ProducerData
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    CheckTransactionState,
    CreateTopic,
    EndTransaction,
    PullMessage,
    SendMessageReply,
    SendMessageV2,
)
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.record import decode_record, decode_records
from pyromq.remoting import RemotingClient

if TYPE_CHECKING:
    from random import Random

    from pyromq.protocol.header import Header
    from pyromq.remoting import Connection

GROUP = "payers"
WORKERS = 12
COMMIT, ROLLBACK = 8, 12


@dataclass(slots=True)
class Fates:
    """What was decided about each transaction, over all lives of the broker, by its body."""

    decided: dict[bytes, int] = field(default_factory=dict)
    prepared: set[bytes] = field(default_factory=set)  # of which the broker said that it has the half message
    committed: set[bytes] = field(default_factory=set)  # of which it said that it has the commit
    asked: int = 0


class TransactionLoad(RemotingClient):
    """Producers of one group, over one connection. What they decide about a transaction they never change."""

    def __init__(self, address: str, fates: Fates, random: Random, prefix: str) -> None:
        super().__init__(processors={RequestCode.CHECK_TRANSACTION_STATE: self._asked})
        self.address = address
        self.fates = fates
        self._random = random
        self._prefix = prefix
        self._count = 0
        self._answering: set[asyncio.Task[None]] = set()

    async def ask(self, code: int, header: Header | None, body: bytes | None = None) -> Command:
        reply = await self.invoke(self.address, Command.request(code, header, body), PATIENCE)
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
        await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def join(self) -> None:
        """Let the broker know that there is somebody to ask."""
        data = HeartbeatData(client_id=self._prefix, producer_data_set=[ProducerData(group_name=GROUP)])
        await self.ask(RequestCode.HEART_BEAT, None, data.encode())

    # Working

    async def run_until_killed(self) -> None:
        """Work until the broker is gone. Whatever else goes wrong is raised."""
        try:
            await self.join()
        except ConnectionLost:
            return
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())
        await asyncio.gather(*self._answering)

    async def _work(self) -> None:
        chance = self._random
        try:
            while True:
                self._count += 1
                body = f"{self._prefix}-{self._count}".encode()
                fate = self.fates.decided[body] = chance.choice((COMMIT, ROLLBACK))
                place = await self._prepare(body)
                self.fates.prepared.add(body)
                if chance.random() < 0.3:
                    continue  # its end gets lost
                if chance.random() < 0.3:
                    await asyncio.sleep(0.2 * chance.random())  # the broker asks meanwhile
                await self._end(body, place, fate, from_check=False)
        except ConnectionLost:
            return

    async def _prepare(self, body: bytes) -> tuple[int, int]:
        properties = {props.UNIQ_KEY: body.decode(), props.TRAN_MSG: "true", props.PGROUP: GROUP}
        if self._random.random() < 0.1:
            properties[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = "1"
        header = SendMessageV2(
            *(GROUP, TOPIC, "TBW102", 4, self._random.randrange(QUEUES), 4, time.time_ns() // 1_000_000, 0),
            properties=props.render(properties),
        )
        reply = (await self.ask(RequestCode.SEND_MESSAGE_V2, header, body)).header(SendMessageReply)
        return reply.queue_offset, decode_offset_message_id(reply.msg_id).physical_offset

    async def _end(self, body: bytes, place: tuple[int, int], fate: int, *, from_check: bool) -> None:
        header = EndTransaction(GROUP, *place, fate, body.decode(), from_check)
        reply = await self.invoke(self.address, Command.request(RequestCode.END_TRANSACTION, header), PATIENCE)
        if reply.code == ResponseCode.ILLEGAL_OPERATION and not from_check:
            return  # too late, the broker will ask
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        if fate == COMMIT:
            self.fates.committed.add(body)

    # Being asked

    def _asked(self, connection: Connection, request: Command) -> None:
        header = request.header(CheckTransactionState)
        body = decode_record(request.body_bytes).body
        place = (header.tran_state_table_offset, header.commit_log_offset)
        self.fates.asked += 1
        if self._random.random() < 0.5:
            task = asyncio.create_task(self._answer(body, place))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, body: bytes, place: tuple[int, int]) -> None:
        try:
            await self._end(body, place, self.fates.decided[body], from_check=True)
        except ConnectionLost:
            return

    # Looking back

    async def seen(self) -> Counter[bytes]:
        """All messages that consumers see, by how often."""
        found: Counter[bytes] = Counter()
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                header = PullMessage(GROUP, TOPIC, queue_id, offset, 32, SUBSCRIPTION, 0, 0, 0, subscription="*")
                reply = await self.invoke(self.address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE)
                records = decode_records(reply.body_bytes) if reply.code == ResponseCode.SUCCESS else []
                if not records:
                    break
                found.update(record.body for record in records)
                offset = records[-1].queue_offset + 1
        return found

    async def verify(self) -> int:
        """Nothing was seen twice or against what was decided, and all that was acknowledged is there."""
        seen = await self.seen()
        twice = [body for body, count in seen.items() if count > 1]
        if twice:
            raise Lost(f"{len(twice)} messages are there more than once: {twice[:5]}")
        wrong = [body for body in seen if self.fates.decided[body] != COMMIT]
        if wrong:
            raise Lost(f"{len(wrong)} messages were rolled back and are there: {wrong[:5]}")
        missing = self.fates.committed - seen.keys()
        if missing:
            raise Lost(f"{len(missing)} acknowledged commits are gone: {sorted(missing)[:5]}")
        return len(seen)

    async def wait_for_all(self) -> int:
        """Answer questions until every transaction has ended as it was decided."""
        wanted = {body for body in self.fates.prepared if self.fates.decided[body] == COMMIT}
        await self.join()
        missing = wanted
        try:
            async with asyncio.timeout(PATIENCE):
                while missing:
                    await asyncio.sleep(0.1)
                    missing = wanted - (await self.seen()).keys()
        except TimeoutError:
            raise Lost(f"{len(missing)} transactions did not end: {sorted(missing)[:5]}") from None
        await asyncio.gather(*self._answering)
        return await self.verify()
