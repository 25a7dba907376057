"""Processes that can be killed, stopped and started again: brokers, controllers, name servers, members of etcd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.broker_process import LOST_POWER, beside, failures_of_power
from tests.crash.lives import SMALL
from tests.integration.broker.command_kit import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.chaos.lines import Lines

REPOSITORY = Path(__file__).parents[2]
PYTHON = (sys.executable, "-m")
NAME = "g"
# Seconds; other people may use the machine.
BOOTED_WITHIN = 60.0
ENDED_WITHIN = 60.0

# Everything is noticed soon, so that rounds are short.
BROKER = (
    *SMALL,
    "enableControllerMode=true",
    f"brokerName={NAME}",
    "controllerHeartBeatTimeoutMills=2000",
    "brokerHeartbeatInterval=200",
    "sendHeartbeatTimeoutMillis=600",
    "syncBrokerMetadataPeriod=500",
    "syncControllerMetadataPeriod=2000",
    "checkSyncStateSetPeriod=200",
    "haMaxTimeSlaveNotCatchup=2000",
    "haSendHeartbeatInterval=300",
    "haHousekeepingInterval=2500",
    "slaveTimeout=1500",
    "slaveSyncInterval=500",
    "transactionTimeOut=1000",
    "transactionCheckInterval=500",
    "transactionCheckMax=1000",
    "registerNameServerPeriod=10000",
)


class Server:
    """A command as a process that can be killed and started again. What it logs is appended to `<name>.log`."""

    def __init__(self, home: Path, name: str, command: Sequence[str], ready: str = "boot success") -> None:
        self.name = name
        self._home = home
        self._command = command
        self._ready = ready
        self.process: subprocess.Popen[str] | None = None
        self.alone = asyncio.Lock()  # for whoever kills it or lets it stand still
        self.stands_still = False

    @property
    def log(self) -> Path:
        return self._home / f"{self.name}.log"

    async def start(self) -> None:
        prefix = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
                [*self._command],
                env=environment(self._home) | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/src"} | prefix,
                cwd=self._home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        async with asyncio.timeout(BOOTED_WITHIN):
            await asyncio.to_thread(self._booted, self.process)

    def _booted(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if self._ready in line:
                return
        raise AssertionError(f"{self.name} did not start: {self.last_words()}")

    def last_words(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-15:])

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def assert_alive(self) -> None:
        assert self.is_running, f"{self.name} ended by itself: {self.last_words()}"

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def order(self, text: str) -> None:
        if self.process is None:
            return  # it forgets such orders when it ends anyway
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()

    async def kill(self) -> int:
        """Kill it, or see how it died; gives its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.kill()
        return await _end(process)

    async def died(self) -> int:
        """Wait until it has ended by itself."""
        process, self.process = self.process, None
        assert process is not None
        return await _end(process)

    async def stop(self) -> None:
        """Stop it as operators do."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        code = await _end(process)
        assert code == 0, f"{self.name} ended with {code}: {self.last_words()}"


async def _end(process: subprocess.Popen[str]) -> int:
    with process:
        return await asyncio.to_thread(process.wait, ENDED_WITHIN)


class Member(Server):
    """One broker of the group."""

    def __init__(self, home: Path, number: int, port: int, lines: Lines, settings: Iterable[str]) -> None:
        self.number = number
        self.folder = home / f"broker-{number}"
        self.lines = lines
        self.address = f"127.0.1.{number}:{port}"
        places = [
            f"storePathRootDir={self.folder}",
            f"brokerConfigPath={home}/broker-{number}.properties",
            f"listenPort={port}",
            f"brokerIP1=127.0.1.{number}",
            f"brokerIP2=127.0.2.{number}",
            f"controllerAddr={';'.join(proxy.address for proxy in lines.controllers)}",
            f"namesrvAddr={lines.name_server.address}",
        ]
        command = [*PYTHON, "tests.chaos.broker_process", str(self.folder), lines.host, *BROKER, *places, *settings]
        super().__init__(home, f"broker-{number}", command)

    @property
    def id(self) -> int | None:
        """What the controller calls it; None if it has never met one."""
        try:
            return int((self.folder / "brokerIdentity").read_text().rpartition("#")[2])
        except FileNotFoundError:
            return None

    async def lose_power(self, seed: int) -> None:
        """Lose what was not on disk."""
        after = self.folder.with_name(f"{self.folder.name} after the power failure")
        self.order(f"power {seed} {after}")
        code = await self.died()
        assert code == LOST_POWER, f"{self.name} ended with {code}: {self.last_words()}"
        await asyncio.to_thread(shutil.rmtree, self.folder)
        after.rename(self.folder)
        beside(self.folder).write_text(str(failures_of_power(self.folder) + 1))

    async def wipe(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self.folder)
