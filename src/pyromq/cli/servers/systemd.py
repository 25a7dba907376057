"""What systemd is told of a service of `Type=notify`: ready, what it is doing, that it is alive (sd_notify(3)).

A datagram of lines `NAME=value` to the socket that the environment names. Without one nobody wants to know.
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
    """Whoever started us and wants to be told. Telling never waits and never fails: it is a courtesy."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        self._address = address
        self._watchdog = watchdog
        self._serving: str | None = None  # how it serves, once it does

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> Systemd:
        """Take what concerns us out of the environment, so that processes that we start do not speak for us."""
        address = environ.pop(_SOCKET, None)
        usec, pid = environ.pop(_WATCHDOG, ""), environ.pop(_WATCHDOG_PID, str(os.getpid()))
        watched = usec.isascii() and usec.isdigit() and int(usec) > 0 and pid == str(os.getpid())
        return cls(address, int(usec) / 1_000_000 if watched else None)

    def ready(self, status: str) -> None:
        """It serves."""
        self._serving = status
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """For people who ask `systemctl status`."""
        self._tell(f"STATUS={status}")

    def reloading(self) -> None:
        """To be followed by `reloaded`. Neither says anything of a service that is not ready yet."""
        if self._serving is not None:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        if self._serving is not None:
            self.ready(self._serving)

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=stopping")

    async def keep_alive(self) -> None:
        """Say every now and then, until cancelled, that the event loop turns. Ends if there is no watchdog."""
        while self._address is not None and self._watchdog is not None:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / 2)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is one without a file.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)
