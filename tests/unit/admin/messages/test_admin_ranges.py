"""Places as people write them, and which part of a queue is meant."""

from __future__ import annotations

import pytest

from pyromq.admin.messages.ranges import QueueRange, TopicRanges, last_messages, parse_place, place_of
from pyromq.admin.messages.sending import Pace
from pyromq.protocol.message_queue import MessageQueue


def part(queue_id, begin, end):
    return QueueRange(
        MessageQueue(topic="orders", broker_name="broker-a", queue_id=queue_id), "127.0.0.1:1", begin, end
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [("broker-a:3", ("broker-a", 3, None)), ("broker-a:3:17", ("broker-a", 3, 17)), ("a:0:0", ("a", 0, 0))],
)
def test_a_place_is_a_broker_a_queue_and_maybe_an_offset(text, place):
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text", ["", "broker-a", ":1", "broker-a:", "broker-a:x", "broker-a:1:", "broker-a:1:-2", "a:²"]
)
def test_what_is_no_place_is_refused(text):
    with pytest.raises(ValueError, match="is not a place"):
        parse_place(text)


def test_a_place_is_written_as_it_is_read():
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=2)
    assert parse_place(place_of(queue, 9)) == ("broker-a", 2, 9)


def test_the_last_messages_are_the_ends_of_all_queues():
    ranges = TopicRanges("orders", (part(0, 0, 100), part(1, 5, 7), part(2, 3, 3)))
    assert ranges.count == 102
    assert [(each.begin, each.end) for each in last_messages(ranges, 10).queues] == [(90, 100), (5, 7), (3, 3)]


def test_a_pace_spreads_what_comes_at_once():
    pace = Pace(10.0)
    assert [round(pace.due(5.0), 3) for _ in range(4)] == [4.9, 5.0, 5.1, 5.2]


def test_a_pace_does_not_make_up_for_a_long_wait():
    pace = Pace(10.0)
    pace.due(5.0)
    assert [round(pace.due(60.0), 3) for _ in range(3)] == [59.9, 60.0, 60.1]


async def test_without_a_rate_nobody_waits():
    pace = Pace(None)
    for _ in range(1000):
        await pace.turn()
