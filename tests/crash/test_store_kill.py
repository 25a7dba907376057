"""A writer that is killed at any moment loses nothing that it acknowledged."""

from __future__ import annotations

import dataclasses
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from tests.crash.ledger import Ledger
from tests.crash.verifying import verify
from tests.crash.workload import Acknowledged, Event, Opened, describe, random_config, start_time
from tests.crash.writer import Settings

from pyromq.store import FlushDiskType, failpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.conftest import Tally

    from pyromq.store import StoreConfig

WRITER = Path(__file__).with_name("writer.py")
ROUNDS_PER_STORE = 10
PATIENCE = 60  # seconds; a writer that takes longer hangs


class Fate(NamedTuple):
    """How a writer is to end. Times are seconds after its start, and after the store was open."""

    failpoint: str = ""
    kill_after: float | None = None
    kill_after_opening: float | None = None
    steps: int = 10**9  # then it stops by itself


def random_fate(chance: random.Random) -> Fate:
    match chance.choice(("kill",) * 4 + ("kill early",) * 2 + ("failpoint",) * 5 + ("stop",)):
        case "kill":
            return Fate(kill_after_opening=chance.random() * chance.choice((0.05, 0.5)))
        case "kill early":  # while it recovers what the one before it left
            return Fate(kill_after=0.1 + 0.4 * chance.random())
        case "failpoint":
            name = chance.choice(sorted(failpoints.NAMES))
            failpoint = f"{name}=exit:{chance.choice((1, 1, 2, 5, 20))}"
            if name.startswith("close"):
                return Fate(failpoint, steps=chance.choice((0, 10, 100)))
            return Fate(failpoint, kill_after_opening=0.5)  # if it does not come by there
    return Fate(steps=chance.randint(0, 100))


class Writer:
    """A process that writes, until it ends by itself, at a failpoint, or because it is killed."""

    def __init__(self, config: StoreConfig, seed: int, clock: float, fate: Fate) -> None:
        values = dataclasses.asdict(config) | {"flush": config.flush.value}
        settings = Settings(config=values, seed=seed, clock=clock, steps=fate.steps)
        self._fate = fate
        self._process = subprocess.Popen(
            [sys.executable, str(WRITER), msgspec.json.encode(settings).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | ({failpoints.VARIABLE: fate.failpoint} if fate.failpoint else {}),
        )

    def run(self) -> Iterator[list[Event]]:
        """What it tells, as it comes in, until it ends."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        fate = self._fate
        decoder = msgspec.json.Decoder(Event)
        began = time.monotonic()
        kill_at = began + (PATIENCE if fate.kill_after is None else fate.kill_after)
        data = b""
        while True:
            ready, _, _ = select.select([fd], [], [], max(0.0, kill_at - time.monotonic()))
            if not ready:
                assert time.monotonic() - began < PATIENCE, "the writer hangs"
                self._process.send_signal(signal.SIGKILL)
                kill_at = began + PATIENCE
                continue
            piece = os.read(fd, 1 << 20)
            if not piece:
                return
            # What comes after the last whole line was never told.
            *lines, data = (data + piece).split(b"\n")
            events = [decoder.decode(line) for line in lines if line]
            if fate.kill_after_opening is not None and any(isinstance(event, Opened) for event in events):
                kill_at = time.monotonic() + fate.kill_after_opening
            yield events

    def wait(self) -> str:
        """How it ended. An error of its own fails the test."""
        _, errors = self._process.communicate()
        ends = {0: "clean stops", failpoints.EXIT_CODE: "ends at a failpoint", -signal.SIGKILL: "kills"}
        assert self._process.returncode in ends, errors.decode()
        return ends[self._process.returncode]


@pytest.mark.crash
@pytest.mark.scenario("store 5")
def test_what_a_killed_writer_acknowledged_is_there(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    for first in range(0, rounds, ROUNDS_PER_STORE):
        root = tmp_path / f"store{first}"
        root.mkdir()
        config = random_config(root, random.Random(seed + first))
        ledger, clock, found = Ledger(), start_time(), None
        for number in range(first, min(first + ROUNDS_PER_STORE, rounds)):
            chance = random.Random(seed + number)
            config = dataclasses.replace(config, flush=chance.choice(tuple(FlushDiskType)))
            fate = random_fate(chance)
            writer = Writer(config, seed + number, clock, fate)
            ledger.opened = None
            for events in writer.run():
                ledger.learn(events)
                tally.add("messages acknowledged", sum(isinstance(event, Acknowledged) for event in events))
            tally.add("rounds")
            tally.add(writer.wait())
            if found is not None:
                assert ledger.opened in (None, found.log), "a copy of the store was recovered to another end"
            clock = max([clock, *(ack.time / 1000 for ack in ledger.acknowledged.values())]) + 1
            try:
                found = verify(config, ledger, tmp_path / f"copy{number}", chance, clock)
            except BaseException as exc:
                exc.add_note(f"round {number}, seed {seed + number}, {fate}, {describe(config)}")
                raise
            tally.add("times one was read back", found.required)
            tally.lost(found.missing)
        shutil.rmtree(root)
