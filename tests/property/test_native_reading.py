"""The walk of a pull, compiled and plain: the same slices of the same log, or the same refusal."""

from __future__ import annotations

import struct
from types import SimpleNamespace as Namespace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from pyromq import _native
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2
from pyromq.store.fast_read import plain_few
from pyromq.store.format import ENTRY, PRE_BLANK

if TYPE_CHECKING:
    from collections.abc import Sequence

START = 1 << 20
HEAD = struct.Struct(">iiiiiqq")


def segment_of(spots: Sequence[tuple[int, int, int, int]]) -> tuple[bytes, Any, int]:
    log, entries = bytearray(), b""
    for number, (before, size, wrong, more) in enumerate(spots):
        log += bytes(before)
        physical = START + len(log)
        magic = MAGIC_V2 if wrong == 1 else MAGIC_V1
        head = HEAD.pack(size + (wrong == 2), magic, 0, 0, 0, 0, physical + (wrong == 3))
        log += (head + bytes(size))[:size]
        entries += PRE_BLANK if wrong == 4 else ENTRY.pack(physical - 7 * (wrong == 5 and number > 0), size + more, 0)
    return entries, Namespace(view=memoryview(bytes(log)), start=START), START + len(log)


spots = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 9]),
        st.integers(86, 120),
        st.sampled_from([0] * 20 + [1, 2, 3, 4, 5]),
        st.sampled_from([0] * 12 + [-40, 1, 4000]),
    ),
    min_size=1,
    max_size=12,
)


@given(spots, st.integers(1, 14), st.integers(0, 1200), st.booleans(), st.sampled_from([0, 0, 30]))
def test_both_find_the_same(native, spots, wanted, max_bytes, joined, cut):
    entries, segment, end = segment_of(spots)
    compiled = _native.module("reading")
    assert compiled is not None
    found = compiled.few(entries, segment, end - cut, wanted, max_bytes, joined)
    assert found == plain_few(entries, segment, end - cut, wanted, max_bytes, joined)
