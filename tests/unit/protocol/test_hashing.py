from __future__ import annotations

import pytest

from pyromq.protocol.hashing import index_hash, java_hash, tags_code


@pytest.mark.parametrize(("text", "value"), [("order-1", -1207111310), ("order-1001", 708180863), ("TagA", 2598919)])
def test_hashes_equal_those_of_the_official_clients(text, value):
    assert java_hash(text) == value


def test_half_a_surrogate_pair_is_one_unit():
    assert java_hash("\ud83d") == 0xD83D
    assert java_hash("\ud83d\ude00") == java_hash("😀") == 31 * 0xD83D + 0xDE00


def test_a_long_text_wraps_around_like_an_int():
    expected = 0
    for unit in b"x" * 5000:
        expected = (31 * expected + unit) % 2**32
    assert java_hash("x" * 5000) % 2**32 == expected
    assert -(2**31) <= java_hash("x" * 5000) < 2**31


def test_no_tags_have_the_code_zero():
    assert tags_code(None) == tags_code("") == 0


def test_several_tags_are_hashed_as_one_text():
    assert tags_code("a || b") == java_hash("a || b") != 0


def test_an_index_hash_is_never_negative():
    assert java_hash("polygenelubricants") == -(2**31)
    assert index_hash("polygenelubricants") == 0
    assert index_hash("order-1") == 1207111310
