"""The keys of records for the index, compiled and plain: the same hashes for the same records, in the same order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq import _native
from pyromq.store.index.keys import _prefix_hash, plain_key_hashes

ITEMS = st.sampled_from([
    *("UNIQ_KEY\x01", "UNIQ_KEY\x01AC10", "UNIQ_KEY", "UNIQ_KEYS\x01x", "KEYS\x01", "KEYS\x01a", "KEYS\x01a b  c "),
    *("KEYS\x01 ", "XKEYS\x01a", "KEYS", "KEY\x01a", "", "\x01", "TAGS\x01A", "U", "K", "KEYS\x01" + "k" * 90),
    *("UNIQ_KEY\x01polygenelubricants", "KEYS\x01\x01", "UNIQ_KEY\x01x\x01y", "a\x01KEYS\x01b"),
])  # fmt: skip
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["orders", b"\x06orders", "Ω", b"\x02\xce\xa9", b"\0\x80" + b"t" * 128]),
        st.lists(ITEMS, max_size=5).map("\x02".join) | st.text("UNIQ_KEYS\x01\x02 ab", max_size=40),
    ),
    max_size=8,
)


def both(records):
    compiled = _native.module("keys")
    assert compiled is not None
    topics = [topic for topic, _ in records]
    properties = [text.encode() for _, text in records]
    joined = b"".join(b"\x02" + each for each in properties)
    sizes = np.array([len(each) for each in properties], np.intp)
    found = compiled.joined_key_hashes(topics, joined, sizes, _prefix_hash)
    plain = [each.tolist() for each in plain_key_hashes(topics, joined, sizes)] if records else [[], []]
    return found and [np.frombuffer(each, np.int64).tolist() for each in found], plain


@given(RECORDS)
def test_both_find_the_same(native, records):
    found, plain = both(records)
    assert found == plain


def test_what_is_not_ascii_is_left_alone(native):
    found, plain = both([("orders", "KEYS\x01a"), ("orders", "KEYS\x01ключ")])
    assert found is None
    assert len(plain[0]) == 2


def test_sizes_of_other_properties_are_refused(native):
    compiled = _native.module("keys")
    assert compiled is not None
    with pytest.raises(ValueError, match="other properties"):
        compiled.joined_key_hashes(["T"], b"\x02abc", np.array([9], np.intp), _prefix_hash)
