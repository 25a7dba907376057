"""How many connections a server takes, in all and from one address. Decides; the server closes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ServerConfig

logger = logging.getLogger(__name__)

# Addresses whose refusal is logged at the same time; others are refused silently.
_SAID = 1000


class Admissions:
    """The open connections, counted by address. Shared by the ports of one server.

    A refusal is logged once, and again after there was room. Call `left` for each that was admitted.
    """

    def __init__(self, config: ServerConfig) -> None:
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
        self._said.discard("")
        self._said.discard(host)
        self._open[host] = here + 1
        self.total += 1
        return True

    def left(self, host: str) -> None:
        """A connection from `host` is closed."""
        self.total -= 1
        here = self._open[host] - 1
        if here:
            self._open[host] = here
        else:
            del self._open[host]

    def _say(self, who: str, what: str) -> None:
        if who not in self._said and len(self._said) < _SAID:
            self._said.add(who)
            logger.warning("%s", what)
