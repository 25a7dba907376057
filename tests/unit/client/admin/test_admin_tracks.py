"""What became of a message in a group: judged by members, subscriptions and offsets."""

from __future__ import annotations

import pytest

from pyromq.client.admin.progress import GroupProgress, QueueProgress
from pyromq.client.admin.tracks import TrackState, track_of
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import ConsumerConnection, ConsumeType, MessageModel, SubscriptionData
from pyromq.protocol.ids import encode_host
from pyromq.protocol.message import MessageExt
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import MessageRecord

HOST = encode_host("127.0.0.1", 10911)


def message(tags="red", offset=5):
    record = MessageRecord(
        topic="orders",
        queue_id=1,
        queue_offset=offset,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=HOST,
        store_timestamp=0,
        store_host=HOST,
        body=b"",
        properties=props.render({props.TAGS: tags} if tags else {}).encode(),
    )
    return MessageExt(record, "broker-a")


def online(consume_type=ConsumeType.CONSUME_PASSIVELY, model=MessageModel.CLUSTERING, **subscription):
    wanted = SubscriptionData(topic="orders", **subscription)
    return ConsumerConnection(consume_type=consume_type, message_model=model, subscription_table={"orders": wanted})


def at(consumer_offset, broker="broker-a", queue_id=1):
    queue = MessageQueue(broker_name=broker, queue_id=queue_id, topic="orders")
    return GroupProgress("g", 0.0, (QueueProgress(queue, 10, consumer_offset),))


@pytest.mark.parametrize(
    ("progress", "state"),
    [
        (at(6), TrackState.CONSUMED),
        (at(5), TrackState.NOT_CONSUME_YET),
        (at(6, broker="broker-b"), TrackState.NOT_CONSUME_YET),
        (at(6, queue_id=0), TrackState.NOT_CONSUME_YET),
        (None, TrackState.NOT_CONSUME_YET),
    ],
)
def test_a_group_whose_offset_is_behind_a_message_has_consumed_it(progress, state):
    assert track_of("g", message(), "broker-a", online(), progress).state is state


@pytest.mark.parametrize(
    ("tags", "wanted", "state"),
    [
        ("red", {"red"}, TrackState.CONSUMED),
        ("red", {"blue"}, TrackState.CONSUMED_BUT_FILTERED),
        (None, {"blue"}, TrackState.CONSUMED_BUT_FILTERED),
        ("red", {"*"}, TrackState.CONSUMED),
        ("red", (), TrackState.CONSUMED),
    ],
)
def test_a_group_that_does_not_want_the_tag_has_passed_the_message_over(tags, wanted, state):
    connections = online(tags_set=frozenset(wanted))
    assert track_of("g", message(tags), "broker-a", connections, at(6)).state is state


def test_by_sql_only_the_broker_can_tell_what_was_filtered():
    connections = online(expression_type="SQL92", sub_string="a > 1")
    assert track_of("g", message(), "broker-a", connections, at(6)).state is TrackState.CONSUMED


def test_a_group_that_pulls_is_only_said_to_pull():
    connections = online(ConsumeType.CONSUME_ACTIVELY)
    assert track_of("g", message(), "broker-a", connections, at(6)).state is TrackState.PULL


@pytest.mark.parametrize(
    "connections",
    [online(model=MessageModel.BROADCASTING), online(ConsumeType.CONSUME_POP), online(None)],
)
def test_where_the_offsets_say_nothing_the_state_is_unknown_with_a_reason(connections):
    track = track_of("g", message(), "broker-a", connections, at(6))
    assert track.state is TrackState.UNKNOWN
    assert track.reason
