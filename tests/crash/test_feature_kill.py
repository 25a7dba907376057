"""A broker that is killed while delays, timers and transactions run, all in one log: each keeps its promise.

What was acknowledged comes once, nothing that was rolled back or recalled, nothing early, however often the broker is
killed, and however long ago it noted its progress.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.crash.feature_load import DELAY_LEVELS, Delays, FeatureLoad
from tests.crash.lives import Lives, chances
from tests.crash.timer_load import TimerLoad, Timers
from tests.crash.transaction_load import Fates

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally
    from tests.crash.lives import Life

LONGEST = 2.5  # seconds that a message is delayed, and some to spare


class Clients(NamedTuple):
    features: FeatureLoad
    timers: TimerLoad

    async def run_until_killed(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.features.run_until_killed())
            tasks.create_task(self.timers.run_until_killed())

    async def verify(self) -> None:
        """Wait for what is due, and look at all that came."""
        await self.features.verify()
        await self.features.verify_delays()
        await self.timers.verify_timers()


class FeatureLives:
    """All lives of a broker, with what its clients were promised in any of them."""

    def __init__(self, home: Path, seed: int) -> None:
        self._lives = Lives(home, seed)
        self.check = self._lives.check
        self.fates = Fates()
        self.delays = Delays()
        self.timers = Timers()

    def missing(self) -> list[bytes]:
        """What was due and had not come when the clients looked last."""
        return self.delays.missing + self.timers.missing

    @asynccontextmanager
    async def begin(self, chance: random.Random) -> AsyncIterator[tuple[Life, Clients]]:
        interval = chance.choice((20, 1000, 10_000))
        settings = [
            f"messageDelayLevel={DELAY_LEVELS}",
            f"flushDelayOffsetInterval={interval}",
            "timerPrecisionMs=100",
            "timerRollWindowSlot=8",  # so that some are rolled on the way
            f"timerFlushIntervalMs={interval}",
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
                    tally.lost(lives.missing())
                if number < rounds:
                    await life.killed_under(clients, chance.choice((0.5, 2.0, 5.0)) * chance.random())
                    tally.add("kills")
                    continue
                seen = await clients.features.wait_for_all()
                await asyncio.sleep(LONGEST)
                await clients.verify()
                tally.lost(lives.missing())
                await life.stop()
            async with lives.begin(chance) as (life, clients):
                await clients.verify()
                tally.lost(lives.missing())
                await life.stop()
    lives.check()
    tally.add("delays acknowledged", len(lives.delays.acknowledged))
    tally.add("timers acknowledged", len(lives.timers.sent))
    tally.add("timers recalled", len(lives.timers.recalled))
    tally.add("transactions begun", len(lives.fates.decided))
    tally.add("questions", lives.fates.asked)
    tally.add("committed and seen", seen)
