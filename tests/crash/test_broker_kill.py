"""A broker that is killed under load, with clients connected, loses nothing that it acknowledged."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.crash.broker_load import GROUP, QUEUES, TOPIC, Load, Promises
from tests.integration.broker.command_kit import free_port, line_with, run, started, stop

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally

# Seconds that saving the offsets may take longer than the pause between two savings, on a busy machine.
SLACK = 1.5

BROKER_A = ".pyromq/broker-a"
FOLDERS = {"broker": "store", "up": BROKER_A}


class Life:
    """One broker in its folder, which is started, killed and stopped again and again."""

    def __init__(self, home: Path, command: str, seed: int) -> None:
        self._home = home
        self._command = command
        self._port = free_port()
        self._seed = seed
        self._number = 0
        self.promises = Promises()

    @asynccontextmanager
    async def started(self, chance: random.Random, interval: int) -> AsyncIterator[tuple[subprocess.Popen[str], Load]]:
        """The process and its clients. Offsets are saved every `interval` milliseconds."""
        settings = [
            "mappedFileSizeCommitLog=1m",
            "mappedFileSizeConsumeQueue=20000",
            "maxHashSlotNum=1000",
            "maxIndexNum=4000",
            "bindAddress=127.0.0.1",
            "drainSeconds=0",
            f"flushConsumerOffsetInterval={interval}",
            f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}",
        ]
        if self._command == "up":
            arguments = ["up", "--namesrv-port", "0", "--broker-port", str(self._port), *settings]
        else:
            place = [f"storePathRootDir={self._home / 'store'}", f"listenPort={self._port}", "brokerIP1=127.0.0.1"]
            arguments = ["broker", "--log-level", "warning", *place, *settings]
        self._number += 1
        prefix = f"{self._seed}-{self._number}"
        with started(self._home, *arguments) as process:
            await asyncio.to_thread(line_with, process, "is ready" if self._command == "up" else "boot success")
            async with Load(f"127.0.0.1:{self._port}", self.promises, chance, prefix) as load:
                yield process, load

    def check(self) -> None:
        """`pyromq check` finds nothing to complain of, once the broker has stopped."""
        code, out, err = run(self._home, "check", FOLDERS[self._command])
        assert code == 0, out + err


async def killed_under_load(process: subprocess.Popen[str], load: Load, after: float) -> float:
    """Let all clients work for a while, then kill the broker; gives when that was."""
    working = asyncio.create_task(load.run_until_killed())
    await asyncio.wait([working], timeout=after)
    moment = time.monotonic()
    process.send_signal(signal.SIGKILL)
    await working
    await asyncio.to_thread(process.wait)
    return moment


async def kill_again_and_again(life: Life, rounds: int, seed: int, tally: Tally) -> None:
    killed, interval = None, 0
    for number in range(rounds + 1):
        chance = random.Random(seed + number)
        oldest = interval / 1000 + SLACK
        interval = chance.choice((50, 200, 500))
        try:
            async with life.started(chance, interval) as (process, load):
                if number == 0:
                    await load.create_topics()
                tally.add("times one was read back", await load.verify(killed, oldest))
                if number == rounds or chance.random() < 0.3:
                    tally.add("delayed messages delivered", await load.wait_for_delayed())
                    code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
                    assert code == 0, err
                    life.check()
                    tally.add("clean stops")
                    killed = None
                else:
                    after = chance.choice((0.05, 0.3, 1.0, 2.5)) * chance.random()
                    killed = await killed_under_load(process, load, after)
                    tally.add("messages acknowledged", load.acknowledged)
                    tally.add("kills")
        except BaseException as exc:
            exc.add_note(f"round {number}, seed {seed + number}")
            raise
    tally.add("lost", 0)


@pytest.mark.crash
async def test_a_killed_broker_has_all_that_it_acknowledged(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    await kill_again_and_again(Life(tmp_path, "broker", seed), rounds, seed, tally)


@pytest.mark.crash
async def test_so_has_a_killed_pyromq_up(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    await kill_again_and_again(Life(tmp_path, "up", seed), -(-rounds // 4), seed, tally)


@pytest.mark.crash
@pytest.mark.scenario("broker 9.4")
async def test_offsets_are_at_most_five_seconds_old_with_the_stock_setting(tmp_path: Path, seed: int, tally: Tally):
    life = Life(tmp_path, "broker", seed)
    chance = random.Random(seed)
    async with life.started(chance, 5000) as (process, load):
        await load.create_topics()
        killed = await killed_under_load(process, load, 8.0)
    before = max(life.promises.required_commit(queue_id, killed - 5 - SLACK) for queue_id in range(QUEUES))
    assert before > 0, f"{GROUP} committed nothing of {TOPIC} in time"
    async with life.started(chance, 5000) as (process, load):
        tally.add("times one was read back", await load.verify(killed, 5 + SLACK))
        code, _, err = await asyncio.to_thread(stop, process, signal.SIGTERM)
        assert code == 0, err
    life.check()
