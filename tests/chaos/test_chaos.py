"""A group that fails over, with everything going wrong at random: what clients were told stays true.

make chaos ARGS="--rounds 100 --seed 7 -k three-etcd"
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.chaos.checking import check
from tests.chaos.faults import ETCD_KINDS, KINDS, Fault, faults_of_round, happen, lost
from tests.chaos.group import running_group
from tests.chaos.load import running_load
from tests.integration.controller.etcd_kit import needs_etcd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.group import Group
    from tests.chaos.load import Load
    from tests.chaos.tally import Tally

ROUNDS_OF_A_GROUP = 12  # after which another one begins
TOO_MANY = 3  # groups that went wrong


@dataclass(frozen=True, slots=True)
class Kind:
    """How many brokers a group has, and where its controllers keep their decisions."""

    brokers: int
    etcd: bool


KINDS_OF_GROUPS = [
    pytest.param(Kind(2, etcd=False), id="two-journal"),
    pytest.param(Kind(3, etcd=False), id="three-journal"),
    pytest.param(Kind(2, etcd=True), id="two-etcd", marks=needs_etcd),
    pytest.param(Kind(3, etcd=True), id="three-etcd", marks=needs_etcd),
]


@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS_OF_GROUPS)
async def test_chaos(
    tmp_path: Path, rounds: int, seed: int, tally: Tally, kind: Kind, request: pytest.FixtureRequest
) -> None:
    wanted = (request.config.getoption("--faults") or "").split(",")
    kinds = [each for each in (ETCD_KINDS if kind.etcd else KINDS) if any(words in each for words in wanted)]
    if not kinds:
        pytest.skip(f"such a group has no fault named {' or '.join(wanted)}")
    print(f"\n{request.node.name}: {rounds} rounds from seed {seed} on", flush=True)
    failures: list[str] = []
    while (first := tally.counts["rounds"]) < rounds and len(failures) < TOO_MANY:
        numbers = range(first, min(rounds, first + ROUNDS_OF_A_GROUP))
        home = tmp_path / f"group-{first}"
        try:
            await one_group(home, kind, seed, numbers, kinds, tally)
        except Exception as exc:  # whatever it was, other groups may find something else
            again = f"--rounds {tally.counts['rounds'] - first} --seed {seed + first} -k {request.node.callspec.id}"
            notes = "\n".join(getattr(exc, "__notes__", ()))
            failures.append(f"{notes}\n{exc!r}\nits files: {home}\nagain: {again}")
            tally.violations.append(failures[-1])
            print(failures[-1], flush=True)
    assert not failures, "\n".join(failures)


async def one_group(home: Path, kind: Kind, seed: int, numbers: Sequence[int], kinds: list[str], tally: Tally) -> None:
    """The rounds of one group, from its first start to its end. Each begins at a seed of its own."""
    chance = random.Random(seed + numbers[0])
    settings = [f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}"]
    if kind.brokers > 2 and chance.random() < 0.5:
        settings.append("minInSyncReplicas=2")
    print(f"a group of {kind}, {settings}", flush=True)
    async with running_group(home, kind.brokers, settings, etcd=kind.etcd) as group:
        async with running_load(group.namesrv_address) as load:
            for number in numbers:
                chance = random.Random(seed + number)
                faults = faults_of_round(chance, kinds)
                try:
                    await one_round(group, load, f"{seed}-{number}", chance, faults, tally)
                except BaseException as exc:
                    exc.add_note(f"round {number} of seed {seed}, {kind}, {settings}: {', '.join(map(str, faults))}")
                    load.records.save(home / "records")
                    raise
        await group.stop()
    await asyncio.to_thread(shutil.rmtree, home)


async def one_round(
    group: Group, load: Load, prefix: str, chance: random.Random, faults: list[Fault], tally: Tally
) -> None:
    """Load, faults, healing, checks."""
    began = time.monotonic()
    tally.counts["rounds"] += 1
    print(f"{prefix}: {', '.join(map(str, faults))}", flush=True)
    before = await group.info()
    assert before is not None
    master = await group.whole()
    records = load.records
    acknowledged, consumed = len(records.acknowledged), len(records.consumed)
    ended = asyncio.Event()
    working = asyncio.create_task(load.run(prefix, chance, ended))
    try:
        gone = lost(faults, on_disk=group.on_disk)
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                tasks.create_task(happen(fault, group, master, gone, tally))
        group.restore()
        await group.whole()
        await asyncio.sleep(chance.uniform(0.1, 0.5))  # the group under load again
    finally:
        ended.set()
        await working
    await group.whole()
    violations = await check(group, records)
    after = await group.info()
    tally.counts["acknowledged"] += len(records.acknowledged) - acknowledged
    tally.counts["consumed"] += len(records.consumed) - consumed
    if after is not None:
        tally.counts["fail-overs"] += after.master_epoch - before.master_epoch
    took, more = time.monotonic() - began, len(records.acknowledged) - acknowledged
    print(f"{prefix}: {took:.1f} s, {more} acknowledged, {len(violations)} violations", flush=True)
    assert not violations, "\n".join(violations[:20])


USUAL = ["kill of the master", "stop of the slave", "cut on the controller line of the master"]
USUAL_IN_ETCD = ["kill of the controller", "kill of the etcd leader", "kill of the master"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("etcd", "kinds"),
    [pytest.param(False, USUAL, id="journal"), pytest.param(True, USUAL_IN_ETCD, id="etcd", marks=needs_etcd)],
)
async def test_a_group_lives_through_the_usual_faults(
    tmp_path: Path, tally: Tally, etcd: bool, kinds: list[str]
) -> None:
    """What `make chaos` does, for a few rounds with the same faults each time."""
    home = tmp_path / "group"
    chance = random.Random(1)
    async with running_group(home, 2, ["flushDiskType=ASYNC_FLUSH"], etcd=etcd) as group:
        first, second = (member.lines for member in group.members)
        assert any(proxy.connections for proxy in first.with_broker(second).proxies), "brokers connect past their lines"
        async with running_load(group.namesrv_address) as load:
            for kind in kinds:
                await one_round(group, load, kind.replace(" ", "-"), chance, [Fault(kind, 0.3, 1.0, 1)], tally)
        await group.stop()
    assert tally.counts["rounds"] == len(kinds)
    assert tally.counts["fail-overs"] >= 1
