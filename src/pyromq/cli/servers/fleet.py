"""More brokers in processes of their own: started together, restarted when they crash, stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.remoting.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

logger = logging.getLogger(__name__)

_BOOTED = b"boot success"
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# A process that ran this long crashed for a different reason than the one before.
_STEADY = 60.0
_STOP_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Member:
    """A process to run: its name, its command line without the interpreter, and extra environment variables."""

    name: str
    arguments: Sequence[str]
    environ: Mapping[str, str]


class Fleet(Service):
    """Runs members until cancelled. `listening` is called once all have booted.

    ConfigError if a member ends before its first boot; it has printed the reason on stderr.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._processes: dict[asyncio.subprocess.Process, str] = {}
        self._supervisors: dict[str, asyncio.Task[None]] = {}

    def pids(self) -> dict[str, int]:
        """The processes of members that have booted, by name."""
        return {name: process.pid for process, name in self._processes.items()}

    def reload(self) -> None:
        """Make every member reload."""
        self.send(signal.SIGHUP)

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on to every member that has booted."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def stop(self, names: Collection[str]) -> None:
        """Stop those of its members that have these names, before the others."""
        ending = [task for name, task in self._supervisors.items() if name in names]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        loop = asyncio.get_running_loop()
        booted = {member.name: loop.create_future() for member in self._members}
        self._supervisors = {
            member.name: asyncio.create_task(self._supervise(member, booted[member.name]), name=member.name)
            for member in self._members
        }
        supervisors = self._supervisors.values()
        try:
            await asyncio.gather(*booted.values())
            if listening is not None:
                listening()
            # Not `gather`: it would cancel them, and then we would again, while they are stopping.
            await asyncio.wait(supervisors)
        finally:
            left = (*supervisors, *booted.values())
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _supervise(self, member: Member, booted: asyncio.Future[None]) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = await self._run_once(member, booted)
            if not booted.done():
                booted.set_exception(ConfigError(f"{member.name} did not start (exit code {code})"))
                return
            if time.monotonic() - began > _STEADY:
                pause = _FIRST_PAUSE
            logger.error("%s ended with exit code %d; starting it again in %g s", member.name, code, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_once(self, member: Member, booted: asyncio.Future[None]) -> int:
        process = await _started(member)
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                if _BOOTED in line:
                    # Before that it has no handlers, and the signal would kill it.
                    self._processes[process] = member.name
                    if not booted.done():
                        booted.set_result(None)
            return await process.wait()
        finally:
            self._processes.pop(process, None)
            # In a task of its own: this one may be cancelled, and time limits do not work in a cancelled task.
            await asyncio.create_task(_end(process), name=f"end {member.name}")


async def _started(member: Member) -> asyncio.subprocess.Process:
    # A session of its own: Ctrl-C goes to the supervisor, which then stops the others in order. The pipe to its
    # stdin tells it that we are gone if we get killed.
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            sys.executable,
            *member.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **member.environ},
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # If cancelled halfway, asyncio may wait forever for pipes it never connected.
        await _end(await starting)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure the process is gone, and close its pipes."""
    assert process.stdin is not None
    assert process.stdout is not None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await process.stdout.read()
    process.stdin.close()
    with contextlib.suppress(ConnectionError):
        await process.stdin.wait_closed()
