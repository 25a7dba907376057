"""Records that are looked for in many places at once are those that are found one after the other."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from pyromq.spark.decode.walk import walk

HEADS = [struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2)]


def one_by_one(buffer: bytes | bytearray, start: int, stop: int, max_records: int, max_bytes: int) -> list[int]:
    """What `walk` promises, in the plainest words."""
    starts: list[int] = []
    pos = start
    while pos < stop and len(starts) < max_records and len(buffer) - pos >= MIN_RECORD_SIZE:
        (size,) = struct.unpack_from(">i", buffer, pos)
        too_many = starts and pos + size > start + max_bytes
        if size < MIN_RECORD_SIZE or pos + size > len(buffer) or too_many:
            break
        starts.append(pos)
        pos += size
    return starts


def stretch(seed: int, count: int, *, spread: int, magics: float) -> bytearray:
    """Records of random sizes; this share of their bodies holds what looks like the beginning of one."""
    chance = random.Random(seed)
    parts = []
    for _ in range(count):
        body = bytearray(chance.randbytes(MIN_RECORD_SIZE + chance.randrange(spread) - 8))
        if chance.random() < magics:
            at = chance.randrange(len(body) - 8)
            body[at : at + 8] = struct.pack(">i", chance.choice([0, 7, 100, 2**31 - 1])) + chance.choice(HEADS)
        parts.append(struct.pack(">i", len(body) + 8) + chance.choice(HEADS) + bytes(body))
    return bytearray(b"".join(parts))


@given(
    st.integers(0, 2**32),
    st.integers(0, 700),
    st.sampled_from([1, 20, 2000]),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from([1, 16, 17, 400, 10_000]),
    st.sampled_from([1, 5_000, 60_000, 8 << 20]),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_lanes_lead_to_the_same_records(seed, count, spread, magics, max_records, max_bytes, data):
    buffer = stretch(seed, count, spread=spread, magics=magics)
    for _ in range(data.draw(st.integers(0, 2))):
        if buffer:
            buffer[data.draw(st.integers(0, len(buffer) - 1))] ^= data.draw(st.integers(1, 255))
    del buffer[data.draw(st.integers(0, len(buffer))) if data.draw(st.booleans()) else len(buffer) :]
    stop = data.draw(st.sampled_from([len(buffer), len(buffer) // 2]))
    limits = {"max_records": max_records, "max_bytes": max_bytes}
    for view in (bytes(buffer), memoryview(buffer)):
        assert walk(view, 0, stop, **limits).tolist() == one_by_one(buffer, 0, stop, **limits)


@given(st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_a_walk_may_begin_behind_other_records(seed):
    buffer = bytes(stretch(seed, 900, spread=300, magics=0.1))
    limits = {"max_records": 10_000, "max_bytes": 8 << 20}
    whole = walk(buffer, 0, len(buffer), **limits).tolist()
    assert walk(buffer, whole[300], len(buffer), **limits).tolist() == whole[300:]
