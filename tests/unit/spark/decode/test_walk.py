"""Records that lie back to back: how they are found, and that wrong guesses do no harm."""

from __future__ import annotations

from itertools import accumulate

import pytest

from pyromq.protocol.record import MIN_RECORD_SIZE, MessageRecord, encode_record
from pyromq.spark.decode import walk as walking
from pyromq.spark.decode.walk import walk

HOST = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
LIMITS = {"max_records": 10_000, "max_bytes": 8 << 20}


def records(bodies) -> list[bytes]:
    return [encode_record(MessageRecord("orders", body, b"", born_host=HOST, store_host=HOST)) for body in bodies]


def places(found: list[bytes]) -> list[int]:
    return [0, *accumulate(map(len, found))][:-1]


def test_many_records_are_walked_in_lanes(monkeypatch):
    found = records(bytes(number % 50) for number in range(1000))
    single = []
    one_by_one = walking._one_by_one

    def counting(*args):
        result = one_by_one(*args)
        single.append(len(result[0]))
        return result

    monkeypatch.setattr(walking, "_one_by_one", counting)
    buffer = b"".join(found)
    assert walk(buffer, 0, len(buffer), **LIMITS).tolist() == places(found)
    assert sum(single) < 100


def test_bodies_that_hold_records_are_not_taken_for_them():
    inner = b"".join(records([b"x"] * 40))
    found = records([inner] * 300)
    buffer = b"".join(found)
    assert walk(buffer, 0, len(buffer), **LIMITS).tolist() == places(found)


def test_a_size_that_no_record_has_ends_the_walk_inside_of_a_lane():
    found = records([b"body"] * 1000)
    buffer = bytearray(b"".join(found))
    at = places(found)[700]
    buffer[at : at + 4] = (MIN_RECORD_SIZE - 1).to_bytes(4, "big")
    assert walk(buffer, 0, len(buffer), **LIMITS).tolist() == places(found)[:700]


@pytest.mark.parametrize("most", [1, 16, 17, 500])
def test_no_more_records_than_asked_for(most):
    found = records([b"body"] * 600)
    buffer = b"".join(found)
    assert walk(buffer, 0, len(buffer), max_records=most, max_bytes=8 << 20).tolist() == places(found)[:most]


def test_one_record_larger_than_the_limit_is_found_alone():
    found = records([bytes(5000)] * 3)
    assert walk(b"".join(found), 0, 99999, max_records=10, max_bytes=100).tolist() == [0]


def test_records_without_magic_are_walked_by_their_sizes():
    found = [size.to_bytes(4, "big") + bytes(size - 4) for size in (100, 120) * 300]
    buffer = b"".join(found)
    assert walk(buffer, 0, len(buffer), **LIMITS).tolist() == places(found)
