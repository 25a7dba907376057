"""A master loses its power under load: another takes over in time, with everything that was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.chaos.checking import check, files_of, read_log
from tests.chaos.group import running_group, until
from tests.chaos.load import running_load
from tests.integration.broker.life_kit import Peer

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import KVTable
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.chaos.group import Group
    from tests.chaos.server import Member

# The time after which a controller gives up a silent broker here, and as much again for a busy machine.
TAKEN_OVER_WITHIN = 2 * 2.0
LARGE = 1 << 20
NOTHING_LEFT = 14  # the seed of a power failure that takes everything that was not synced
MANY = 24  # more than fits between two processes


@pytest.mark.slow
@pytest.mark.scenario("ha 21")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_another_takes_over_and_the_old_master_cuts_off_what_nobody_else_has(tmp_path: Path, flush: str) -> None:
    """With ASYNC_FLUSH it lost what the other has; with SYNC_FLUSH it keeps messages that the other never got."""
    chance = random.Random(21)
    sets = [f"flushDiskType={flush}", "mappedFileSizeCommitLog=16m"]
    async with running_group(tmp_path / "group", 2, sets) as group:
        async with running_load(group.namesrv_address) as load:
            old = await group.whole()
            [new] = (member for member in group.members if member is not old)
            ended = asyncio.Event()
            working = asyncio.create_task(load.run("power", chance, ended))
            records = load.records
            try:
                await until(lambda: len(records.acknowledged) > 50, 60, lambda: "nothing is acknowledged")
                async with stores_alone(old, new) if flush == "SYNC_FLUSH" else contextlib.nullcontext():
                    await old.lose_power(21)
                assert await another_is_master(group, old) < TAKEN_OVER_WITHIN
                alone = read_log(files_of(old)).by_offset.keys() - read_log(files_of(new)).by_offset.keys()
                assert alone or flush != "SYNC_FLUSH"
                before = len(records.acknowledged)
                await until(lambda: len(records.acknowledged) > before + 20, 60, lambda: "nothing is taken any more")
                await old.start()
                assert await group.whole() is new
            finally:
                ended.set()
                await working
            assert await check(group, records) == []
        await group.stop()


@pytest.mark.slow
async def test_who_lost_power_waits_for_the_other_that_has_every_message(tmp_path: Path) -> None:
    """The power of the slave fails, and in the same moment its master is killed. The slave is back first."""
    chance = random.Random(17)
    sets = ["flushDiskType=ASYNC_FLUSH", "flushIntervalCommitLog=60000", "flushCommitLogThoroughInterval=60000"]
    async with running_group(tmp_path / "group", 2, [*sets, "mappedFileSizeCommitLog=16m"]) as group:
        async with running_load(group.namesrv_address) as load:
            master = await group.whole()
            [slave] = (member for member in group.members if member is not master)
            ended = asyncio.Event()
            working = asyncio.create_task(load.run("both", chance, ended))
            records = load.records
            try:
                await until(lambda: len(records.acknowledged) > 50, 60, lambda: "nothing is acknowledged")
                master.signal(signal.SIGSTOP)  # so that it cannot notice
                await slave.lose_power(NOTHING_LEFT)
                await master.kill()
                assert len(read_log(files_of(slave)).by_offset) < len(read_log(files_of(master)).by_offset)
                await slave.start()
                await group.doubts(slave)
                said = await group.info()
                assert said is not None
                assert said.master_broker_id is None
                await master.start()
                assert await group.whole() is master
            finally:
                ended.set()
                await working
            await group.whole()
            assert await check(group, records) == []
        await group.stop()


@contextlib.asynccontextmanager
async def stores_alone(old: Member, new: Member) -> AsyncIterator[None]:
    """Have the master store what its slave, which stands still, does not get. Nothing of it is acknowledged."""
    async with Peer() as peer:

        async def log_end() -> int:
            reply = await peer.ask(old.address, RequestCode.GET_BROKER_RUNTIME_INFO)
            return int(KVTable.decode(reply.body_bytes).table["commitLogMaxOffset"])

        start = await log_end()
        new.signal(signal.SIGSTOP)
        try:
            body = b"alone" * (LARGE // 5)
            sends = [asyncio.create_task(peer.send(old.address, body, topic="alone")) for _ in range(MANY)]
            async with asyncio.timeout(60):
                while await log_end() < start + MANY * len(body):  # noqa: ASYNC110 - other processes set no event
                    await asyncio.sleep(0.01)
            yield
        finally:
            new.signal(signal.SIGCONT)
        for refused in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(refused, PyroMQError)


async def another_is_master(group: Group, old: Member) -> float:
    """Wait for it; gives the seconds that it took."""
    began = time.monotonic()
    async with asyncio.timeout(60):
        while True:
            info = await group.info()
            if info is not None and info.master_broker_id not in (None, old.id):
                return time.monotonic() - began
            await asyncio.sleep(0.01)
