"""The process that is killed: opens a store, uses it, and says on its standard output what it acknowledged.

python writer.py <settings as JSON>
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Settings(msgspec.Struct):
    config: dict[str, str | int | bool]
    seed: int
    clock: float
    steps: int  # then the store is closed


def main(settings: Settings) -> None:
    from tests.crash.workload import Clock, Event, Opened, RoomyDisk, Workload

    from pyromq.store import FlushDiskType, MessageStore, StoreConfig

    encoder = msgspec.json.Encoder()

    def tell(events: Sequence[Event]) -> None:
        # At once: what was told cannot be taken back by killing this process.
        data = encoder.encode_lines(events)
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]

    chance = random.Random(settings.seed)
    clock = Clock(settings.clock)
    config = StoreConfig(**{**settings.config, "flush": FlushDiskType(settings.config["flush"])})  # type: ignore[arg-type]
    with MessageStore(config, disk=RoomyDisk(), clock=clock) as store:
        tell([Opened(int(store.log.start), int(store.log.end))])
        workload = Workload(store, clock, chance, tell, f"{settings.seed:08d}-")
        for _ in range(settings.steps):
            workload.step()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(msgspec.json.decode(sys.argv[1], type=Settings))
