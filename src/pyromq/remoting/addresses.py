"""Addresses: `host:port` in text, lists of them, and the second port of a broker."""

from __future__ import annotations

import functools
import ipaddress
import socket
from typing import Any

VIP_PORT_OFFSET = 2


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. ValueError says what is wrong."""
    host, colon, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
        raise ValueError(f"{address!r} is not an address of the form host:port")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_address() -> str:
    """The address that packets to the world would leave from; the loopback address on a machine without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            # Connecting a datagram socket sends nothing; the address is one that no machine has.
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = sock.getsockname()[0]
        return address


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(peer: str) -> str:
    """The host of `host:port`; a text that is none, such as `?`, stays as it is."""
    return peer.rpartition(":")[0].strip("[]") or peer


@functools.lru_cache(maxsize=4096)
def origin_of(peer: str) -> str:
    """Whom the peer at `host:port` counts as where each origin has its share: its host, or the /64 of IPv6."""
    return origin_of_host(host_of(peer))


@functools.lru_cache(maxsize=4096)
def origin_of_host(host: str) -> str:
    """As `origin_of`. Whoever has one address of IPv6 usually has a whole /64 of them."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def format_address(address: Any) -> str:
    """A socket's address as text; `?` if it has none (any more)."""
    if isinstance(address, tuple) and len(address) >= 2:
        return join_address(*address[:2])
    return str(address) if address else "?"


def split_addresses(text: str) -> list[str]:
    """The addresses of a list such as `namesrvAddr`: separated by semicolons or commas, blanks ignored, no repeats."""
    found = dict.fromkeys(part.strip() for part in text.replace(",", ";").split(";"))
    addresses = [address for address in found if address]
    for address in addresses:
        split_address(address)
    return addresses


def vip_address(address: str) -> str:
    """The broker's second port, two below its first, which serves everything but pulls (remoting.md 7.3).

    ValueError if there is no such port.
    """
    host, port = split_address(address)
    if port <= VIP_PORT_OFFSET:
        raise ValueError(f"{address!r} leaves no room for a port {VIP_PORT_OFFSET} below it")
    return join_address(host, port - VIP_PORT_OFFSET)
