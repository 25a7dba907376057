"""A broker that is killed while delays, timers and transactions run, all in one log: each keeps its promise.

What was acknowledged comes, a commit once, nothing that was rolled back or recalled, nothing early. Levels and timers
may deliver again what they delivered since they saved their progress (docs/decisions/0005), and no more than that.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.crash.feature_load import DELAY_LEVELS, Delays, FeatureLoad, Kill, came_again
from tests.crash.test_timers_kill import TOPIC as REMINDERS
from tests.crash.test_timers_kill import TimerLoad, Timers
from tests.crash.transaction_load import Fates
from tests.integration.broker.command_kit import free_port, line_with, run, started, stop

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally

# Milliseconds that saving may take longer than the pause between two savings, on a busy machine.
SLACK = 1500
LONGEST = 2.5  # seconds that a message is delayed, and some to spare


class Clients(NamedTuple):
    features: FeatureLoad
    timers: TimerLoad

    async def run_until_killed(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.features.run_until_killed())
            tasks.create_task(self.timers.run_until_killed())

    async def verify(self) -> int:
        """Wait for what is due, look at all that came; how many deliveries were not the first."""
        await self.features.verify()
        again = await self.features.verify_delays() + await self.timers.verify_timers()
        came_again([message async for message in self.timers.all_messages(REMINDERS, 0)], self.features.delays.kills)
        return again


class Life:
    """One broker in its folder, which is started, killed and stopped again and again."""

    def __init__(self, home: Path, seed: int) -> None:
        self._home = home
        self._port = free_port()
        self._seed = seed
        self._number = 0
        self._interval = 0
        self.fates = Fates()
        self.delays = Delays()
        self.timers = Timers()

    @asynccontextmanager
    async def started(self, chance: random.Random) -> AsyncIterator[tuple[subprocess.Popen[str], Clients]]:
        self._interval = chance.choice((20, 100, 1000))
        settings = [
            f"storePathRootDir={self._home / 'store'}",
            f"listenPort={self._port}",
            "brokerIP1=127.0.0.1",
            "bindAddress=127.0.0.1",
            "drainSeconds=0",
            "mappedFileSizeCommitLog=256k",
            "mappedFileSizeConsumeQueue=20000",
            "maxHashSlotNum=1000",
            "maxIndexNum=4000",
            f"messageDelayLevel={DELAY_LEVELS}",
            f"flushDelayOffsetInterval={self._interval}",
            "timerPrecisionMs=100",
            "timerRollWindowSlot=8",  # so that some are rolled on the way
            f"timerFlushIntervalMs={self._interval}",
            "recallMessageEnable=true",
            "transactionTimeOut=50",
            "transactionCheckMax=100000",
            f"transactionCheckInterval={chance.choice((10, 50, 200))}",
            f"flushConsumerOffsetInterval={chance.choice((20, 500, 5000))}",
            f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}",
        ]
        self._number += 1
        address, prefix = f"127.0.0.1:{self._port}", f"{self._seed}-{self._number}"
        with started(self._home, "broker", "--log-level", "error", *settings) as process:
            await asyncio.to_thread(line_with, process, "boot success")
            async with (
                FeatureLoad(address, self.fates, self.delays, chance, prefix) as features,
                TimerLoad(address, self.timers, chance, f"{prefix}-timer") as timers,
            ):
                yield process, Clients(features, timers)

    async def kill(self, process: subprocess.Popen[str], clients: Clients, after: float) -> None:
        """Let all clients work for a while, then kill the broker."""
        working = asyncio.create_task(clients.run_until_killed())
        await asyncio.wait([working], timeout=after)
        began = time.time()
        self.timers.kills += 1
        process.send_signal(signal.SIGKILL)
        await working
        await asyncio.to_thread(process.wait)
        # What has been delivered is saved once it is on disk, which may take one more turn.
        unsaved = int(1000 * began) - 2 * self._interval - SLACK
        self.delays.kills.append(Kill(int(1000 * time.time()), unsaved))


async def end(process: subprocess.Popen[str]) -> None:
    code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
    assert code == 0, err


@pytest.mark.crash
async def test_delays_timers_and_transactions_keep_their_promises(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    life = Life(tmp_path, seed)
    rounds = -(-rounds // 2)
    for number in range(rounds + 1):
        chance = random.Random(seed + number)
        try:
            async with life.started(chance) as (process, clients):
                if number == 0:
                    await clients.features.create_topic()
                    await clients.features.create_later()
                    await clients.timers.create_topic()
                # Sometimes it is killed again before the clients of its last life have looked.
                if chance.random() < 0.6:
                    await clients.verify()
                if number < rounds:
                    await life.kill(process, clients, chance.choice((0.5, 2.0, 5.0)) * chance.random())
                    tally.add("kills")
                    continue
                seen = await clients.features.wait_for_all()
                await asyncio.sleep(LONGEST)
                again = await clients.verify()
                await end(process)
            async with life.started(chance) as (process, clients):
                assert await clients.verify() == again, "a clean stop made some come again"
                await end(process)
        except BaseException as exc:
            exc.add_note(f"round {number}, seed {seed + number}")
            raise
    code, out, err = run(tmp_path, "check", "store")
    assert code == 0, out + err
    tally.add("delays acknowledged", len(life.delays.acknowledged))
    tally.add("timers acknowledged", len(life.timers.sent))
    tally.add("timers recalled", len(life.timers.recalled))
    tally.add("transactions begun", len(life.fates.decided))
    tally.add("questions", life.fates.asked)
    tally.add("committed and seen", seen)
    tally.add("delayed deliveries once more", again)
    tally.add("lost", 0)
