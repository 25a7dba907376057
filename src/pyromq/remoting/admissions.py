"""How many connections a server takes, in all and from one address. Decides; the server closes.

An address that sends garbage again and again is not let in for a moment: a connection that is closed at once needs no
task, no transport and no line in the log.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import ServerConfig

logger = logging.getLogger(__name__)

# Addresses whose refusal is logged at the same time; others are refused silently.
_SAID = 1000
_PERIOD = 1.0


class Admissions:
    """The open connections, counted by address. Shared by the ports of one server.

    A refusal is logged once, and again after there was room. Call `left` for each that was admitted.
    """

    def __init__(self, config: ServerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._most_bad = config.max_bad_connections_per_second
        # When a count of bad connections began, and the count.
        self._bad: dict[str, tuple[float, int]] = {}
        self._most = config.max_connections
        self._most_per_address = config.max_connections_per_address or self._most
        self._open: dict[str, int] = {}
        # Who was refused last time; the empty text stands for everybody.
        self._said: set[str] = set()
        self.total = 0

    def admits(self, host: str) -> bool:
        """Count one more connection from `host`; False if there are too many."""
        here = self._open.get(host, 0)
        if self.total >= self._most:
            self._say("", f"{self._most} connections are open; refusing more (maxConnections)")
            return False
        if here >= self._most_per_address:
            self._say(
                host,
                f"{self._most_per_address} connections from {host} are open; refusing more (maxConnectionsPerAddress)",
            )
            return False
        if self._bad and self._is_bad(host):
            self._say(
                host,
                f"more than {self._most_bad} connections a second from {host} sent garbage; refusing more "
                "(maxBadConnectionsPerSecond)",
            )
            return False
        self._said.discard("")
        self._said.discard(host)
        self._open[host] = here + 1
        self.total += 1
        return True

    def left(self, host: str, *, misbehaved: bool = False) -> None:
        """A connection from `host` is closed, maybe because of what it sent."""
        if misbehaved and self._most_bad:
            self._count_bad(host)
        self.total -= 1
        here = self._open[host] - 1
        if here:
            self._open[host] = here
        else:
            del self._open[host]

    def _count_bad(self, host: str) -> None:
        if len(self._bad) >= _SAID and host not in self._bad:
            self._bad.clear()
        now = self._clock()
        since, count = self._bad.get(host, (now, 0))
        self._bad[host] = (since, count + 1) if now - since < _PERIOD else (now, 1)

    def _is_bad(self, host: str) -> bool:
        since, count = self._bad.get(host, (0.0, 0))
        if count < self._most_bad:
            return False
        if self._clock() - since < _PERIOD:
            return True
        del self._bad[host]
        return False

    def _say(self, who: str, what: str) -> None:
        if who not in self._said and len(self._said) < _SAID:
            self._said.add(who)
            logger.warning("%s", what)
