"""A master and its slave lose power at random under load: with SYNC_FLUSH nothing that was answered with 0 is gone.

A master may lose what its slave has: messages that were sent to the slave and had not reached the master's disk. None
of them was answered with 0. The slave then says that the logs differ, replicates nothing, and an operator decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import SMALL, chances
from tests.crash.replicated import CAUGHT_UP_WITHIN, Load, Logs, sent
from tests.integration.broker.life_kit import Peer, new_name_server
from tests.ports import free_port

from pyromq.broker import Broker, load_settings
from pyromq.broker.replication.assembly import PlainReplication
from pyromq.store.check.store_check import Severity, check_store
from pyromq.store.config import StoreConfig
from pyromq.testing import Proxy
from pyromq.testing.power import RecordingDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.crash.conftest import Tally

NAMES = ("master", "slave")
ROUNDS_OF_A_PAIR = 15  # after which another pair begins: what a power failure leaves is written anew each time
CONFLICT = "until somebody decides which of the two is right"


class SlowDisk(RecordingDisk):
    """Records, always has room, and takes a while to sync the log: what is not on disk yet is lost with the power."""

    def used_ratio(self, folder: Path) -> float:
        return 0.1

    def sync(self, fd: int) -> None:
        if threading.current_thread().name == "flush":
            time.sleep(random.uniform(0.0, 0.03))
        super().sync(fd)


class PowerPair:
    """A master and a slave in this process, each on a disk that can lose power, with a line that can be cut."""

    def __init__(self, home: Path, namesrv: str, ports: dict[str, int], line: Proxy) -> None:
        self.home = home
        self.line = line
        self.address = f"127.0.0.1:{ports['master']}"
        roles = {
            "master": ["brokerRole=SYNC_MASTER"],
            "slave": ["brokerRole=SLAVE", "brokerId=1", f"haMasterAddress={line.address}"],
        }
        shared = [*SMALL, "brokerName=pair", "brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1", "flushDiskType=SYNC_FLUSH"]
        self._settings = {
            name: load_settings(
                sets=[
                    *shared,
                    *roles[name],
                    f"storePathRootDir={home / name}",
                    f"brokerConfigPath={home / name}.properties",
                    f"listenPort={ports[name]}",
                ],
                namesrv_addr=namesrv,
            )
            for name in NAMES
        }
        self._lives: dict[str, contextlib.AsyncExitStack] = {}
        self._disks: dict[str, SlowDisk] = {}
        self._brokers: dict[str, Broker] = {}
        self.logs = Logs(home / "master", home / "slave")

    async def start(self, name: str) -> None:
        folder = self.home / name
        folder.mkdir(exist_ok=True)
        disk = self._disks[name] = SlowDisk(folder)
        life = contextlib.AsyncExitStack()
        self._brokers[name] = await life.enter_async_context(Broker(self._settings[name], disk=disk))
        self._lives[name] = life

    def moment(self, name: str) -> int:
        """Now: nothing passes the line any more. What the disk does later never happened."""
        self.line.refuse()
        self.line.cut()
        return len(self._disks[name].events)

    async def lose_power(self, name: str, moment: int, chance: random.Random) -> None:
        await self.end(name)
        after = self.home / f"{name} after the power failure"
        self._disks[name].lose_power(after, chance, moment)
        await asyncio.to_thread(shutil.rmtree, self.home / name)
        after.rename(self.home / name)

    async def end(self, name: str) -> None:
        await self._lives.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self._lives):
            await self.end(name)

    def problem(self) -> str:
        """What the slave says is wrong."""
        parts = self._brokers["slave"]._parts
        assert parts is not None
        assert isinstance(parts.replication, PlainReplication)
        assert parts.replication.follower is not None
        return parts.replication.follower.problem or ""

    def log_end(self, name: str) -> int:
        parts = self._brokers[name]._parts
        assert parts is not None
        return int(parts.context.store.log.end)

    def check(self) -> None:
        """The stores of both, which have stopped, are in order."""
        for name in NAMES:
            findings = check_store(self.home / name, self._settings[name][StoreConfig])
            assert not [str(found) for found in findings if found.severity is not Severity.NOTE]


@contextlib.asynccontextmanager
async def running_pair(home: Path) -> AsyncIterator[PowerPair]:
    home.mkdir()  # noqa: ASYNC240 - nobody waits yet
    ports = {name: free_port() for name in NAMES}
    async with (
        new_name_server(home) as name_server,
        Proxy(f"127.0.0.1:{ports['master'] + 1}") as line,
        contextlib.AsyncExitStack() as life,
    ):
        pair = PowerPair(home, f"127.0.0.1:{name_server.port}", ports, line)
        life.push_async_callback(pair.close)
        for name in NAMES:
            await pair.start(name)
        yield pair
    pair.check()
    await asyncio.to_thread(shutil.rmtree, home)


@pytest.mark.crash
async def test_what_two_brokers_promised_survives_a_power_failure_of_both(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    async with Peer() as client:
        for first in range(0, rounds, ROUNDS_OF_A_PAIR):
            acknowledged: set[bytes] = set()
            async with running_pair(tmp_path / f"pair-{first}") as pair:
                for number in range(first, min(rounds, first + ROUNDS_OF_A_PAIR)):
                    with chances(seed, number) as chance:
                        acknowledged |= await one_round(client, pair, f"{seed}-{number}", chance, tally)
                tally.lost(await pair.logs.agree_all(acknowledged))


async def one_round(client: Peer, pair: PowerPair, prefix: str, chance: random.Random, tally: Tally) -> set[bytes]:
    """Take the power from one of the two, or from both, under load; then let them find together again."""
    victims: Sequence[str] = chance.choice((NAMES[:1], NAMES[:1], NAMES[1:], NAMES, NAMES, NAMES[::-1]))
    load = Load(client, pair.address, prefix)
    working = asyncio.create_task(load.run())
    await asyncio.sleep(chance.uniform(0.05, 0.8))
    if chance.random() < 0.4:
        # The slave has a part of a message when the power fails.
        pair.line.end_after(chance.randint(1, 3000))
        tally.add("cuts in a message")
        await asyncio.sleep(chance.uniform(0.0, 0.05))
    between = chance.choice((0.0, 0.0, chance.uniform(0.0, 0.3)))
    moments: dict[str, int] = {}
    for victim in victims:
        if moments and between:
            await asyncio.sleep(between)
        moments[victim] = pair.moment(victim)
        if victim == "master":
            load.master_is_gone()
        tally.add(f"power failures of the {victim}")
    load.end()
    for victim in victims:
        await pair.lose_power(victim, moments[victim], chance)
    await working
    for victim in sorted(victims):
        await pair.start(victim)
    for number in range(chance.choice((0, 3, 100))):
        # The master may write on before its slave finds it.
        await sent(client, pair.address, number % 4, b"meanwhile")
    pair.line.restore()
    await heal(client, pair, chance, tally)
    tally.lost(await pair.logs.agree(load.acknowledged))
    tally.add("rounds")
    tally.add("acknowledged", len(load.acknowledged))
    return load.acknowledged


async def heal(client: Peer, pair: PowerPair, chance: random.Random, tally: Tally) -> None:
    """Wait until the slave has caught up. If it says that the logs differ, that must be true, and is dealt with."""
    async with asyncio.timeout(CAUGHT_UP_WITHIN):
        while await sent(client, pair.address, 0, b"are you there?") != 0:
            if CONFLICT in pair.problem():
                end = pair.log_end("slave")
                assert end > pair.log_end("master") or pair.logs.differ_before(end), pair.problem()
                tally.add("conflicts reported")
                await decide(pair, chance.random() < 0.5, tally)
            await asyncio.sleep(0.02)


async def decide(pair: PowerPair, with_older: bool, tally: Tally) -> None:
    """What an operator does: the master is right, the slave begins anew (docs/how-to/replicate.md)."""
    await pair.end("slave")
    shutil.rmtree(pair.home / "slave")
    if with_older:
        await pair.end("master")
        shutil.copytree(pair.home / "master", pair.home / "slave")
        await pair.start("master")
        tally.add("stores copied by hand")
    await pair.start("slave")
