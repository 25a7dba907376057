"""A power failure takes nothing that was flushed, and leaves the rest whole or not at all."""

from __future__ import annotations

import copy
import dataclasses
import random
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.crash.ledger import Ledger
from tests.crash.verifying import verify
from tests.crash.workload import Acknowledged, Clock, Opened, Workload, describe, random_config, start_time

from pyromq.store import MessageStore
from pyromq.testing.power import RecordingDisk, abandon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.conftest import Tally

    from pyromq.store import StoreConfig

GENERATIONS = 3  # power failures in the life of a store
MOMENTS = 3  # at which power may fail, of which one is then the real one


class RoomyRecordingDisk(RecordingDisk):
    """Records, and always has room."""

    def used_ratio(self, folder: Path) -> float:
        return 0.1


def live(config: StoreConfig, disk: RecordingDisk, clock: Clock, chance: random.Random, prefix: str) -> None:
    """Use the store for a while; let its process be killed, or stop, once or twice in between."""
    for life in range(chance.randint(1, 3)):
        store = MessageStore(config, disk=disk, clock=clock)
        store.open()
        disk.note([Opened(int(store.log.start), int(store.log.end))])
        workload = Workload(store, clock, chance, disk.note, f"{prefix}{life}-")
        for _ in range(chance.choice((3, 30, 100))):
            workload.step()
        if chance.random() < 0.3:
            store.close()
        else:
            abandon(store)


@pytest.mark.crash
def test_what_was_flushed_survives_a_power_failure(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    for number in range(rounds):
        chance = random.Random(seed + number)
        clock = Clock(start_time())
        root = tmp_path / f"store{number}"
        root.mkdir()
        config = random_config(root, chance)
        ledger = Ledger()
        for generation in range(GENERATIONS):
            disk = RoomyRecordingDisk(root)
            before = len(disk.events)
            live(config, disk, clock, chance, f"{seed + number:08d}-{generation}-")
            tally.add("messages acknowledged", sum(isinstance(e, Acknowledged) for note in disk.notes() for e in note))
            for moment in range(MOMENTS):
                cut = chance.randint(before, len(disk.events))
                after = tmp_path / f"store{number}-{generation}-{moment}"
                disk.lose_power(after, chance, cut)
                expected = copy.deepcopy(ledger)
                for events in disk.notes(cut):
                    expected.learn(events)
                config = dataclasses.replace(config, root=str(after))
                try:
                    found = verify(config, expected, tmp_path / f"copy{number}", chance, clock.now, power_lost=True)
                except BaseException as exc:
                    exc.add_note(
                        f"round {number}, seed {seed + number}, generation {generation}, {after}, {describe(config)}"
                    )
                    raise
                shutil.rmtree(root, ignore_errors=True)
                root = after
                tally.add("power failures")
                tally.add("required and read back", found.required)
                tally.lost(found.missing)
                tally.add("not flushed and read back", len(found.records) - found.required)
            ledger = expected
            ledger.forget_lost(found)
        shutil.rmtree(root)
        tally.add("rounds")
