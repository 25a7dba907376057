"""A master and its slave, killed, stopped and cut off at random under load: what was answered with 0 is on both."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import SMALL, chances
from tests.crash.replicated import Load, Logs, caught_up
from tests.integration.broker.command_kit import environment, line_with, run, stop
from tests.integration.broker.life_kit import Peer, new_name_server
from tests.ports import free_port

from pyromq.testing import Proxy

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.conftest import Tally

NAMES = ("master", "slave")
SLAVE_TIMEOUT = 3.0  # seconds after which a SYNC_MASTER answers with 12


class Pair:
    """A master and a slave in folders of their own, with a line between them that can be cut."""

    def __init__(self, home: Path, namesrv: str, ports: dict[str, int], line: Proxy) -> None:
        self.home = home
        self.line = line
        self.address = f"127.0.0.1:{ports['master']}"
        roles = {
            "master": ["brokerRole=SYNC_MASTER"],
            "slave": ["brokerRole=SLAVE", "brokerId=1", f"haMasterAddress={line.address}"],
        }
        self._settings = {
            name: [*SMALL, *roles[name], "brokerName=pair", f"namesrvAddr={namesrv}", f"listenPort={ports[name]}"]
            for name in NAMES
        }
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.logs = Logs(home / "master", home / "slave")

    async def start(self, name: str, flush: str) -> None:
        place = [f"storePathRootDir={self.home / name}", "brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1"]
        arguments = ["broker", "--log-level", "error", *place, *self._settings[name], f"flushDiskType={flush}"]
        with (self.home / f"{name}.err").open("a") as errors:
            process = self._processes[name] = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
                [sys.executable, "-m", "pyromq.cli.main", *arguments],
                env=environment(self.home),
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        await asyncio.to_thread(self._booted, process, name)

    def _booted(self, process: subprocess.Popen[str], name: str) -> None:
        try:
            line_with(process, "boot success")
        except AttributeError:
            raise AssertionError((self.home / f"{name}.err").read_text()) from None

    def assert_alive(self) -> None:
        for name, process in self._processes.items():
            assert process.poll() is None, (self.home / f"{name}.err").read_text()

    def signal(self, name: str, number: int) -> None:
        self._processes[name].send_signal(number)

    async def kill(self, name: str) -> None:
        with self._processes[name] as process:
            process.kill()

    async def end(self, name: str) -> None:
        """Stop it as operators do; its store must be in order."""
        code, _, _ = await asyncio.to_thread(stop, self._processes[name], signal.SIGTERM)
        assert code == 0, (self.home / f"{name}.err").read_text()
        code, out, err = await asyncio.to_thread(run, self.home, "check", name)
        assert code == 0, out + err

    async def close(self) -> None:
        for name in self._processes:
            await self.kill(name)


@contextlib.asynccontextmanager
async def running_pair(home: Path, flush: str) -> AsyncIterator[Pair]:
    ports = {name: free_port() for name in NAMES}
    async with (
        new_name_server(home) as name_server,
        Proxy(f"127.0.0.1:{ports['master'] + 1}") as line,
        contextlib.AsyncExitStack() as life,
    ):
        pair = Pair(home, f"127.0.0.1:{name_server.port}", ports, line)
        life.push_async_callback(pair.close)
        for name in NAMES:
            await pair.start(name, flush)
        yield pair


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong `after` so many seconds of a round, and how long that lasts."""

    kind: str
    after: float
    lasts: float
    flush: str  # of a broker that is started again
    size: int  # bytes that a line still passes

    async def happen(self, pair: Pair, tally: Tally) -> None:
        await asyncio.sleep(self.after)
        tally.add(self.kind)
        what, _, name = self.kind.partition(" of the ")
        match what:
            case "kills":
                await pair.kill(name)
                await asyncio.sleep(self.lasts)
                await pair.start(name, self.flush)
            case "stops" | "long stops":
                pair.signal(name, signal.SIGSTOP)
                await asyncio.sleep(self.lasts)
                pair.signal(name, signal.SIGCONT)
            case "cuts":
                pair.line.cut()
            case "cuts in a message":
                pair.line.end_after(self.size)
            case "refusals":
                pair.line.refuse()
                pair.line.cut()
                await asyncio.sleep(self.lasts)
                pair.line.restore()
            case "silences":
                pair.line.pause()
                await asyncio.sleep(self.lasts)
                pair.line.resume()
            case _:
                raise AssertionError(self.kind)


LINE = ("cuts of the line", "cuts in a message of the line", "refusals of the line", "silences of the line")
BROKERS = ("kills of the master", "kills of the slave", "stops of the master", "stops of the slave")


def faults_of_round(chance: random.Random) -> list[Fault]:
    """What goes wrong: one thing or several at once, at most one thing to each broker and to the line."""
    kinds = {kind.rpartition(" ")[2]: kind for kind in chance.choices(BROKERS + LINE, k=chance.randint(1, 4))}
    faults = []
    for kind in sorted(kinds.values()):
        lasts = chance.uniform(0.1, 1.0)
        if kind.startswith("stops") and chance.random() < 0.2:
            kind, lasts = f"long {kind}", chance.uniform(SLAVE_TIMEOUT + 0.2, 5.0)
        flush = chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        faults.append(Fault(kind, chance.uniform(0.0, 0.6), lasts, flush, chance.randint(1, 20_000)))
    return faults


@pytest.mark.crash
async def test_what_two_brokers_promised_both_have_whatever_goes_wrong(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    acknowledged: set[bytes] = set()
    async with running_pair(tmp_path, "ASYNC_FLUSH") as pair, Peer() as client:
        await caught_up(client, pair.address)
        for number in range(rounds):
            with chances(seed, number) as chance:
                acknowledged |= await one_round(client, pair, f"{seed}-{number}", faults_of_round(chance), tally)
        tally.lost(await pair.logs.agree_all(acknowledged))
        for name in NAMES:
            await pair.end(name)
        tally.lost(await pair.logs.agree_all(acknowledged))


async def one_round(client: Peer, pair: Pair, prefix: str, faults: list[Fault], tally: Tally) -> set[bytes]:
    """Let faults happen under load, and the two find together again."""
    load = Load(client, pair.address, prefix)
    working = asyncio.create_task(load.run())
    await asyncio.gather(*(fault.happen(pair, tally) for fault in faults))
    load.end()
    await working
    pair.line.restore()
    pair.assert_alive()
    await caught_up(client, pair.address)
    tally.lost(await pair.logs.agree(load.acknowledged))
    tally.add("rounds")
    tally.add("acknowledged", len(load.acknowledged))
    for code in (11, 12):
        tally.add(f"answered with {code}", load.answers[code])
    return load.acknowledged
