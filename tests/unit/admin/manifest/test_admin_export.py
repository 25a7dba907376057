"""What a cluster has as a file for `apply`: as few entries as say all of it, and nothing to do when it is applied."""

from __future__ import annotations

import msgspec
import pytest

from pyromq.admin.manifest.apply import Action, GroupWish, TopicWish, group_step, parse_wishes, topic_step
from pyromq.admin.manifest.export import group_wish, placed, topic_wish
from pyromq.errors import ConfigError
from pyromq.protocol.bodies import (
    CustomizedRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    TopicConfig,
)

MASTERS = {"a": "1", "b": "2", "c": "3"}
CLUSTERS = {"north": ["a", "b"], "south": ["c"]}

TOPICS = [
    TopicConfig(topic_name="plain", read_queue_nums=8, write_queue_nums=8),
    TopicConfig(topic_name="odd", read_queue_nums=4, write_queue_nums=2, perm=4, order=True, topic_sys_flag=1),
    TopicConfig(topic_name="closed", perm=0, attributes={"message.type": "FIFO"}),
]
POLICY = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([1000, 2000]))
GROUPS = [
    SubscriptionGroupConfig(group_name="plain"),
    SubscriptionGroupConfig(
        group_name="odd",
        consume_enable=False,
        consume_broadcast_enable=False,
        retry_max_times=3,
        group_retry_policy=POLICY,
        broker_id=1,
        which_broker_when_consume_slowly=2,
        notify_consumer_ids_changed_enable=False,
        consume_timeout_minute=5,
        group_sys_flag=1,
    ),
]


def read_back(**wishes):
    """The wishes after they were a file."""
    return parse_wishes(msgspec.json.encode(wishes), "f")


@pytest.mark.parametrize("config", TOPICS, ids=lambda config: config.topic_name)
def test_a_topic_is_the_same_after_a_file(config):
    [wish] = read_back(topics=[topic_wish(config)]).topics
    assert topic_step(wish, "a", config).action is Action.KEEP
    assert topic_step(wish, "a", None).config == config


@pytest.mark.parametrize("config", GROUPS, ids=lambda config: config.group_name)
def test_a_group_is_the_same_after_a_file(config):
    [wish] = read_back(groups=[group_wish(config)]).groups
    assert group_step(wish, "a", config).action is Action.KEEP
    assert group_step(wish, "a", None).config == config


def test_what_hardly_anybody_touches_is_said_only_where_it_is_unusual():
    assert group_wish(GROUPS[0]) == GroupWish(
        name="plain", consume=True, from_min=True, broadcast=True, orderly=False, retry_queues=1, retry_max=16
    )


@pytest.mark.parametrize(
    ("brokers", "place"),
    [("abc", {}), ("ab", {"cluster": "north"}), ("c", {"cluster": "south"}), ("a", {"brokers": ["a"]})],
)
def test_a_place_is_said_as_generally_as_it_is_true(brokers, place):
    wish = TopicWish(name="orders", queues=4)
    assert placed(dict.fromkeys(brokers, wish), CLUSTERS, MASTERS) == [msgspec.structs.replace(wish, **place)]


def test_a_name_with_several_settings_is_there_several_times():
    small, big = TopicWish(name="orders", queues=4), TopicWish(name="orders", queues=8)
    found = placed({"a": small, "b": small, "c": big}, CLUSTERS, MASTERS)
    assert {wish.cluster: wish.queues for wish in found} == {"north": 4, "south": 8}
    assert read_back(topics=found).topics == found
    with pytest.raises(ConfigError, match="topic orders occurs twice for north"):
        read_back(topics=[*found, msgspec.structs.replace(big, cluster="north")])


def test_what_a_plan_changes_of_the_rare_settings_is_told():
    now = SubscriptionGroupConfig(group_name="g")
    assert group_step(GroupWish(name="g", broker_id=1), "a", now).changes == {"brokerId": "0 → 1"}
    assert "brokerId" not in group_step(GroupWish(name="g"), "a", None).changes
