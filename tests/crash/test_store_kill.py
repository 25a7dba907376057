"""A writer that is killed at any moment loses nothing that it acknowledged."""

from __future__ import annotations

import dataclasses
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.crash.ledger import Ledger
from tests.crash.verifying import verify
from tests.crash.workload import Acknowledged, Event, Opened, describe, random_config, start_time
from tests.crash.writer import Settings

from pyromq.store import failpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.conftest import Tally

    from pyromq.store import StoreConfig

WRITER = Path(__file__).with_name("writer.py")
ROUNDS_PER_STORE = 10
PATIENCE = 60  # seconds; a writer that takes longer hangs


class Writer:
    """A process that writes, until it ends by itself, at a failpoint, or because it is killed."""

    def __init__(self, settings: Settings, failpoint: str = "") -> None:
        env = os.environ | ({failpoints.VARIABLE: failpoint} if failpoint else {})
        self._process = subprocess.Popen(
            [sys.executable, str(WRITER), msgspec.json.encode(settings).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )

    def run(self, kill_after: float | None, kill_after_opening: float | None) -> Iterator[list[Event]]:
        """What it acknowledged, as it comes in. Times are seconds after its start and after the store was open."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        decoder = msgspec.json.Decoder(Event)
        began = time.monotonic()
        kill_at = began + (PATIENCE if kill_after is None else kill_after)
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
            if kill_after_opening is not None and any(isinstance(event, Opened) for event in events):
                kill_at = time.monotonic() + kill_after_opening
            yield events

    def wait(self) -> int:
        """How it ended: 0, the code of failpoints, or minus the signal. Anything else fails the test."""
        _, errors = self._process.communicate()
        assert self._process.returncode in (0, failpoints.EXIT_CODE, -signal.SIGKILL), errors.decode()
        return self._process.returncode


def settings_of(config: StoreConfig, seed: int, clock: float, steps: int) -> Settings:
    values = dataclasses.asdict(config)
    return Settings(config=values | {"flush": config.flush.value}, seed=seed, clock=clock, steps=steps)


@pytest.mark.crash
@pytest.mark.scenario("store 5")
def test_what_a_killed_writer_acknowledged_is_there(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    ledger, config, clock = Ledger(), random_config(tmp_path / "none", random.Random(0)), 0.0
    for number in range(rounds):
        chance = random.Random(seed + number)
        if number % ROUNDS_PER_STORE == 0:
            ledger, config, clock = Ledger(), random_config(tmp_path / f"store{number}", chance), start_time()
        else:
            flush = random_config(tmp_path, chance).flush
            config = dataclasses.replace(config, flush=flush)
        failpoint, kill_after, kill_after_opening, steps = "", None, None, 10**9
        match chance.choice(("kill", "kill", "kill early", "failpoint", "failpoint", "failpoint", "close")):
            case "kill":
                kill_after_opening = chance.random() * chance.choice((0.05, 0.5))
            case "kill early":
                kill_after = 0.1 + 0.4 * chance.random()
            case "failpoint":
                name = chance.choice(sorted(failpoints.NAMES))
                failpoint = f"{name}=exit:{chance.choice((1, 1, 2, 5, 20))}"
                if name.startswith("close"):
                    steps = chance.choice((0, 10, 100))
                else:
                    kill_after_opening = 0.5  # if it does not come by there
            case "close":
                steps = chance.randint(0, 100)
        clock += 1
        writer = Writer(settings_of(config, seed + number, clock, steps), failpoint)
        for events in writer.run(kill_after, kill_after_opening):
            ledger.learn(events)
            tally.add("messages acknowledged", sum(isinstance(event, Acknowledged) for event in events))
        tally.add("rounds")
        tally.add({0: "clean stops", failpoints.EXIT_CODE: "ends at a failpoint"}.get(writer.wait(), "kills"))
        newest = max((ack.time for ack in ledger.acknowledged.values()), default=0)
        clock = max(clock, newest / 1000)
        try:
            found = verify(config, ledger, tmp_path / f"copy{number}", chance, clock)
        except BaseException as exc:
            exc.add_note(f"round {number}, seed {seed + number}, failpoint {failpoint!r}, {describe(config)}")
            raise
        tally.add("read back", found.required)
    tally.add("lost", 0)
