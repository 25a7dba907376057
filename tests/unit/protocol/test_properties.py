from __future__ import annotations

import pytest

from pyromq.errors import LocalProtocolError
from pyromq.protocol import properties


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", {}),
        ("\x01", {}),
        ("\x02", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02\x02c\x01d\x02", {"a": "b", "c": "d"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01b\x02a\x01", {"a": "b"}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("\x01b", {}),
        ("nothing", {}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("a\x01\x01", {"a": "\x01"}),
        ("键\x01值", {"键": "值"}),
    ],
)
def test_any_text_is_read_as_java_reads_it(text, parsed):
    assert properties.parse(text) == parsed


def test_properties_are_written_without_a_final_separator():
    assert properties.render({"KEYS": "k1 k2", "TAGS": "a"}) == "KEYS\x01k1 k2\x02TAGS\x01a"
    assert properties.render({}) == ""


def test_an_empty_value_is_written_and_not_read_back():
    text = properties.render({"a": "", "b": "c"})
    assert text == "a\x01\x02b\x01c"
    assert properties.parse(text) == {"b": "c"}


def test_a_value_may_hold_the_first_separator():
    assert properties.parse(properties.render({"a": "b\x01c"})) == {"a": "b\x01c"}


@pytest.mark.parametrize("mapping", [{"a\x01b": "c"}, {"a\x02b": "c"}, {"a": "b\x02TAGS\x01x"}, {"": "\x02"}])
def test_separators_that_would_smuggle_in_a_property_are_refused(mapping):
    with pytest.raises(LocalProtocolError):
        properties.render(mapping)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", None),
        (b"TAGS\x01a", b"a"),
        (b"TAGS\x01a\x02", b"a"),
        (b"KEYS\x01k\x02TAGS\x01a\x02WAIT\x01true", b"a"),
        (b"TAGS\x01a\x02TAGS\x01b", b"b"),
        (b"TAGS\x01a\x02TAGS\x01", b"a"),
        (b"TAGS\x01\x02", None),
        (b"MYTAGS\x01a", None),
        (b"a\x01TAGS\x01b", None),
        (b"TAGS\x01a\x02x\x01TAGS\x01b", b"a"),
        (b"TAGSX\x01a", None),
        (b"TAGS", None),
        (b"TAGS\x01\xff", b"\xff"),
    ],
)
def test_one_property_is_found_without_parsing(raw, value):
    assert properties.find(raw, b"TAGS") == value
    expected = properties.parse(properties.decode(raw)).get("TAGS")
    assert (None if value is None else properties.decode(value)) == expected


def test_half_a_surrogate_pair_becomes_a_question_mark_as_in_java():
    assert properties.encode("a\x01\ud800") == b"a\x01?"


def test_names_with_a_meaning_of_their_own_are_reserved():
    assert {"KEYS", "TAGS", "UNIQ_KEY", "DELAY", "__CRC32#"} <= properties.RESERVED
    assert properties.SHARDING_KEY not in properties.RESERVED
    assert properties.CHECK_IMMUNITY_TIME_IN_SECONDS not in properties.RESERVED
