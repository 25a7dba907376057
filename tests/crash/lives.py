"""A broker that lives many times in one folder: started, put under load, killed, stopped, checked."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.integration.broker.command_kit import line_with, run, started, stop
from tests.ports import free_port

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

# Files that are soon full, and a broker that is on this machine only and does not wait for its clients to leave.
SMALL = (
    "mappedFileSizeCommitLog=256k",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "bindAddress=127.0.0.1",
    "drainSeconds=0",
    # A machine that is busy with tests is no overload.
    "brokerFastFailureEnable=false",
)
FOLDERS = {"broker": "store", "up": ".pyromq/broker-a"}


class Working(Protocol):
    async def run_until_killed(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a broker. `prefix` is for the names of what clients make in it: no other life has it."""

    process: subprocess.Popen[str]
    address: str
    prefix: str

    async def killed_under(self, load: Working, after: float) -> float:
        """Let all clients work for a while, then kill the broker; gives when that was, by the monotonic clock."""
        working = asyncio.create_task(load.run_until_killed())
        await asyncio.wait([working], timeout=after)
        moment = time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        await working
        await asyncio.to_thread(self.process.wait)
        return moment

    async def stop(self) -> None:
        code, _, err = await asyncio.to_thread(stop, self.process, signal.SIGTERM)
        assert code == 0, err


class Lives:
    """All lives of one broker, in its folder and on its port, as `pyromq broker` or `pyromq up`."""

    def __init__(self, home: Path, seed: int, command: str = "broker") -> None:
        self._home = home
        self._seed = seed
        self._command = command
        self._port = free_port()
        self._number = 0

    @asynccontextmanager
    async def begin(self, chance: random.Random, *settings: str) -> AsyncIterator[Life]:
        """Start the broker with these settings besides the small ones, and the disk flushed one way or the other."""
        flush = f"flushDiskType={chance.choice(('ASYNC_FLUSH', 'ASYNC_FLUSH', 'SYNC_FLUSH'))}"
        settings = (*SMALL, *settings, flush)
        if self._command == "up":
            arguments = ["up", "--namesrv-port", "0", "--broker-port", str(self._port), *settings]
        else:
            place = [f"storePathRootDir={self._home / 'store'}", f"listenPort={self._port}", "brokerIP1=127.0.0.1"]
            arguments = ["broker", "--log-level", "error", *place, *settings]
        self._number += 1
        with started(self._home, *arguments) as process:
            await asyncio.to_thread(line_with, process, "is ready" if self._command == "up" else "boot success")
            yield Life(process, f"127.0.0.1:{self._port}", f"{self._seed}-{self._number}")

    def check(self) -> None:
        """`pyromq check` finds nothing to complain of, once the broker has stopped."""
        code, out, err = run(self._home, "check", FOLDERS[self._command])
        assert code == 0, out + err


@contextmanager
def chances(seed: int, number: int) -> Iterator[random.Random]:
    """What a round leaves to chance, the same for a seed. An error says which round it was."""
    try:
        yield random.Random(seed + number)
    except BaseException as exc:
        exc.add_note(f"round {number}, seed {seed + number}")
        raise
