"""Mutation: small damage of the kinds that decoders get wrong.

Bits and bytes, cut and repeated stretches, two samples spliced, integers that are lengths to somebody, digits, and
tokens of the target's own language.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_LENGTH = 2048  # of nearly all inputs, so that many fit into a second
MAX_LONG = 256 * 1024  # of the few that look for time that grows faster than its input

_EDGES = (0, 1, 2, 3, 4, 7, 8, 9, 20, 21, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_BYTES = b"\x00\x01\x02\x0a\x16\x20\x22\x24\x2c\x2d\x2e\x30\x39\x3a\x5b\x5c\x5d\x7b\x7d\x7f\x80\xbf\xc3\xed\xf0\xff"
_NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"01", b"1.0", b"1.5e3", b"1e400", b"127", b"2147483647", b"2147483648", b"-2147483649",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"9" * 40, b"9" * 400, b'"1"', b"",
)  # fmt: skip
_DIGITS = re.compile(rb"-?[0-9]+")


class Mutator:
    """Makes inputs out of samples; the same seed makes the same ones."""

    def __init__(self, seed: int, tokens: Sequence[bytes]) -> None:
        self._random = random.Random(seed)
        self._tokens = tokens
        self._ways: list[Callable[[bytearray, bytes], bytearray]] = [
            self._flip_bit,
            self._set_byte,
            self._set_byte,
            self._insert_bytes,
            self._delete,
            self._repeat,
            self._swap,
            self._splice,
            self._truncate,
            self._set_integer,
            self._set_integer,
            self._shift_integer,
            self._insert_token,
            self._insert_token,
            self._replace_number,
        ]

    def below(self, limit: int) -> int:
        return int(self._random.random() * limit)  # five times as fast as randrange

    def mutate(self, data: bytes, other: bytes) -> bytes:
        """`data` damaged once or up to three times; `other` is what it may be spliced with."""
        mutated = bytearray(data)
        for _ in range(1 + self.below(3) * self.below(2)):
            mutated = self._ways[self.below(len(self._ways))](mutated, other)
        if len(mutated) > MAX_LENGTH:
            del mutated[MAX_LENGTH:]
        return bytes(mutated)

    def lengthen(self, data: bytes) -> bytes:
        """`data` with some stretch of it repeated very often."""
        start, end = self._stretch(len(data), 32)
        times = MAX_LONG // (end - start + 1)
        return (data[:start] + data[start:end] * times + data[end:])[: MAX_LONG + self.below(2) * len(data)]

    def _stretch(self, length: int, most: int) -> tuple[int, int]:
        start = self.below(length + 1)
        return start, min(length, start + 1 + self.below(most))

    def _flip_bit(self, data: bytearray, _other: bytes) -> bytearray:
        if data:
            data[self.below(len(data))] ^= 1 << self.below(8)
        return data

    def _set_byte(self, data: bytearray, _other: bytes) -> bytearray:
        if data:
            data[self.below(len(data))] = _BYTES[self.below(len(_BYTES))]
        return data

    def _insert_bytes(self, data: bytearray, _other: bytes) -> bytearray:
        at = self.below(len(data) + 1)
        data[at:at] = self._random.randbytes(1 + self.below(8))
        return data

    def _delete(self, data: bytearray, _other: bytes) -> bytearray:
        start, end = self._stretch(len(data), 16)
        del data[start:end]
        return data

    def _repeat(self, data: bytearray, _other: bytes) -> bytearray:
        start, end = self._stretch(len(data), 64)
        data[end:end] = data[start:end] * (1 + self.below(4))
        return data

    def _swap(self, data: bytearray, _other: bytes) -> bytearray:
        start, end = self._stretch(len(data), 32)
        stretch = data[start:end]
        del data[start:end]
        at = self.below(len(data) + 1)
        data[at:at] = stretch
        return data

    def _splice(self, data: bytearray, other: bytes) -> bytearray:
        start, end = self._stretch(len(other), 256)
        at = self.below(len(data) + 1)
        data[at : at + self.below(2) * (end - start)] = other[start:end]
        return data

    def _truncate(self, data: bytearray, _other: bytes) -> bytearray:
        del data[self.below(len(data) + 1) :]
        return data

    def _set_integer(self, data: bytearray, _other: bytes) -> bytearray:
        """Some edge of i16 or i32, or the number of bytes that follow, give or take."""
        size = 2 << self.below(2)
        if len(data) >= size:
            at = self.below(len(data) - size + 1)
            left = len(data) - at - size
            value = _EDGES[self.below(len(_EDGES))] if self.below(4) else left - 8 + self.below(17)
            data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
        return data

    def _shift_integer(self, data: bytearray, _other: bytes) -> bytearray:
        if len(data) >= 4:
            at = self.below(len(data) - 3)
            value = int.from_bytes(data[at : at + 4], "big") - 4 + self.below(9)
            data[at : at + 4] = (value % (1 << 32)).to_bytes(4, "big")
        return data

    def _insert_token(self, data: bytearray, _other: bytes) -> bytearray:
        token = self._tokens[self.below(len(self._tokens))]
        at = self.below(len(data) + 1)
        data[at : at + self.below(2) * len(token)] = token
        return data

    def _replace_number(self, data: bytearray, _other: bytes) -> bytearray:
        if found := _DIGITS.search(data, self.below(len(data) + 1)):
            start, end = found.span()
            del found  # it holds the bytearray, which could not change its size
            data[start:end] = _NUMBERS[self.below(len(_NUMBERS))]
        return data
