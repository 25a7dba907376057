"""The entries of the timer topic tell when their messages are due, and what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.protocol.names import TIMER_TOPIC
from pyromq.store.tags import TagsCodes, TimerKind, split_timer_code, timer_code

OUT = 1_700_000_005_000


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (b"TIMER_OUT_MS\x011700000005000\x02TAGS\x01A", TimerKind.MESSAGE),
        (b"TIMER_DEL_UNIQKEY\x01k\x02TIMER_OUT_MS\x011700000005000", TimerKind.RECALL),
        (b"TIMER_OUT_MS\x011700000005000\x02TIMER_ROLL_TIMES\x011", TimerKind.ROLLED),
        (b"TIMER_OUT_MS\x011700000005000\x02TIMER_ROLL_TIMES\x011\x02TIMER_DEL_UNIQKEY\x01k", TimerKind.RECALL),
    ],
)
def test_time_and_kind_share_a_code(properties, kind):
    code = TagsCodes(()).of(TIMER_TOPIC, properties, 0)
    assert code == OUT + kind
    assert split_timer_code(code) == (OUT, kind)


@pytest.mark.parametrize("out", [b"", b"soon", b"0", b"-1700000005000", b"1700000005001", b"9" * 18, b"9" * 5000])
def test_without_a_proper_time_it_is_the_hash_of_the_tag(out):
    properties = b"TAGS\x01A\x02TIMER_OUT_MS\x01" + out
    assert timer_code(properties) is None
    assert TagsCodes(()).of(TIMER_TOPIC, properties, 0) == TagsCodes(()).of_tag(properties) == 65


def test_in_other_topics_it_means_nothing():
    assert TagsCodes(()).of("orders", b"TAGS\x01A\x02TIMER_OUT_MS\x011700000005000", 0) == 65


@given(st.integers(-(2**31), 2**31 - 1))
def test_no_hash_is_taken_for_a_time(code):
    assert split_timer_code(code) is None
