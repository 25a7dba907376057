"""A broker that is killed again and again delivers every timer that it acknowledged, and none that was recalled.

After a kill a timer may come once more than it should: what was delivered since the progress was saved the last time.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.crash.broker_load import PATIENCE, Load, Lost, Promises, body_of, is_whole
from tests.integration.broker.command_kit import free_port, line_with, run, started, stop

from pyromq.errors import ConnectionLost, IllegalOperation
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import CreateTopic, RecallMessage, SendMessageV2

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally

TOPIC = "reminders"
PRODUCERS = 4


@dataclass(slots=True)
class Timers:
    """What was promised, over all lives of the broker. A recall without an answer promises nothing."""

    sent: dict[bytes, int] = field(default_factory=dict)  # body -> when it is due (ms)
    recalled: set[bytes] = field(default_factory=set)
    undecided: set[bytes] = field(default_factory=set)
    kills: int = 0


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

    async def verify_timers(self) -> int:
        """Wait until everything that is due has come; the rest must not have."""
        timers = self.timers
        wanted = timers.sent.keys() - timers.recalled - timers.undecided
        async with asyncio.timeout(PATIENCE):
            while True:
                came: Counter[bytes] = Counter()
                async for message in self.all_messages(TOPIC, 0):
                    came[message.body] += 1
                    if not is_whole(message.body):
                        raise Lost(f"half a message: {message.body[:40]!r}")
                    if message.store_timestamp < timers.sent.get(message.body, 0):
                        raise Lost(f"too early: {message.body[:40]!r}")
                now = 1000 * time.time() - 500
                if not any(timers.sent[body] < now and body not in came for body in wanted):
                    break
                await asyncio.sleep(0.1)
        if seen := came.keys() & timers.recalled:
            raise Lost(f"{len(seen)} recalled messages were delivered: {[body[:30] for body in seen][:3]}")
        often = [body for body, count in came.items() if count > 1 + timers.kills]
        if often:
            raise Lost(f"delivered more often than the broker was killed: {[body[:30] for body in often][:3]}")
        return sum(came.values()) - len(came)


class Life:
    """One broker in its folder, which is started, killed and stopped again and again."""

    def __init__(self, home: Path, seed: int) -> None:
        self._home = home
        self._port = free_port()
        self._seed = seed
        self._number = 0
        self.timers = Timers()

    @asynccontextmanager
    async def started(self, chance: random.Random) -> AsyncIterator[tuple[subprocess.Popen[str], TimerLoad]]:
        settings = [
            f"storePathRootDir={self._home / 'store'}",
            f"listenPort={self._port}",
            "brokerIP1=127.0.0.1",
            "bindAddress=127.0.0.1",
            "mappedFileSizeCommitLog=1m",
            "mappedFileSizeConsumeQueue=20000",
            "maxHashSlotNum=1000",
            "maxIndexNum=4000",
            "drainSeconds=0",
            "timerPrecisionMs=100",
            "timerRollWindowSlot=8",  # so that some are rolled on the way
            f"timerFlushIntervalMs={chance.choice((20, 100, 1000))}",
            "recallMessageEnable=true",
            f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}",
        ]
        self._number += 1
        with started(self._home, "broker", "--log-level", "warning", *settings) as process:
            await asyncio.to_thread(line_with, process, "boot success")
            prefix = f"{self._seed}-{self._number}"
            async with TimerLoad(f"127.0.0.1:{self._port}", self.timers, chance, prefix) as load:
                yield process, load


@pytest.mark.crash
async def test_a_killed_broker_delivers_its_timers(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    life = Life(tmp_path, seed)
    rounds = -(-rounds // 4)
    for number in range(rounds + 1):
        chance = random.Random(seed + number)
        try:
            async with life.started(chance) as (process, load):
                if number == 0:
                    await load.create_topic()
                repeated = await load.verify_timers()
                if number < rounds:
                    working = asyncio.create_task(load.run_until_killed())
                    await asyncio.wait([working], timeout=chance.choice((0.2, 1.0, 3.0)) * chance.random())
                    life.timers.kills += 1
                    process.send_signal(signal.SIGKILL)
                    await working
                    await asyncio.to_thread(process.wait)
                    tally.add("timers acknowledged", load.acknowledged)
                    tally.add("kills")
                    continue
                await asyncio.sleep(2.5)  # the last ones are due
                repeated = await load.verify_timers()
                code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
                assert code == 0, err
            async with life.started(chance) as (process, load):
                assert await load.verify_timers() == repeated, "a clean stop made some come again"
                code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
                assert code == 0, err
            tally.add("recalled", len(life.timers.recalled))
            tally.add("delivered once more", repeated)
        except BaseException as exc:
            exc.add_note(f"round {number}, seed {seed + number}")
            raise
    code, out, err = run(tmp_path, "check", "store")
    assert code == 0, out + err
    tally.add("lost", 0)
