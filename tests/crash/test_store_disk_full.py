"""A disk that is full now and then costs messages that are refused, and none that were acknowledged."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.crash.ledger import Ledger
from tests.crash.verifying import verify
from tests.crash.workload import Clock, UnsyncedDisk, Workload, describe, random_config, start_time

from pyromq.errors import StoreError, StoreNotWritable
from pyromq.store import MessageStore
from pyromq.testing.power import abandon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.conftest import Tally

    from pyromq.store import StoreConfig

LIVES = 4  # of a store, in one round


class FillingDisk(UnsyncedDisk):
    """Runs out of space whenever chance has it, often in the middle of a write. What is there can be deleted."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_full = False
        self.refusals = 0

    def write(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        if self.is_full:
            fitting = self._chance.choice((0, self._chance.randint(0, len(data))))
            super().write(fd, memoryview(data)[:fitting], at)
            self._refuse()
        super().write(fd, data, at)

    def create(self, path: Path, size: int, *, reserve: bool = True) -> int:
        if self.is_full:
            self._refuse()
        return super().create(path, size, reserve=reserve)

    def reserve(self, fd: int, start: int, end: int) -> None:
        if self.is_full:
            self._refuse()
        super().reserve(fd, start, end)

    def _refuse(self) -> None:
        self.refusals += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def opened(config: StoreConfig, disk: FillingDisk, clock: Clock) -> MessageStore:
    """The store, opened once there is room enough."""
    while True:
        store = MessageStore(config, disk=disk, clock=clock)
        try:
            store.open()
        except StoreError:
            assert disk.is_full
            disk.is_full = False
        else:
            return store


def use(disk: FillingDisk, workload: Workload, chance: random.Random) -> None:
    for _ in range(chance.choice((5, 50, 150))):
        if chance.random() < 0.1:
            disk.is_full = not disk.is_full
        # Not stored, or a look-up that would have to write entries first.
        with contextlib.suppress(StoreNotWritable):
            workload.step()


@pytest.mark.crash
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    for number in range(rounds):
        chance = random.Random(seed + number)
        config = random_config(tmp_path / f"store{number}", chance)
        ledger, clock, disk = Ledger(), Clock(start_time()), FillingDisk(chance)
        for life in range(LIVES):
            disk.is_full = chance.random() < 0.3
            store = opened(config, disk, clock)
            workload = Workload(store, clock, chance, ledger.learn, f"{seed + number:08d}-{life}-")
            use(disk, workload, chance)
            disk.is_full = False
            with contextlib.suppress(StoreNotWritable):
                store.flusher.run(lambda: None).result(10)  # what began while there was no space may still fail
            if store.flusher.error is None:
                store.maintain()
                before = len(ledger.acknowledged)
                for _ in range(10):  # of what is put some is too long for one file
                    workload.put()
                assert len(ledger.acknowledged) > before, "there is room again, but messages are refused"
            disk.is_full = chance.random() < 0.3
            if chance.random() < 0.5:
                store.close()
            else:
                abandon(store)
            try:
                found = verify(config, ledger, tmp_path / f"copy{number}", chance, clock.now)
            except BaseException as exc:
                exc.add_note(f"round {number}, seed {seed + number}, life {life}, {describe(config)}")
                raise
            tally.lost(found.missing)
        tally.add("rounds")
        tally.add("calls that found no space", disk.refusals)
        tally.add("messages acknowledged", len(ledger.acknowledged))
        tally.add("times one was read back", found.required)
