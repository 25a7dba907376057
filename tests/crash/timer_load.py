"""A load of timers for a broker that may be killed at any moment, and what it promised about them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.broker_load import PATIENCE, Load, Lost, Promises, body_of, is_whole

from pyromq.errors import ConnectionLost, IllegalOperation
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import CreateTopic, RecallMessage, SendMessageV2

if TYPE_CHECKING:
    import random

TOPIC = "reminders"
PRODUCERS = 4


@dataclass(slots=True)
class Timers:
    """What was promised, over all lives of the broker. A recall without an answer promises nothing."""

    sent: dict[bytes, int] = field(default_factory=dict)  # body -> when it is due (ms)
    recalled: set[bytes] = field(default_factory=set)
    undecided: set[bytes] = field(default_factory=set)
    missing: list[bytes] = field(default_factory=list)  # were due and had not come when they were looked for last


class TimerLoad(Load):
    """Producers of timers, some of which they take back."""

    def __init__(self, address: str, timers: Timers, random: random.Random, prefix: str) -> None:
        super().__init__(address, Promises(), random, prefix)
        self.timers = timers

    async def create_topic(self) -> None:
        header = CreateTopic(
            topic=TOPIC,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def run_until_killed(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PRODUCERS):
                tasks.create_task(self._produce_timers())

    async def _produce_timers(self) -> None:
        timers, chance = self.timers, self._random
        try:
            while True:
                self._count += 1
                name = f"{self._prefix}-{self._count}"
                body = body_of(name, chance)
                due = int(1000 * (time.time() + 0.1 + 2 * chance.random()))
                text = props.render({props.TIMER_DELIVER_MS: str(due), props.UNIQ_KEY: name})
                header = SendMessageV2("makers", TOPIC, "TBW102", 4, 0, 0, 1, 0, properties=text)
                reply = await self.ask(RequestCode.SEND_MESSAGE_V2, header, body)
                timers.sent[body] = due
                self.acknowledged += 1
                handle = (reply.ext or {}).get("recallHandle")
                if handle is not None and chance.random() < 0.2:
                    timers.undecided.add(body)
                    try:
                        await self.ask(RequestCode.RECALL_MESSAGE, RecallMessage("makers", TOPIC, handle))
                        timers.recalled.add(body)
                    except IllegalOperation:  # it was due already
                        pass
                    timers.undecided.discard(body)
                await asyncio.sleep(0.002)
        except ConnectionLost:
            return

    async def verify_timers(self) -> None:
        """Wait until everything that is due has come, each once; the rest must not have."""
        timers = self.timers
        wanted = timers.sent.keys() - timers.recalled - timers.undecided
        patience = time.monotonic() + PATIENCE
        while True:
            came: Counter[bytes] = Counter()
            async for message in self.all_messages(TOPIC, 0):
                came[message.body] += 1
                if not is_whole(message.body):
                    raise Lost(f"half a message: {message.body[:40]!r}")
                if message.store_timestamp < timers.sent.get(message.body, 0):
                    raise Lost(f"too early: {message.body[:40]!r}")
            now = 1000 * time.time() - 500
            timers.missing = [body for body in wanted if timers.sent[body] < now and body not in came]
            if not timers.missing or time.monotonic() > patience:
                break
            await asyncio.sleep(0.1)
        if seen := came.keys() & timers.recalled:
            raise Lost(f"{len(seen)} recalled messages were delivered: {[body[:30] for body in seen][:3]}")
        often = [body for body, count in came.items() if count > 1]
        if often:
            raise Lost(f"{len(often)} timers came more than once: {[body[:30] for body in often][:3]}")
