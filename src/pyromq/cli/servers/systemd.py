"""Tell systemd that a `Type=notify` service is ready, what it is doing, and that it is alive (sd_notify(3)).

A datagram of `NAME=value` lines to the socket that the environment names; without one nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG = "WATCHDOG_USEC"
_WATCHDOG_PID = "WATCHDOG_PID"


class Systemd:
    """The service manager that started us. Notifying it never waits and never fails: it is a courtesy."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        self._address = address
        self._watchdog = watchdog
        self._serving: str | None = None  # the status once it serves

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> Systemd:
        """Take our variables out of the environment, so that child processes do not speak for us."""
        address = environ.pop(_SOCKET, None)
        usec, pid = environ.pop(_WATCHDOG, ""), environ.pop(_WATCHDOG_PID, str(os.getpid()))
        watched = usec.isascii() and usec.isdigit() and int(usec) > 0 and pid == str(os.getpid())
        return cls(address, int(usec) / 1_000_000 if watched else None)

    def ready(self, status: str) -> None:
        """Report that the service is ready."""
        self._serving = status
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._tell(f"STATUS={status}")

    def reloading(self) -> None:
        """Call `reloaded` afterwards. Neither reports anything before the service is ready."""
        if self._serving is not None:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        if self._serving is not None:
            self.ready(self._serving)

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=stopping")

    async def keep_alive(self) -> None:
        """Report regularly, until cancelled, that the event loop runs. Returns at once without a watchdog."""
        while self._address is not None and self._watchdog is not None:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / 2)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is an abstract socket, one without a file.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)
