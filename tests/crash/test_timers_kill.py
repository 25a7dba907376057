"""A broker that is killed again and again delivers each timer that it acknowledged once, and none that was recalled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import Lives, chances
from tests.crash.timer_load import TimerLoad, Timers

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.crash.conftest import Tally


def settings(chance: random.Random) -> list[str]:
    return [
        "mappedFileSizeCommitLog=1m",
        "timerPrecisionMs=100",
        "timerRollWindowSlot=8",  # so that some are rolled on the way
        f"timerFlushIntervalMs={chance.choice((20, 1000, 10_000))}",
        "recallMessageEnable=true",
    ]


@pytest.mark.crash
async def test_a_killed_broker_delivers_its_timers(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    lives, timers = Lives(tmp_path, seed), Timers()
    rounds = -(-rounds // 4)
    for number in range(rounds + 1):
        with chances(seed, number) as chance:
            async with (
                lives.begin(chance, *settings(chance)) as life,
                TimerLoad(life.address, timers, chance, life.prefix) as load,
            ):
                if number == 0:
                    await load.create_topic()
                await load.verify_timers()
                tally.lost(timers.missing)
                if number < rounds:
                    await life.killed_under(load, chance.choice((0.2, 1.0, 3.0)) * chance.random())
                    tally.add("timers acknowledged", load.acknowledged)
                    tally.add("kills")
                    continue
                await asyncio.sleep(2.5)  # the last ones are due
                await load.verify_timers()
                tally.lost(timers.missing)
                await life.stop()
            async with (
                lives.begin(chance, *settings(chance)) as life,
                TimerLoad(life.address, timers, chance, life.prefix) as load,
            ):
                await load.verify_timers()
                tally.lost(timers.missing)
                await life.stop()
    lives.check()
    tally.add("recalled", len(timers.recalled))
