"""A broker that is killed while delays, timers and transactions run, all in one log: each keeps its promise.

What was acknowledged comes, a commit once, nothing that was rolled back or recalled, nothing early. Levels and timers
may deliver again what they delivered since they saved their progress (docs/decisions/0005), and no more than that.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.crash.feature_load import DELAY_LEVELS, Delays, FeatureLoad, Kill, came_again
from tests.crash.lives import Lives, chances
from tests.crash.timer_load import TOPIC as REMINDERS
from tests.crash.timer_load import TimerLoad, Timers
from tests.crash.transaction_load import Fates

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally
    from tests.crash.lives import Life

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


class FeatureLives:
    """All lives of a broker, with what its clients were promised in any of them."""

    def __init__(self, home: Path, seed: int) -> None:
        self._lives = Lives(home, seed)
        self._interval = 0
        self.check = self._lives.check
        self.fates = Fates()
        self.delays = Delays()
        self.timers = Timers()

    @asynccontextmanager
    async def begin(self, chance: random.Random) -> AsyncIterator[tuple[Life, Clients]]:
        self._interval = chance.choice((20, 100, 1000))
        settings = [
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
        ]
        async with (
            self._lives.begin(chance, *settings) as life,
            FeatureLoad(life.address, self.fates, self.delays, chance, life.prefix) as features,
            TimerLoad(life.address, self.timers, chance, f"{life.prefix}-timer") as timers,
        ):
            yield life, Clients(features, timers)

    async def kill(self, life: Life, clients: Clients, after: float) -> None:
        """Let all clients work for a while, then kill the broker."""
        self.timers.kills += 1
        moment = await life.killed_under(clients, after)
        now = time.time()
        began = now - (time.monotonic() - moment)
        # What has been delivered is saved once it is on disk, which may take one more turn.
        unsaved = int(1000 * began) - 2 * self._interval - SLACK
        self.delays.kills.append(Kill(int(1000 * now), unsaved))


@pytest.mark.crash
async def test_delays_timers_and_transactions_keep_their_promises(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    lives = FeatureLives(tmp_path, seed)
    rounds = -(-rounds // 2)
    for number in range(rounds + 1):
        with chances(seed, number) as chance:
            async with lives.begin(chance) as (life, clients):
                if number == 0:
                    await clients.features.create_topic()
                    await clients.features.create_later()
                    await clients.timers.create_topic()
                # Sometimes it is killed again before the clients of its last life have looked.
                if chance.random() < 0.6:
                    await clients.verify()
                if number < rounds:
                    await lives.kill(life, clients, chance.choice((0.5, 2.0, 5.0)) * chance.random())
                    tally.add("kills")
                    continue
                seen = await clients.features.wait_for_all()
                await asyncio.sleep(LONGEST)
                again = await clients.verify()
                await life.stop()
            async with lives.begin(chance) as (life, clients):
                assert await clients.verify() == again, "a clean stop made some come again"
                await life.stop()
    lives.check()
    tally.add("delays acknowledged", len(lives.delays.acknowledged))
    tally.add("timers acknowledged", len(lives.timers.sent))
    tally.add("timers recalled", len(lives.timers.recalled))
    tally.add("transactions begun", len(lives.fates.decided))
    tally.add("questions", lives.fates.asked)
    tally.add("committed and seen", seen)
    tally.add("delayed deliveries once more", again)
    tally.add("lost", 0)
