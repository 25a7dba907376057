"""A filter tests many messages together as it tests each alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.filters.evaluation import Match
from pyromq.filter import compile_filter
from pyromq.protocol.ids import encode_host
from pyromq.protocol.record import MessageRecord, encode_record
from pyromq.store.format import ENTRY
from pyromq.store.record_table import PropertiesTable, RecordTable

V4 = encode_host("127.0.0.1", 1)

NAMES = ("a", "b", "customer", "customerId", "a_name_of_more_than_sixteen_letters")
SOME = "a > 5 AND b IN ('x','y')"
ALL = (
    "a > 5 OR b = 'x' OR customer = 'Anna' OR customerId BETWEEN 3 AND 70 "
    "OR a_name_of_more_than_sixteen_letters CONTAINS 'zz'"
)


def one_by_one(text: str, properties: list[bytes]) -> list[bool]:
    match = Match(compile_filter(text))
    return [match(memoryview(encode_record(MessageRecord("T", b"body", each)))) for each in properties]


def table(properties: list[bytes]) -> PropertiesTable:
    """As a read finds them in the log. Behind the last record there is what looks like a property, to trip over."""
    log, entries = b"", b""
    for each in properties:
        record = encode_record(MessageRecord("T", b"body", each, physical_offset=len(log), born_host=V4, store_host=V4))
        entries += ENTRY.pack(len(log), len(record), 0)
        log += record
    end = len(log)
    found = RecordTable(entries, memoryview(log + b"a\x019\x02b\x01x\x02" * 200), 0, end).properties(0, len(properties))
    assert found is not None
    return found


def together(text: str, *lots: list[bytes]) -> list[list[bool]]:
    match = Match(compile_filter(text))
    return [match.of_many(table(lot)) for lot in lots]


values = st.one_of(
    st.sampled_from(["7", "x", "y", "3", "", "Anna", "-1", "12345678", "123456789", "a\x01b", "zz" * 8, "z" * 33]),
    st.text(st.characters(exclude_characters="\x02", codec="utf-8"), max_size=12),
)
usual = st.lists(st.tuples(st.sampled_from([*NAMES, "TAGS", "custome", "customerI"]), values), max_size=6).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
)
pieces = st.sampled_from([b"\x01", b"\x02", b"a", b"a\x017", b"b\x01x", b"\0", b"customer", b"\xff"])
odd = st.lists(pieces, max_size=6).map(b"".join)
lots = st.lists(st.lists(st.one_of(usual, usual, odd), min_size=1, max_size=12), min_size=1, max_size=3)


@given(lots=lots, text=st.sampled_from([SOME, ALL]))
def test_many_are_answered_as_each_alone(lots, text):
    assert together(text, *lots) == [one_by_one(text, lot) for lot in lots]


def test_values_that_grow_are_not_mixed_up():
    # A long value takes more room in what is remembered, and must not be taken for the value of another name.
    text = "a = 'AAAAAAAABBBBBBBB' OR b = 'BBBBBBBB'"
    lots = [
        [b"a\x01AAAAAAAA\x02b\x01BBBBBBBB", b"a\x01AAAAAAAA\x02b\x01CCCCCCCC"],
        [b"a\x01AAAAAAAABBBBBBBB", b"a\x01AAAAAAAABBBBBBBC"],
        [b"b\x01BBBBBBBBBBBBBBBB", b"a\x01AAAAAAAA\x02b\x01BBBBBBBB"],
        [b"a\x01AAAAAAAA\x02b\x01BBBBBBBB", b"a\x01AAAAAAAA"],
    ]
    assert together(text, *lots) == [[True, False], [True, False], [False, True], [True, False]]


def test_the_last_of_equal_names_wins_unless_it_is_empty():
    lot = [b"a\x011\x02a\x017\x02b\x01x", b"a\x017\x02a\x011\x02b\x01x", b"a\x017\x02a\x01\x02b\x01x"]
    assert together(SOME, lot) == [[True, False, True]]


def test_a_filter_that_sees_ever_new_values_still_answers():
    match = Match(compile_filter("a > 500"))
    lots = [[b"a\x01%d" % (number * 300 + at) for at in range(300)] for number in range(10)]
    assert [match.of_many(table(lot)) for lot in lots] == [
        [number * 300 + at > 500 for at in range(300)] for number in range(10)
    ]


def test_a_filter_with_very_many_names_still_answers():
    text = " OR ".join(f"n{number} = 'x'" for number in range(20))
    assert together(text, [b"n3\x01x", b"n19\x01y", b"n19\x01x", b""]) == [[True, False, True, False]]


@pytest.mark.parametrize("text", ["TRUE", "FALSE"])
def test_a_filter_that_asks_for_nothing_answers(text):
    assert together(text, [b"a\x011", b""]) == [[text == "TRUE"] * 2]


def test_as_many_are_looked_at_as_it_takes_by_what_was_seen():
    match = Match(compile_filter(SOME))
    assert match.expected(32) < 50  # nothing was seen, so every message may be selected
    for _ in range(20):
        match.of_many(table([b"a\x017\x02b\x01x"] + [b"a\x013\x02b\x01x"] * 9))
    assert 320 <= match.expected(32) < 400
    for _ in range(50):
        match.of_many(table([b"a\x013"] * 100))
    assert match.expected(32) < 7000
