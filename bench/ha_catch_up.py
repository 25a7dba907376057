"""A fresh slave of a master with a gigabyte: bytes a second until its queues have every message."""

from __future__ import annotations

import shutil
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import wire
from tests.interop.process import PeerFailed

from . import broker_frames as frames
from .broker_rounds import GET_MAX_OFFSET, too_short
from .broker_table import progress, show
from .ha_pairs import BODY, MAKES, TOPIC, fill, groups, held, record_size, rounds, slave_of

if TYPE_CHECKING:
    from .ha_pairs import Group

# All in one file of the log: RocketMQ sends a fresh slave only the last one.
MESSAGES, FEW_MESSAGES = 700_000, 100_000
LOOK_EVERY = 0.002  # seconds
STUCK = 120.0


class CatchUp(NamedTuple):
    rate: float  # MB of the log a second
    master_cpu: float  # seconds for a GB
    slave_cpu: float


def main(seconds: float) -> None:
    count = FEW_MESSAGES if too_short(seconds) else MESSAGES
    measured: dict[str, list[CatchUp]] = {make: [] for make in MAKES}
    with groups("ASYNC_MASTER", [(make, False) for make in MAKES]) as masters:
        for master in masters:
            with master.turn():
                progress(f"{master.make} gets {count:,} messages")
                fill(master.master, count)
        for number in range(rounds(seconds)):
            for master in masters:
                with master.turn():
                    result = _catch_up(master, number)
                measured[master.make].append(result)
                progress(f"{master.make}: {result.rate:,.0f} MB/s, slave {result.slave_cpu:.2f} s of CPU a GB")
    medians = [CatchUp(*map(statistics.median, zip(*results, strict=True))) for results in measured.values()]
    rows = [(make, *each, medians[0].rate / each.rate) for make, each in zip(MAKES, medians, strict=True)]
    tried = " (too few to conclude anything)" if too_short(seconds) else ""
    show(
        f"A fresh slave of a master with {count:,} messages of {BODY} B{tried}, median of {rounds(seconds)}",
        ("", "MB/s", "master CPU s/GB", "slave CPU s/GB", "ours / this"),
        rows,
    )


def _catch_up(group: Group, number: int) -> CatchUp:
    """From the first look that finds messages in the slave's queue until it has them all."""
    master = group.master
    total = held(master)
    size = record_size(master)
    home = group.home / f"slave-{number}"
    with slave_of(master, home) as slave:
        slave.wait_until_booted()
        deadline = time.monotonic() + STUCK
        first: tuple[int, float, float, float] | None = None
        with wire.Connection(slave.address) as connection:
            while True:
                have = int(connection.ask(GET_MAX_OFFSET, topic=TOPIC, queueId=frames.QUEUE).ext["offset"])
                now = time.perf_counter()
                if have >= total:
                    break
                if have and first is None:
                    first = have, now, master.cpu_seconds(), slave.cpu_seconds()
                if time.monotonic() > deadline:
                    raise PeerFailed(f"the slave of {group.make} has {have:,} of {total:,} messages after {STUCK:g} s")
                time.sleep(LOOK_EVERY)
        if first is None:
            raise PeerFailed(f"the slave of {group.make} had everything before it could be asked")
        copied = (total - first[0]) * size
        gigabytes = copied / 1e9
        cpu = (master.cpu_seconds() - first[2]) / gigabytes, (slave.cpu_seconds() - first[3]) / gigabytes
    shutil.rmtree(home, ignore_errors=True)
    return CatchUp(copied / (now - first[1]) / 1e6, *cpu)
