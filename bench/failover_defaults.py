"""A master dies or falls silent: how long until the next send is accepted, and what a producer sees of it.

`pyromq up --failover` runs the group, three brokers with the default settings. A producer with the default settings
sends one message after the other. The time is that from the signal to the first acknowledgement of a send that began
after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import statistics
import sys
import time
from typing import TYPE_CHECKING

from tests.interop.process import Process
from tests.ports import free_port

from pyromq import AdminClient, Producer
from pyromq.errors import PyroMQError

from .broker_peers import scratch
from .broker_table import progress, show

if TYPE_CHECKING:
    from pathlib import Path

KILLS, STOPS = 20, 5
QUICK_KILLS, QUICK_STOPS = 3, 1
QUICK = 2.0  # seconds per round below which this is only a look
PATIENCE = 60.0
GROUP, TOPIC = "broker-a", "failover"
MASTER = re.compile(rf"{GROUP}: (?:master )?\S+ \(process (\d+)\)")


def main(seconds: float) -> None:
    kills, stops = (KILLS, STOPS) if seconds > QUICK else (QUICK_KILLS, QUICK_STOPS)
    rows = []
    for number, rounds in ((signal.SIGKILL, kills), (signal.SIGSTOP, stops)):
        with scratch() as home:
            rows.append((number.name, rounds, *asyncio.run(_measured(home, number, rounds))))
    columns = ("", "rounds", "median s", "worst s", "longest send s", "sends", "failed sends")
    show("From a signal to the master to the first send accepted after it, default settings", columns, rows)


async def _measured(home: Path, number: signal.Signals, rounds: int) -> tuple[float, float, float, int, int]:
    port, log = free_port(), home / "up.out"
    ports = ["--namesrv-port", str(port), "--broker-port", str(free_port(3))]
    command = [sys.executable, "-m", "pyromq.cli.main", "up", "--data", str(home / "data"), *ports]
    with Process("pyromq up", [*command, "--replicas", "2", "--failover"], log=log) as up:
        await asyncio.to_thread(up.wait_for, "is ready", PATIENCE)
        namesrv, controllers = f"127.0.0.1:{port}", [f"127.0.0.1:{port + 2}"]
        times = []
        async with AdminClient(namesrv) as admin, Producer("bench", namesrv=namesrv) as producer:
            load = Load(producer)
            await load.next_after(time.monotonic())
            for _ in range(rounds):
                await _all_in_sync(admin, controllers)
                master = int(MASTER.findall(log.read_text())[-1])
                began = time.monotonic()
                os.kill(master, number)
                times.append(await load.next_after(began) - began)
                progress(f"{number.name}: {times[-1]:.2f} s")
                if number is signal.SIGSTOP:
                    os.kill(master, signal.SIGCONT)
            await load.close()
    return statistics.median(times), max(times), load.longest, load.sends, load.failures


async def _all_in_sync(admin: AdminClient, controllers: list[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(PyroMQError):
                groups = await admin.controllers.replicas(controllers, [GROUP])
                if len(groups[GROUP].in_sync_replicas) == 3:
                    return
            await asyncio.sleep(0.1)


class Load:
    """Sends one message after the other, until closed."""

    def __init__(self, producer: Producer) -> None:
        self.sends = self.failures = 0
        self.longest = 0.0
        self._producer = producer
        self._began = 0.0
        self._answered = asyncio.Condition()
        self._task = asyncio.create_task(self._run())

    async def next_after(self, moment: float) -> float:
        """When a send that began after `moment` was acknowledged."""
        async with self._answered:
            await self._answered.wait_for(lambda: self._began > moment)
        return time.monotonic()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            self.sends += 1
            try:
                await self._producer.send(TOPIC, b"x" * 1000)
            except PyroMQError as exc:
                self.failures += 1
                progress(f"failed: {exc}")
                continue
            self.longest = max(self.longest, time.monotonic() - began)
            async with self._answered:
                self._began = began
                self._answered.notify_all()
