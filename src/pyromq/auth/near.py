"""A name server without access control: open to everybody, as in RocketMQ, but for its settings.

Whoever could change these from afar could, in RocketMQ, write files of the name server (CVE-2023-37582).
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING

from .acl.addresses import host_of
from .authority import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyromq.protocol.command import Command
    from pyromq.protocol.rights import Need
    from pyromq.remoting import Rule

logger = logging.getLogger("pyromq.security")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REMEMBERED = 4096


def networks(text: str) -> tuple[Network, ...]:
    """The networks of a list, apart by commas. ValueError says which one is none."""
    return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


class ChangesFromNear:
    """Takes the requests `only_near` from this machine and the `allowed` networks only, and logs all `changes`."""

    def __init__(self, allowed: Iterable[Network], *, only_near: Collection[int], changes: Collection[int]) -> None:
        self._allowed = tuple(allowed)
        self._only_near = frozenset(only_near)
        self._changes = frozenset(changes) | self._only_near
        self._known: dict[str, bool] = {}

    def identify(self, request: Command, address: str, rule: Rule) -> str | None:
        return None

    def allow(self, account: str | None, needs: Iterable[Need], address: str, rule: Rule, code: int) -> None:
        if code not in self._changes:
            return
        if code in self._only_near and not self._is_near(host_of(address)):
            raise Refused(
                "without aclEnable, settings are changed from this machine or a network in adminAllowCidr only"
            )
        logger.info("request %d of %s changes this server; nobody is asked who they are", code, address)

    def secret_of(self, account: str) -> str | None:
        return None

    @property
    def state(self) -> object:
        return None

    def _is_near(self, host: str) -> bool:
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[host] = self._compared(host)
        return known

    def _compared(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return address.is_loopback or any(address in network for network in self._allowed)
