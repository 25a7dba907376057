"""Files of topics and groups, and the plan that is made of them."""

from __future__ import annotations

import pytest

from pyromq.admin.manifest.apply import Action, GroupWish, TopicWish, group_step, parse_wishes, topic_step
from pyromq.errors import ConfigError
from pyromq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

YAML = b"""
topics:
  - name: orders
    queues: 8
    perm: rw
  - {name: audit, readQueues: 4, writeQueues: 2, attributes: {message.type: FIFO}}
groups:
  - name: billing
    retryMax: 3
"""


def test_yaml_and_json_say_the_same():
    wishes = parse_wishes(YAML, "f")
    assert [wish.fields() for wish in wishes.topics] == [
        {"read_queue_nums": 8, "write_queue_nums": 8, "perm": 6},
        {"read_queue_nums": 4, "write_queue_nums": 2},
    ]
    assert wishes.groups == [GroupWish(name="billing", retry_max=3)]
    assert parse_wishes(b'{"groups": [{"name": "billing", "retryMax": 3}]}', "f").groups == wishes.groups


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"topics: [{name: a, queus: 8}]", "queus"),
        (b"topics: [{queues: 8}]", "name"),
        (b"topics: [{name: a}, {name: a}]", "topic a occurs twice"),
        (b"topics: [", "f: "),
        (b"\xff\xfe\x00", "f: "),
        (b"- a", "f: "),
        (b"", "f: "),
        (b"topics: [{name: a, queues: eight}]", "eight|int"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_a_line(text, said):
    with pytest.raises(ConfigError, match=said) as raised:
        parse_wishes(text, "f")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("wish", [TopicWish(name="a", perm="x"), TopicWish(name="a", queues=-1)])
def test_values_that_cannot_be_are_refused(wish):
    with pytest.raises(ConfigError, match="topic a"):
        wish.fields()


def test_a_topic_that_is_not_there_is_created_with_all_its_settings():
    step = topic_step(TopicWish(name="orders", queues=4), "broker-a", None)
    assert step.action is Action.CREATE
    assert step.changes == {"readQueues": "4", "writeQueues": "4", "perm": "rw", "order": "false"}
    assert isinstance(step.config, TopicConfig)
    assert step.config.write_queue_nums == 4


def test_what_is_not_said_stays_as_it_is():
    now = TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8, perm=4, topic_sys_flag=1)
    step = topic_step(TopicWish(name="orders", queues=16), "broker-a", now)
    assert (step.action, step.changes) == (Action.UPDATE, {"readQueues": "8 → 16", "writeQueues": "8 → 16"})
    assert isinstance(step.config, TopicConfig)
    assert (step.config.perm, step.config.topic_sys_flag) == (4, 1)
    assert not step.loses_queues
    assert topic_step(TopicWish(name="orders", read_queues=4), "broker-a", now).loses_queues
    assert topic_step(TopicWish(name="orders", queues=8), "broker-a", now).action is Action.KEEP


def test_attributes_are_sent_only_where_they_differ():
    now = TopicConfig(topic_name="orders", attributes={"message.type": "FIFO", "other": "x"})
    same = topic_step(TopicWish(name="orders", attributes={"message.type": "FIFO"}), "broker-a", now)
    assert same.action is Action.KEEP
    step = topic_step(TopicWish(name="orders", attributes={"message.type": "NORMAL"}), "broker-a", now)
    assert step.changes == {"message.type": "FIFO → NORMAL"}
    assert isinstance(step.config, TopicConfig)
    assert step.config.attributes == {"message.type": "NORMAL"}


def test_a_group_keeps_what_is_not_said():
    now = SubscriptionGroupConfig(group_name="billing", retry_max_times=16, consume_enable=False)
    step = group_step(GroupWish(name="billing", retry_max=3), "broker-a", now)
    assert (step.action, step.changes) == (Action.UPDATE, {"retryMax": "16 → 3"})
    assert isinstance(step.config, SubscriptionGroupConfig)
    assert not step.config.consume_enable
    assert group_step(GroupWish(name="billing"), "broker-a", None).action is Action.CREATE
