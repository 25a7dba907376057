"""What requests need, as their codes declare it."""

from __future__ import annotations

import pytest

from pyromq.protocol.rights import (
    EVERY,
    OPEN,
    SIGNED,
    Action,
    Need,
    ResourceKind,
    cluster,
    every,
    from_body,
    group,
    if_given,
    reply,
    several,
    topic,
)

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET


def need(kind, name, *actions):
    return Need(kind, name, frozenset(actions))


def test_a_request_needs_one_of_the_actions_on_what_its_field_names():
    assert topic(PUB).of({"topic": "t"}) == (need(TOPIC, "t", PUB),)
    assert topic(PUB, field="b").of({"topic": "other", "b": "t"}) == (need(TOPIC, "t", PUB),)
    assert group(SUB, GET).of({"consumerGroup": "g"}) == (need(GROUP, "g", SUB, GET),)
    assert cluster(GET).of({"topic": "t"}) == (need(CLUSTER, "", GET),)
    assert every(TOPIC, GET).of({}) == (need(TOPIC, EVERY, GET),)


def test_both_needs_are_asked_for():
    both = topic(SUB) + group(SUB)
    assert both.of({"topic": "t", "consumerGroup": "g"}) == (need(TOPIC, "t", SUB), need(GROUP, "g", SUB))
    assert (topic(SUB) + from_body(lambda _: ())).body is not None


def test_a_field_that_is_missing_names_nothing_that_anyone_has_rights_on():
    assert topic(PUB).of({}) == (need(TOPIC, "", PUB),)


@pytest.mark.parametrize("name", ["%RETRY%g", "%DLQ%g"])
def test_topics_of_a_group_are_a_matter_of_the_group(name):
    assert topic(SUB).of({"topic": name}) == (need(GROUP, "g", SUB),)
    # That is how a client sends back what it could not consume.
    assert topic(PUB).of({"topic": name}) == (need(GROUP, "g", SUB),)
    assert topic(Action.DELETE).of({"topic": name}) == (need(GROUP, "g", Action.DELETE),)


def test_what_need_not_be_given_asks_for_something_else_then():
    view = if_given(topic(GET), "topic", instead=cluster(GET))
    assert view.of({"topic": "t"}) == (need(TOPIC, "t", GET),)
    assert view.of({"topic": ""}) == view.of({}) == (need(CLUSTER, "", GET),)


def test_each_of_several_resources_is_needed():
    lists = several(GROUP, GET, field="filterGroups", apart_by=",")
    assert lists.of({"filterGroups": "a, b,,"}) == (need(GROUP, "a", GET), need(GROUP, "b", GET))
    assert lists.of({}) == ()


def test_replies_need_no_rights_on_the_topic_of_the_cluster():
    assert reply(field="b").of({"b": "DefaultCluster_REPLY_TOPIC"}) == ()
    assert reply().of({"topic": "orders"}) == (need(TOPIC, "orders", PUB),)


def test_only_what_is_open_needs_no_account():
    assert SIGNED.signed
    assert (topic(PUB) + OPEN).signed
    assert not OPEN.signed
