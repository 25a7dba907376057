"""A client's identity: credentials, address, client id and message ids, renewed after a fork.

    client id   <ip>@<instance>[@<unit>][@STREAM]

Rebalancing needs the members of a group to have different ids, even where containers share an address and every
process is number 1. Hence the random part of an instance name.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.protocol.ids import UniqKeys
from pyromq.settings.properties import parse as parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# The name of an instance that keeps its id over restarts, as broadcasting consumers do.
DEFAULT_INSTANCE = "DEFAULT"

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_IFREQ = struct.Struct("16s24s")  # its name, then a union in which the address is at byte 4


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys that sign a client's requests (RocketMQ's ACL). Printing it hides the secrets."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    @classmethod
    def look_up(cls, where: str, environ: Mapping[str, str] = os.environ) -> Credentials:
        """Keys that are kept elsewhere. ConfigError if they are not there.

        `env:PREFIX` reads the variables PREFIX_ACCESS_KEY, PREFIX_SECRET_KEY and PREFIX_SECURITY_TOKEN, `file:PATH` the
        lines accessKey=, secretKey= and securityToken= of a file.
        """
        kind, _, place = where.partition(":")
        if kind == "env" and place:
            keys = [environ.get(f"{place}_{name}") for name in ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN")]
        elif kind == "file" and place:
            entries = {entry.key: entry.value.strip() for entry in parse_properties(_read(place), place)}
            keys = [entries.get(name) for name in ("accessKey", "secretKey", "securityToken")]
        else:
            raise ConfigError("credentials must be env:PREFIX or file:PATH")
        access, secret, token = keys
        if not access or not secret:
            raise ConfigError(f"credentials: {where} has no access key and secret key")
        return cls(access, secret, token or None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"credentials: {path} cannot be read: {exc}") from exc


class _Process(threading.local):
    """State of one thread of one process: two threads must not share a counter for message ids."""

    keys: UniqKeys | None = None


_generation = 0
_process = _Process()


def _forked() -> None:
    global _generation, _process
    _generation += 1
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def fork_generation() -> int:
    """How many forks lie between the first process and this one. An object with another number was inherited."""
    return _generation


def instance_name() -> str:
    """A name that no other instance has: `<pid>#<digits>`."""
    return f"{os.getpid()}#{time.monotonic_ns() ^ secrets.randbits(32)}"


def client_id(ip: str, instance: str, unit: str | None = None, stream: bool = False) -> str:
    """The id by which brokers know a client."""
    return f"{ip}@{instance}{f'@{unit}' if unit else ''}{'@STREAM' if stream else ''}"


def make_uniq_key() -> str:
    """The id of a new message: unique in the world, as far as clocks and chance allow."""
    keys = _process.keys
    if keys is None:
        keys = _process.keys = _new_keys()
    return keys.next()


def _new_keys() -> UniqKeys:
    ip = key_ip(address for _, address in interface_addresses())
    return UniqKeys(ip, os.getpid(), secrets.randbits(32), clock=_now_ms, zone=None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def client_ip() -> str:
    """This machine's address, judging by its interfaces."""
    found = choose_ip(address for name, address in interface_addresses() if not _is_bridge(name))
    if found is not None:
        return found
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def choose_ip(addresses: Iterable[str]) -> str | None:
    """The first IPv4 address that is neither loopback nor 192.168; else the last IPv4; else the first IPv6."""
    last_v4 = first_v6 = None
    for text in addresses:
        address = ipaddress.ip_address(text)
        if address.is_loopback:
            continue
        if address.version == 6:
            first_v6 = first_v6 or text
        elif not text.startswith("192.168."):
            return text
        else:
            last_v4 = text
    return last_v4 or first_v6


def key_ip(addresses: Iterable[str]) -> bytes:
    """The address inside message ids: the first public one, else the first private IPv4, else part of the time."""
    private = None
    for text in addresses:
        address = ipaddress.ip_address(text)
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            continue
        if address.is_global:
            return address.packed
        if address.version == 4 and private is None:
            private = address.packed
    return private or (_now_ms() & 0xFFFFFFFF).to_bytes(4, "big")


def interface_addresses() -> list[tuple[str, str]]:
    """This machine's addresses and their interfaces; only the main one outside Linux."""
    if sys.platform == "linux":
        found = list(_linux_addresses())
        if found:
            return found
    main = _outgoing_address()
    return [] if main is None else [("", main)]


def _linux_addresses() -> Iterator[tuple[str, str]]:
    import fcntl

    v6 = dict(_linux_v6_addresses())
    try:
        names = [name for _, name in socket.if_nameindex()]
    except OSError:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in names:
            request = _IFREQ.pack(name.encode()[:15], b"")
            try:
                answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)
            except OSError:
                pass  # it has no IPv4 address
            else:
                yield name, socket.inet_ntoa(answer[20:24])
            if name in v6:
                yield name, v6[name]


def _linux_v6_addresses() -> Iterator[tuple[str, str]]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        digits, *_, name = line.split()
        address = ipaddress.IPv6Address(bytes.fromhex(digits))
        if not (address.is_loopback or address.is_link_local):
            yield name, str(address)


def _outgoing_address() -> str | None:
    """The address that outgoing packets would use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            # Connecting a datagram socket sends nothing; no machine has this address.
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = sock.getsockname()[0]
        return address


def _is_bridge(name: str) -> bool:
    """Whether an interface is a bridge, as on a container host: its address is the same on every host."""
    return bool(name) and Path("/sys/class/net", name, "bridge").exists()
