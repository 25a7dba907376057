"""`pyromq broker` on a disk that can lose power or fill up, with a clock that can jump.

python -m tests.chaos.broker_process <store folder> <host to connect from> <arguments of pyromq broker>

Orders come as lines on stdin:

    power <seed> <folder>   the power fails: what the disk may hold then is written to the folder, and the process ends
    full <bytes>            the disk is full after so many more bytes
    free                    it has room again
    clock <seconds>         the wall clock is so far off from now on
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.testing.power import RecordingDisk

if TYPE_CHECKING:
    from collections.abc import Callable

# The exit codes of a process whose power failed, and of one whose test has died.
LOST_POWER, ORPHANED = 77, 78

_real_time, _real_time_ns = time.time, time.time_ns


class ChaosDisk(RecordingDisk):
    """Records every change, always says that it has room, and may run out of it."""

    space: int | None = None

    def boot_id(self) -> str | None:
        """The machine's, and how often its power failed as far as this broker is concerned."""
        return f"{super().boot_id()}-{failures_of_power(self.root)}"

    def used_ratio(self, folder: Path) -> float:
        return 0.1

    def write(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        space = self.space
        if space is not None:
            if len(data) > space:
                self.space = 0
                super().write(fd, memoryview(data)[:space], at)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.space = space - len(data)
        super().write(fd, data, at)

    def create(self, path: Path, size: int, *, reserve: bool = True) -> int:
        if self.space is not None and reserve and size > self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().create(path, size, reserve=reserve)

    def end_power(self, seed: int, into: Path) -> None:
        """Nothing is written from the moment this is called, and the process does not live to say anything else."""
        with self._lock:
            self.lose_power(into, random.Random(seed))
            os._exit(LOST_POWER)


def failures_of_power(folder: Path) -> int:
    """How often the power of the broker with this store failed; it is counted beside the store."""
    try:
        return int(beside(folder).read_text())
    except FileNotFoundError:
        return 0


def beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.power")


class Clock:
    """The wall clock of this process, which may be wrong."""

    def __init__(self) -> None:
        self.offset = 0

    def time(self) -> float:
        return _real_time() + self.offset

    def time_ns(self) -> int:
        return _real_time_ns() + self.offset * 1_000_000_000


def obey(disk: ChaosDisk, clock: Clock) -> None:
    for line in sys.stdin:
        match line.rstrip("\n").split(" ", 2):
            case ["power", seed, folder]:
                disk.end_power(int(seed), Path(folder))
            case ["full", space]:
                disk.space = int(space)
            case ["free"]:
                disk.space = None
            case ["clock", seconds]:
                clock.offset = int(seconds)
            case other:
                raise ValueError(other)
    os._exit(ORPHANED)  # whoever gave the orders is gone


def connect_from(host: str) -> None:
    """Let every connection to this machine come from `host`, so that the other end sees whose it is."""
    loops: list[Any] = [asyncio.BaseEventLoop]
    with contextlib.suppress(ImportError):
        import uvloop

        loops.append(uvloop.Loop)
    for loop in loops:
        loop.create_connection = _from(host, loop.create_connection)


def _from(own: str, connect: Callable[..., Any]) -> Callable[..., Any]:
    async def create_connection(self: Any, protocol: Any, host: Any = None, port: Any = None, **how: Any) -> Any:
        if str(host).startswith("127."):
            how.setdefault("local_addr", (own, 0))
        return await connect(self, protocol, host, port, **how)

    return create_connection


def main(folder: Path, host: str, arguments: list[str]) -> int:
    clock = Clock()
    time.time, time.time_ns = clock.time, clock.time_ns
    from pyromq.broker import Broker
    from pyromq.cli.servers import broker

    connect_from(host)
    folder.mkdir(parents=True, exist_ok=True)
    disk = ChaosDisk(folder)
    vars(broker)["Broker"] = functools.partial(Broker, disk=disk)
    threading.Thread(target=obey, args=(disk, clock), daemon=True).start()
    return broker.main(arguments)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
