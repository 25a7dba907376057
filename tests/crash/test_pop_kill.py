"""A broker that is killed under pops: what was not acknowledged comes back, and what was does not."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.crash.pop_load import Deeds, PopLoad
from tests.integration.broker.command_kit import free_port, line_with, run, started, stop

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally


class Life:
    """One broker in its folder, which is started, killed and stopped again and again."""

    def __init__(self, home: Path, seed: int) -> None:
        self._home = home
        self._port = free_port()
        self._seed = seed
        self._number = 0
        self.deeds = Deeds()

    @asynccontextmanager
    async def started(self, chance: random.Random) -> AsyncIterator[tuple[subprocess.Popen[str], PopLoad]]:
        settings = [
            f"storePathRootDir={self._home / 'store'}",
            f"listenPort={self._port}",
            "brokerName=broker-a",
            "brokerIP1=127.0.0.1",
            "bindAddress=127.0.0.1",
            "drainSeconds=0",
            "mappedFileSizeCommitLog=256k",
            "mappedFileSizeConsumeQueue=20000",
            "maxHashSlotNum=1000",
            "maxIndexNum=4000",
            "timerPrecisionMs=100",
            f"reviveInterval={chance.choice((10, 200))}",
            f"popCkMaxBufferSize={chance.choice((400, 200_000))}",
            f"flushConsumerOffsetInterval={chance.choice((20, 500, 5000))}",
            f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}",
        ]
        self._number += 1
        with started(self._home, "broker", "--log-level", "error", *settings) as process:
            await asyncio.to_thread(line_with, process, "boot success")
            prefix = f"{self._seed}-{self._number}"
            async with PopLoad(f"127.0.0.1:{self._port}", self.deeds, chance, prefix) as load:
                yield process, load

    def check(self) -> None:
        """`pyromq check` finds nothing to complain of, once the broker has stopped."""
        code, out, err = run(self._home, "check", "store")
        assert code == 0, out + err


async def killed_under_load(process: subprocess.Popen[str], load: PopLoad, after: float) -> None:
    working = asyncio.create_task(load.run_until_killed())
    await asyncio.wait([working], timeout=after)
    process.send_signal(signal.SIGKILL)
    await working
    await asyncio.to_thread(process.wait)


@pytest.mark.crash
async def test_what_was_not_acknowledged_comes_back_and_what_was_does_not(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    life = Life(tmp_path, seed)
    for number in range(rounds + 1):
        chance = random.Random(seed + number)
        try:
            async with life.started(chance) as (process, load):
                if number == 0:
                    await load.create_topic()
                if number < rounds:
                    await killed_under_load(process, load, chance.choice((0.3, 1.5, 4.0)) * chance.random())
                    tally.add("kills")
                else:
                    tally.add("acknowledged", await load.drain())
                    code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
                    assert code == 0, err
        except BaseException as exc:
            exc.add_note(f"round {number}, seed {seed + number}")
            raise
    life.check()
    tally.add("sent", len(life.deeds.sent))
    tally.add("pops", life.deeds.pops)
    tally.add("popped again", life.deeds.again)
    tally.add("left open", len(life.deeds.open))
