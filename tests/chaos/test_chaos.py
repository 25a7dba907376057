"""A group that fails over, with everything going wrong at random: what clients were told stays true.

make chaos ARGS="--rounds 100 --seed 7 -k three"
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from tests.chaos.checking import check
from tests.chaos.faults import KINDS, Fault, faults_of_round, happen
from tests.chaos.group import running_group
from tests.chaos.load import running_load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.group import Group
    from tests.chaos.load import Load
    from tests.chaos.tally import Tally

ROUNDS_OF_A_GROUP = 12  # after which another one begins


@pytest.mark.chaos
@pytest.mark.parametrize("brokers", [2, 3], ids=["two", "three"])
async def test_chaos(
    tmp_path: Path, rounds: int, seed: int, tally: Tally, brokers: int, request: pytest.FixtureRequest
) -> None:
    wanted = request.config.getoption("--faults")
    kinds = [kind for kind in KINDS if wanted is None or wanted in kind]
    assert kinds, f"there is no fault named {wanted}"
    for first in range(0, rounds, ROUNDS_OF_A_GROUP):
        numbers = range(first, min(rounds, first + ROUNDS_OF_A_GROUP))
        await one_group(tmp_path / f"group-{first}", brokers, seed, numbers, kinds, tally)


async def one_group(
    home: Path, brokers: int, seed: int, numbers: Sequence[int], kinds: list[str], tally: Tally
) -> None:
    """The rounds of one group, from its first start to its end. Each begins at a seed of its own."""
    chance = random.Random(seed + numbers[0])
    settings = [f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}"]
    if brokers > 2 and chance.random() < 0.5:
        settings.append("minInSyncReplicas=2")
    async with running_group(home, brokers, settings) as group:
        async with running_load(group.namesrv_address) as load:
            for number in numbers:
                chance = random.Random(seed + number)
                faults = faults_of_round(chance, kinds)
                try:
                    await one_round(group, load, f"{seed}-{number}", chance, faults, tally)
                except BaseException as exc:
                    exc.add_note(f"round {number} of seed {seed} with {brokers} brokers, {settings}: {faults}")
                    raise
        await group.stop()
    await asyncio.to_thread(shutil.rmtree, home)


async def one_round(
    group: Group, load: Load, prefix: str, chance: random.Random, faults: list[Fault], tally: Tally
) -> None:
    """Load, faults, healing, checks."""
    began = time.monotonic()
    before = await group.info()
    assert before is not None
    master = await group.whole()
    records = load.records
    acknowledged, consumed = len(records.acknowledged), len(records.consumed)
    ended = asyncio.Event()
    working = asyncio.create_task(load.run(prefix, chance, ended))
    try:
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                tasks.create_task(happen(fault, group, master, tally))
        for member in group.members:
            member.restore()
        await group.whole()
        await asyncio.sleep(chance.uniform(0.1, 0.5))  # the group under load again
    finally:
        ended.set()
        await working
    await group.whole()
    violations = await check(group, records)
    after = await group.info()
    tally.counts["rounds"] += 1
    tally.counts["acknowledged"] += len(records.acknowledged) - acknowledged
    tally.counts["consumed"] += len(records.consumed) - consumed
    if after is not None:
        tally.counts["fail-overs"] += after.master_epoch - before.master_epoch
    tally.violations += violations
    what = ", ".join(fault.kind for fault in faults)
    print(f"{prefix}: {time.monotonic() - began:.1f} s, {what}", flush=True)  # seen with -s
    assert not violations, "\n".join(violations[:20])


QUIET = ["kill of the master", "stop of the slave", "cut on the controller line of the master"]


@pytest.mark.slow
async def test_a_group_lives_through_the_usual_faults(tmp_path: Path, tally: Tally) -> None:
    """What `make chaos` does, for a few rounds with the same faults each time."""
    home = tmp_path / "group"
    chance = random.Random(1)
    async with running_group(home, 2, ["flushDiskType=ASYNC_FLUSH"]) as group:
        async with running_load(group.namesrv_address) as load:
            for kind in QUIET:
                await one_round(group, load, kind.replace(" ", "-"), chance, [Fault(kind, 0.3, 1.0, 1)], tally)
        await group.stop()
    assert tally.counts["rounds"] == len(QUIET)
    assert tally.counts["fail-overs"] >= 1
