from __future__ import annotations

import pytest

from pyromq.client.consumer.subscriptions import Sql, barred_tag, matches, subscription_data, subscriptions
from pyromq.errors import ConfigError
from pyromq.protocol.hashing import java_hash


@pytest.mark.parametrize("everything", ["*", ""])
def test_everything_is_written_as_a_star(everything):
    data = subscription_data("orders", everything, 7)
    assert (data.sub_string, data.expression_type, data.sub_version) == ("*", "TAG", 7)
    assert not data.tags_set
    assert not data.code_set


def test_tags_are_told_with_their_hashes():
    data = subscription_data("orders", " TagA ||TagB|| ", 1)
    assert data.sub_string == " TagA ||TagB|| "
    assert data.tags_set == {"TagA", "TagB"}
    assert data.code_set == {2598919, java_hash("TagB")}


def test_an_sql_expression_goes_as_it_is():
    data = subscription_data("orders", Sql("a > 5"), 1)
    assert (data.sub_string, data.expression_type, data.tags_set) == ("a > 5", "SQL92", frozenset())


@pytest.mark.parametrize("nothing", ["||", " || ", Sql(" ")])
def test_an_expression_that_says_nothing_is_refused(nothing):
    with pytest.raises(ConfigError):
        subscription_data("orders", nothing, 1)


@pytest.mark.scenario("client 36")
def test_tags_of_equal_hash_are_told_apart():
    assert java_hash("Aa") == java_hash("BB")
    wanted = subscription_data("orders", "Aa", 1)
    assert matches(wanted, "Aa")
    assert not matches(wanted, "BB")
    assert not matches(wanted, None)


@pytest.mark.parametrize("tags", ["Aa", None])
def test_who_wants_everything_gets_everything(tags):
    assert matches(subscription_data("orders", "*", 1), tags)
    assert matches(subscription_data("orders", Sql("a > 5"), 1), tags)


def test_each_topic_has_its_subscription():
    both = subscriptions({"a": "*", "b": "T"}, 3)
    assert {topic: data.sub_string for topic, data in both.items()} == {"a": "*", "b": "T"}


@pytest.mark.parametrize(
    ("expression", "tag"),
    [
        ("a | b", "a | b"),
        ("a || b|c", "b|c"),
        ("a ||| b", "| b"),
        ("a || b", None),
        ("a", None),
        ("*", None),
        (Sql("a = 'x|y'"), None),
    ],
)
def test_a_single_bar_inside_a_tag_is_found(expression, tag):
    assert barred_tag(subscription_data("T", expression, 1)) == tag
