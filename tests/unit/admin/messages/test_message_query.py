"""The search language for messages."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.admin.messages.query import Query, parse_query
from pyromq.errors import ConfigError


def stored(body: bytes, **properties: str) -> Any:
    """As much of a message as a query looks at."""
    return SimpleNamespace(body=body, properties=properties)


def test_every_word_of_the_language_is_understood():
    query = parse_query(
        'topic:orders tag:A||B prop.region=eu prop.k="a b" body~"gift card" after:-1h before:now queue:b:3'
    )
    assert (query.topic, query.tag, query.after, query.before, query.queue) == ("orders", "A||B", "-1h", "now", "b:3")
    assert query.properties == (("region", "eu"), ("k", "a b"))
    assert query.body == ("gift card",)
    assert parse_query("C0A8000100002A9F").word == "C0A8000100002A9F"
    assert parse_query('sql:"a > 5"').sql == "a > 5"
    assert parse_query("   ") == Query()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('body~"open', "quote is not closed"),
        ("colour:red", "is not known"),
        ("topic:a topic:b", "only be given once"),
        ("one two", "only one id or key"),
        ("tag:A sql:x", "cannot be combined"),
        ("x" * 5000, "longer than"),
    ],
)
def test_a_query_that_makes_no_sense_gets_a_sentence(text, said):
    with pytest.raises(ConfigError, match=said):
        parse_query(text)


def test_properties_and_texts_in_the_body_decide():
    query = parse_query("prop.region=eu body~gift*card")
    assert query.fits(stored(b"a Gift, no: a CARD", region="eu"))
    assert not query.fits(stored(b"card and gift", region="eu"))
    assert not query.fits(stored(b"gift card", region="us"))
    assert parse_query("body~a.c").fits(stored(b"a.c"))
    assert not parse_query("body~a.c").fits(stored(b"abc"))
    assert parse_query("body~*").fits(stored(b"\xff\xfe"))


_TEXT = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())


@given(_TEXT, _TEXT, _TEXT)
def test_a_query_can_be_typed_as_it_is_shown(topic, value, body):
    query = Query(topic=topic, properties=(("name", value),), body=(body,))
    again = parse_query(str(query))
    assert (again.topic, again.properties, again.body) == (query.topic, query.properties, query.body)


@given(st.text(max_size=60))
def test_any_text_is_a_query_or_refused(text):
    with contextlib.suppress(ConfigError):
        parse_query(text)
