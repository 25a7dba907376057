"""Where a goal takes a group in one queue, and what that means for its messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.admin.groups.members import InspectedClient, subscription_mismatch
from pyromq.admin.groups.reset import Goal, Move, _move, _target
from pyromq.admin.topic_kinds import TopicKind, topic_kind
from pyromq.protocol.bodies import TopicOffset
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import is_system_group

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=1)
ENDS = TopicOffset(min_offset=10, max_offset=100)


@pytest.mark.parametrize(
    ("goal", "current", "found", "target"),
    [
        (Goal(Move.EARLIEST), 50, None, 10),
        (Goal(Move.LATEST), 50, None, 100),
        (Goal(Move.OFFSET, number=60), 50, None, 60),
        (Goal(Move.OFFSET, number=5), 50, None, 10),
        (Goal(Move.OFFSET, number=500), 50, None, 100),
        (Goal(Move.SHIFT, number=-7), 50, None, 43),
        (Goal(Move.SHIFT, number=-70), 50, None, 10),
        (Goal(Move.SHIFT, number=7), None, None, None),
        (Goal(Move.EXACT, offsets={QUEUE: 33}), 50, None, 33),
        (Goal(Move.EXACT, offsets={}), 50, None, None),
        (Goal(Move.TIME, datetime(2026, 1, 1, tzinfo=UTC)), 50, 40, 40),
        (Goal(Move.TIME, datetime(2026, 1, 1, tzinfo=UTC)), 50, None, None),
    ],
)
def test_every_goal_has_its_target(goal, current, found, target):
    assert _target(goal, ENDS, current, found, QUEUE) == target


@given(st.sampled_from([Move.OFFSET, Move.SHIFT, Move.EXACT, Move.TIME]), st.integers(-200, 200), st.integers(0, 200))
def test_a_target_is_always_a_place_in_the_queue(move, number, current):
    goal = Goal(move, number=number, offsets={QUEUE: number})
    target = _target(goal, ENDS, current, number, QUEUE)
    assert target is not None
    assert 10 <= target <= 100


@pytest.mark.parametrize(
    ("current", "target", "replays", "skips"),
    [(50, 40, 10, 0), (40, 50, 0, 10), (40, 40, 0, 0), (None, 40, None, None), (40, None, None, None)],
)
def test_back_is_a_replay_forward_a_skip_and_the_unknown_neither(current, target, replays, skips):
    row = _move(QUEUE, current, target)
    assert (row.replays, row.skips) == (replays, skips)


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", TopicKind.NORMAL),
        ("%RETRY%billing", TopicKind.RETRY),
        ("%DLQ%billing", TopicKind.DLQ),
        ("TBW102", TopicKind.SYSTEM),
        ("rmq_sys_wheel_timer", TopicKind.SYSTEM),
        ("DefaultCluster_REPLY_TOPIC", TopicKind.SYSTEM),
        ("broker-a", TopicKind.SYSTEM),
    ],
)
def test_topics_of_people_are_told_from_those_of_brokers(topic, kind):
    assert topic_kind(topic, {"broker-a", "DefaultCluster"}) is kind


def test_groups_of_people_are_told_from_those_of_brokers():
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("billing")


def member(client, **subscriptions):
    return InspectedClient(client, "V5_5_0", 1, 0, 0.0, 0.0, 0.0, 0.0, subscriptions)


def test_members_that_subscribe_differently_are_named():
    assert subscription_mismatch([member("a", orders="*"), member("b", orders="*")]) == ""
    silent = InspectedClient("c", "V5_5_0", None, None, None, None, None, None, None)
    assert subscription_mismatch([member("a", orders="*"), silent]) == ""
    told = subscription_mismatch([member("a", orders="*"), member("b", orders="red")])
    assert told.startswith("subscriptions differ")
    assert "a: orders *" in told
    assert "b: orders red" in told
