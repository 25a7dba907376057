"""Hosts as bytes, and the two ids of a message.

    host                4 bytes IPv4 | i32 port          16 bytes IPv6 | i32 port
    offset message id   store host | i64 physical offset                              made by brokers
    UNIQ_KEY            IP | u16 pid | u32 process number | u32 ms of the month | u16 counter   made by clients

Ids are upper-case hexadecimal: 32 digits, or 56 with an IPv6 address. The first says where the message lies, the
second is the same for every copy of it, retries included.
"""

from __future__ import annotations

import ipaddress
import struct
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import tzinfo

HOST_V4 = struct.Struct(
    ">4s"  # address
    "i"  # port
)
HOST_V6 = struct.Struct(
    ">16s"  # address
    "i"  # port
)
OFFSET = struct.Struct(">q")
UNIQ_KEY_TAIL = struct.Struct(
    ">H"  # process id, its low 16 bits
    "I"  # number of the process: random, renewed after a fork
    "I"  # ms since the month began; unsigned here, Java's int goes negative after 24.8 days
    "H"  # counter
)

# A clock set back by less than this keeps its month (RocketMQ's figure).
_SMALL_STEP_MS = 1_000_000


def encode_ip(ip: str) -> bytes:
    """The 4 or 16 bytes of an address. A mapped one (`::ffff:10.0.0.1`, from a dual-stack socket) counts as IPv4."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError as exc:
        raise LocalProtocolError(f"not an IP address: {ip!r}") from exc
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.packed


def encode_host(ip: str, port: int) -> bytes:
    """The 8 or 20 bytes that stand for a host in records and ids."""
    if not 0 <= port <= 0xFFFF:
        raise LocalProtocolError(f"not a port: {port}")
    raw = encode_ip(ip)
    return HOST_V4.pack(raw, port) if len(raw) == 4 else HOST_V6.pack(raw, port)


def decode_host(raw: bytes) -> tuple[str, int]:
    """Address and port of a host of 8 or 20 bytes."""
    if len(raw) == HOST_V4.size:
        address, port = HOST_V4.unpack(raw)
        return str(ipaddress.IPv4Address(address)), port
    if len(raw) == HOST_V6.size:
        address, port = HOST_V6.unpack(raw)
        return str(ipaddress.IPv6Address(address)), port
    raise RemoteProtocolError(f"a host has 8 or 20 bytes, not {len(raw)}")


class OffsetMessageId(NamedTuple):
    """What an offset message id says: the broker's address as bytes, and the place in its commit log."""

    store_host: bytes
    physical_offset: int


def encode_offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """The id a broker answers a send with."""
    return (store_host + OFFSET.pack(physical_offset)).hex().upper()


def encode_offset_message_ids(store_host: bytes, physical_offsets: Iterable[int]) -> str:
    """The ids that a broker answers a batch with, joined by commas."""
    host = store_host.hex().upper()
    return ",".join([f"{host}{offset:016X}" for offset in physical_offsets])


def decode_offset_message_id(text: str) -> OffsetMessageId:
    raw = _unhex(text, "offset message id", HOST_V4.size + OFFSET.size, HOST_V6.size + OFFSET.size)
    (physical_offset,) = OFFSET.unpack_from(raw, len(raw) - OFFSET.size)
    if physical_offset < 0:
        raise RemoteProtocolError(f"offset message id {text} names a negative offset")
    return OffsetMessageId(raw[: -OFFSET.size], physical_offset)


class UniqKeys:
    """Makes the UNIQ_KEYs of one process.

    Two keys of one process differ as long as fewer than 65,536 are made within a millisecond; the random `number`
    keeps processes apart that share address and pid. Not for several threads at once.
    """

    def __init__(self, ip: bytes, pid: int, number: int, *, clock: Callable[[], int], zone: tzinfo | None) -> None:
        """`clock` tells the time in ms since 1970; `zone` None is the time zone of this machine."""
        if len(ip) not in (4, 16):
            raise LocalProtocolError(f"an IP address has 4 or 16 bytes, not {len(ip)}")
        head = ip + UNIQ_KEY_TAIL.pack(pid & 0xFFFF, number & 0xFFFFFFFF, 0, 0)
        self._prefix = head.hex().upper()[:-12]
        self._clock = clock
        self._zone = zone
        self._counter = 0
        self._month_start = self._next_month = 0

    def next(self) -> str:
        """The next key."""
        now = self._clock()
        if not self._month_start - _SMALL_STEP_MS < now < self._next_month:
            self._month_start = month_start(now, self._zone)
            self._next_month = _next_month(now, self._zone)
        # Just before the month: the clock was set back a little, which must not look like a month's length.
        elapsed = max(now - self._month_start, 0)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}{counter:04X}"


class UniqKey(NamedTuple):
    """What a UNIQ_KEY says about the message's sender."""

    ip: bytes
    pid: int
    number: int
    ms_of_month: int
    counter: int

    def sent_at(self, now: int, zone: tzinfo | None) -> int:
        """A guess at when the key was made, in ms since 1970: the id tells the time within a month, not the month.

        It is this month unless that lies in the future. A sender in another time zone is off by the difference.
        """
        this_month = month_start(now, zone)
        if this_month + self.ms_of_month <= now:
            return this_month + self.ms_of_month
        return month_start(this_month - 1, zone) + self.ms_of_month


def decode_uniq_key(text: str) -> UniqKey:
    raw = _unhex(text, "UNIQ_KEY", 4 + UNIQ_KEY_TAIL.size, 16 + UNIQ_KEY_TAIL.size)
    ip = raw[: -UNIQ_KEY_TAIL.size]
    return UniqKey(ip, *UNIQ_KEY_TAIL.unpack_from(raw, len(ip)))


def month_start(now: int, zone: tzinfo | None) -> int:
    """The first instant of the month of `now`, both in ms since 1970."""
    return _to_ms(_first_day(now, zone))


def _next_month(now: int, zone: tzinfo | None) -> int:
    # No month has more than 31 days, and none fewer than 28: 32 days after the first lies in the next one.
    return _to_ms((_first_day(now, zone) + timedelta(days=32)).replace(day=1))


def _first_day(now: int, zone: tzinfo | None) -> datetime:
    # Without a zone the result is naive and means local time, also to timestamp(), summer time included.
    local = datetime.fromtimestamp(now // 1000, zone)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)


def _to_ms(when: datetime) -> int:
    return int(when.timestamp()) * 1000


def _unhex(text: str, what: str, *lengths: int) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError as exc:
        raise RemoteProtocolError(f"not an {what}: {text[:64]!r}") from exc
    # fromhex skips blanks, so the length of the text counts too.
    if len(raw) not in lengths or len(text) != 2 * len(raw):
        raise RemoteProtocolError(f"not an {what}: {text[:64]!r}")
    return raw
