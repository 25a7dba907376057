"""The Bloom filter of RocketMQ's filter bitmaps: which bits stand for a consumer group (docs/spec/broker.md 7.4).

A message has a bitmap in the consume queue ext; the bits of each group whose filter matches it are set. A group of
whose bits one is not set need not look at the message itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_64 = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """How many bits a bitmap has, and how many of them stand for one group."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, error_percent: int, groups: int) -> BloomFilter:
        """For so many groups, of which one sees a message in vain in so many percent of all cases."""
        error = error_percent / 100
        bits = math.ceil(groups * (math.log(1 / error) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(bits=8 * math.ceil(bits / 8), hashes=math.ceil(math.log(error) / math.log(0.5)))

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits that stand for a group that filters a topic. Bit p of a bitmap is bit p % 8 of its byte p // 8."""
        # Half a surrogate pair, which JSON can carry, becomes `?` as in Java.
        low, high = divmod(murmur3_64(f"{group}#{topic}".encode("utf-8", "replace")), 1 << 32)[::-1]
        found = []
        for number in range(1, self.hashes + 1):
            combined = (low + number * high) & 0xFFFFFFFF
            if combined >= 1 << 31:  # negative in Java, which then flips all bits
                combined ^= 0xFFFFFFFF
            found.append(combined % self.bits)
        return tuple(found)


def mask_of(positions: tuple[int, ...]) -> int:
    """The bits at these positions, as a number that `has_all` takes."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def has_all(bitmap: bytes, mask: int) -> bool:
    """Whether all bits of `mask` are set in a bitmap."""
    return int.from_bytes(bitmap, "little") & mask == mask


def murmur3_64(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with the seed 0, as a number."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _mix_k1(int.from_bytes(data[at : at + 8], "little"))
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _64
        h2 ^= _mix_k2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _64
    # What is missing of the last block counts as zeros, which mix to nothing.
    h1 ^= _mix_k1(int.from_bytes(data[whole : whole + 8], "little"))
    h2 ^= _mix_k2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _64
    h2 = (h2 + h1) & _64
    return (_finished(h1) + _finished(h2)) & _64


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _64


def _mix_k1(k: int) -> int:
    return _rotated(k * _C1 & _64, 31) * _C2 & _64


def _mix_k2(k: int) -> int:
    return _rotated(k * _C2 & _64, 33) * _C1 & _64


def _finished(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _64
    return h ^ h >> 33
