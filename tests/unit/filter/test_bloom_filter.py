"""Which bits of a bitmap stand for a group. The vectors were computed by RocketMQ 5.5.0."""

from __future__ import annotations

import pytest

from pyromq.filter import BloomFilter
from pyromq.filter.bloom import has_all, mask_of, murmur3_64


def test_the_defaults_give_112_bits_of_which_three_stand_for_a_group():
    assert BloomFilter.of(20, 32) == BloomFilter(bits=112, hashes=3)


@pytest.mark.parametrize(
    ("error_percent", "groups", "group", "topic", "bits", "positions"),
    [
        (20, 32, "g", "T", 112, (90, 68, 28)),
        (20, 32, "ConsumerGroup", "TopicTest", 112, (92, 1, 89)),
        (99, 100, "é€😀", "ü", 8, (1,)),
        (1, 1, "", "", 16, (3, 14, 6, 11, 0, 10, 5)),
        (10, 128, "aaaaaaaaaaaaaaa", "T", 616, (87, 140, 56, 27)),
        (20, 64, "xxxxxxxxxxxxxx", "t", 216, (163, 104, 156)),
        (20, 32, "%RETRY%group", "%RETRY%group", 112, (93, 83, 38)),
        (
            5,
            300,
            "consumer-with-a-rather-long-name",
            "a-topic-with-a-rather-long-name-too",
            1872,
            (492, 92, 1564, 1164, 764),
        ),
    ],
)
def test_the_bits_are_those_of_rocketmq(error_percent, groups, group, topic, bits, positions):
    bloom = BloomFilter.of(error_percent, groups)
    assert bloom.bits == bits
    assert bloom.positions(group, topic) == positions


def test_half_a_surrogate_pair_has_bits_too():
    assert BloomFilter.of(20, 32).positions("\ud800", "T") == BloomFilter.of(20, 32).positions("?", "T")


def test_a_bitmap_is_hit_when_all_bits_are_set():
    bitmap = bytes((0b00000010, 0b10000000))
    assert has_all(bitmap, mask_of((1, 15)))
    assert not has_all(bitmap, mask_of((1, 14)))
    assert not has_all(b"", mask_of((1,)))


def test_the_hash_of_nothing_is_zero():
    assert murmur3_64(b"") == 0
