"""Which name server to ask: always the same one, until it cannot be reached."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from pyromq.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.command import Command

    from .client import RemotingClient


class NameServers:
    """A list of name servers behind one `invoke`.

    The list is shuffled to spread many clients over it; then one address is used until connecting to it fails,
    since every name server knows every broker (docs/spec/remoting.md 7.4).
    """

    def __init__(self, client: RemotingClient, addresses: Iterable[str], seed: random.Random | None = None) -> None:
        self._client = client
        self._random = seed or random.Random()
        # The one in use comes first.
        self._addresses: list[str] = []
        self.update(addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def current(self) -> str | None:
        """The address that the next request goes to first."""
        return self._addresses[0] if self._addresses else None

    def update(self, addresses: Iterable[str]) -> None:
        """Take a new list. The address in use stays in use if it is still listed."""
        wanted = list(dict.fromkeys(addresses))
        if set(wanted) == set(self._addresses):
            return
        current = self.current
        self._random.shuffle(wanted)
        if current in wanted:
            wanted.remove(current)
            wanted.insert(0, current)
        elif current is not None:
            self._client.close_connection(current)
        self._addresses = wanted

    async def invoke(self, command: Command, timeout: float = 3.0) -> Command:
        """Ask the current name server; if connecting fails, the next, each once. Raises ConnectFailed.

        `timeout` covers all attempts: while others are left, connecting to one may take its share of the time.
        """
        if not self._addresses:
            raise ConnectFailed("name server", "no address; set namesrvAddr")
        deadline = time.monotonic() + timeout
        failures: list[ConnectFailed] = []
        candidates = self.addresses
        for left, address in zip(range(len(candidates), 0, -1), candidates, strict=True):
            try:
                await self._client.connection(address, (deadline - time.monotonic()) / left)
                return await self._client.invoke(address, command, deadline - time.monotonic())
            except ConnectFailed as exc:
                failures.append(exc)
                self._put_last(address)
        raise ConnectFailed("name server", "none can be reached: " + "; ".join(map(str, failures))) from failures[-1]

    def _put_last(self, address: str) -> None:
        # If several callers failed with the same address, only the first moves on.
        if self.current == address:
            self._addresses.append(self._addresses.pop(0))
