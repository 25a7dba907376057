"""Producers of delayed messages and of transactions, some of which are delayed too, for a broker that is killed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.broker_load import LATER, PATIENCE, SUBSCRIPTION, Lost
from tests.crash.transaction_load import COMMIT, GROUP, TransactionLoad

from pyromq.errors import ConnectionLost
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import CreateTopic, PullMessage, SendMessageReply, SendMessageV2
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.record import decode_records

if TYPE_CHECKING:
    from random import Random

    from tests.crash.transaction_load import Fates

    from pyromq.protocol.record import MessageRecord

# Seconds by level. The last is that of the levels above it.
LEVELS = {1: 1, 2: 1, 3: 2, 7: 2}
DELAY_LEVELS = "1s 1s 2s"
PRODUCERS = 3
PREPARED = 4  # in the flags of a message


@dataclass(slots=True)
class Delays:
    """What was promised about the topic of delayed messages, over all lives of the broker. Times are milliseconds."""

    due: dict[bytes, int] = field(default_factory=dict)  # not before
    acknowledged: set[bytes] = field(default_factory=set)
    in_transactions: set[bytes] = field(default_factory=set)
    missing: list[bytes] = field(default_factory=list)  # were due and had not come when they were looked for last


class FeatureLoad(TransactionLoad):
    """Producers of one group. A delayed transaction is committed to its level or timer, and counts when it comes."""

    def __init__(self, address: str, fates: Fates, delays: Delays, random: Random, prefix: str) -> None:
        super().__init__(address, fates, random, prefix)
        self.delays = delays

    async def create_later(self) -> None:
        header = CreateTopic(
            topic=LATER,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    # Working

    async def run_until_killed(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run_until_killed())
            for _ in range(PRODUCERS):
                tasks.create_task(self._send_delayed())

    async def _send_delayed(self) -> None:
        try:
            while True:
                self._count += 1
                body = f"{self._prefix}-{self._count}-delayed".encode()
                level = self._random.choice(list(LEVELS))
                self.delays.due[body] = int(1000 * (time.time() + LEVELS[level]))
                text = props.render({props.UNIQ_KEY: body.decode(), props.DELAY: str(level)})
                header = SendMessageV2(GROUP, LATER, "TBW102", 4, 0, 0, time.time_ns() // 1_000_000, 0, properties=text)
                await self.ask(RequestCode.SEND_MESSAGE_V2, header, body)
                self.delays.acknowledged.add(body)
                await asyncio.sleep(0.003)
        except ConnectionLost:
            return

    async def _prepare(self, body: bytes) -> tuple[int, int]:
        if self._random.random() < 0.7:
            return await super()._prepare(body)
        properties = {props.UNIQ_KEY: body.decode(), props.TRAN_MSG: "true", props.PGROUP: GROUP}
        if self._random.random() < 0.5:
            self.delays.due[body] = int(1000 * (time.time() + LEVELS[1]))
            properties[props.DELAY] = "1"
        else:
            # It may have been decided too late for that, and comes at once then.
            self.delays.due[body] = int(1000 * (time.time() + 0.1 + 2 * self._random.random()))
            properties[props.TIMER_DELIVER_MS] = str(self.delays.due[body])
        self.delays.in_transactions.add(body)
        now = time.time_ns() // 1_000_000
        text = props.render(properties)
        header = SendMessageV2(GROUP, LATER, "TBW102", 4, 0, PREPARED, now, 0, properties=text)
        reply = (await self.ask(RequestCode.SEND_MESSAGE_V2, header, body)).header(SendMessageReply)
        return reply.queue_offset, decode_offset_message_id(reply.msg_id).physical_offset

    async def _end(self, body: bytes, place: tuple[int, int], fate: int, *, from_check: bool) -> None:
        await super()._end(body, place, fate, from_check=from_check)
        if body in self.delays.in_transactions and body in self.fates.committed:
            # Not there yet, unlike others that were committed.
            self.fates.committed.discard(body)
            self.delays.acknowledged.add(body)

    # Looking back

    async def later(self) -> list[MessageRecord]:
        """All delayed messages that came."""
        found: list[MessageRecord] = []
        while True:
            header = PullMessage(GROUP, LATER, 0, len(found), 32, SUBSCRIPTION, 0, 0, 0, subscription="*")
            reply = await self.invoke(self.address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE)
            records = decode_records(reply.body_bytes) if reply.code == ResponseCode.SUCCESS else []
            if not records:
                return found
            found += records

    async def seen(self) -> Counter[bytes]:
        """As without delays."""
        came = Counter(record.body for record in await self.later())
        return await super().seen() + Counter({body: came[body] for body in came.keys() & self.delays.in_transactions})

    async def verify_delays(self) -> None:
        """Wait until all that is due has come, each message once and none early."""
        delays = self.delays
        patience = time.monotonic() + PATIENCE
        while True:
            now = 1000 * time.time()
            came = await self.later()
            bodies = {record.body for record in came}
            delays.missing = [body for body in delays.acknowledged if delays.due[body] < now and body not in bodies]
            if not delays.missing or time.monotonic() > patience:
                break
            await asyncio.sleep(0.1)
        for record in came:
            if record.store_timestamp < delays.due[record.body]:
                raise Lost(f"too early: {record.body!r}")
            if self.fates.decided.get(record.body, COMMIT) != COMMIT:
                raise Lost(f"rolled back: {record.body!r}")
        if len(bodies) < len(came):
            often = [body for body, count in Counter(record.body for record in came).items() if count > 1]
            raise Lost(f"{len(often)} delayed messages came more than once: {often[:3]}")
