"""Patterns of addresses, as whitelists have them:

    192.168.0.7        one address              192.168.0.*        any number in a place
    192.168.1-20.*     a range of numbers       192.168.0.{3,7}    some numbers
    *                  every address            a list of patterns, apart by commas

IPv6 addresses have eight places of hexadecimal digits, and `::` stands for all that are zero: `2001:db8::1-20:*`.
Every place is compared. RocketMQ stops at the first `*` or range, and would take 192.168.*.7 for 192.168.*.*.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Range = tuple[int, int]

EVERYWHERE = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})

# Up to a comma outside of braces; each character is looked at once. A brace that is not closed takes the rest.
_PATTERN = re.compile(r"(?:[^,{]|\{[^}]*(?:\}|$))+")
_DECIMAL = re.compile(r"[0-9]{1,3}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{1,4}")
# Hosts whose answer is remembered, of each list; more only take longer.
_REMEMBERED = 4096


class Pattern(NamedTuple):
    """The numbers that are taken in each place: 4 for IPv4, 8 for IPv6."""

    places: tuple[tuple[Range, ...], ...]

    def takes(self, numbers: tuple[int, ...]) -> bool:
        return len(numbers) == len(self.places) and all(
            any(low <= number <= high for low, high in ranges)
            for number, ranges in zip(numbers, self.places, strict=True)
        )


class Addresses:
    """The addresses that some patterns take."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """ValueError says which pattern is none."""
        self.texts = [text for given in patterns for text in split_patterns(given)]
        self._everywhere = not EVERYWHERE.isdisjoint(self.texts)
        self._patterns = [parse(text) for text in self.texts if text not in EVERYWHERE]
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.texts)

    def take(self, host: str) -> bool:
        """Whether a peer at `host` is meant."""
        if not self.texts:
            return False
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[host] = self._everywhere or self._take(host)
        return known

    def _take(self, host: str) -> bool:
        numbers = numbers_of(host)
        return numbers is not None and any(pattern.takes(numbers) for pattern in self._patterns)


def split_patterns(text: str) -> list[str]:
    """The patterns of a list; commas in braces belong to their pattern."""
    return [part for each in _PATTERN.findall(text) if (part := each.strip())]


def host_of(peer: str) -> str:
    """The host of a peer's address, which need not be well formed."""
    host = peer.rpartition(":")[0] or peer
    return host[1:-1] if host.startswith("[") else host


def numbers_of(host: str) -> tuple[int, ...] | None:
    """The numbers in the places of an address; None for what is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return tuple(address.packed)
    if address.ipv4_mapped is not None:
        # A peer by IPv4, at a socket that takes both.
        return tuple(address.ipv4_mapped.packed)
    packed = address.packed
    return tuple(packed[place] << 8 | packed[place + 1] for place in range(0, 16, 2))


def parse(text: str) -> Pattern:
    """One pattern. ValueError says what is wrong."""
    numbers = numbers_of(text) if "%" not in text else None
    if numbers is not None:
        return Pattern(tuple(((number, number),) for number in numbers))
    try:
        return Pattern(tuple(_v6(text) if ":" in text else _v4(text)))
    except ValueError as exc:
        raise ValueError(f"{text!r} is not an address or a pattern of addresses: {exc}") from None


def _v4(text: str) -> Iterator[tuple[Range, ...]]:
    places = text.split(".")
    if len(places) != 4:
        raise ValueError("it needs 4 numbers")
    for place in places:
        yield _place(place, _DECIMAL, 10, 255)


def _v6(text: str) -> Iterator[tuple[Range, ...]]:
    head, gap, tail = text.partition("::")
    before, after = (part.split(":") if part else [] for part in (head, tail))
    missing = 8 - len(before) - len(after)
    if (missing < 1) if gap else missing:
        raise ValueError("it needs 8 numbers")
    for place in (*before, *(["0"] * missing), *after):
        yield _place(place, _HEXADECIMAL, 16, 0xFFFF)


def _place(text: str, digits: re.Pattern[str], base: int, most: int) -> tuple[Range, ...]:
    if text == "*":
        return ((0, most),)
    if text.startswith("{") and text.endswith("}"):
        return tuple(_range(part.strip(), digits, base, most) for part in text[1:-1].split(","))
    return (_range(text, digits, base, most),)


def _range(text: str, digits: re.Pattern[str], base: int, most: int) -> Range:
    first, dash, last = text.partition("-")
    for part in (first, last) if dash else (first,):
        if digits.fullmatch(part) is None:
            raise ValueError(f"{part!r} is not a number")
    low = int(first, base)
    high = int(last, base) if dash else low
    if not low <= high <= most:
        raise ValueError(f"{text} is out of range")
    return low, high
