"""Offsets of users and of checkpoints."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import ConfigError
from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.source.offsets import (
    EARLIEST,
    StreamOffset,
    nested,
    parse_offsets,
    parse_times,
    ranges,
    render,
    resolve,
    without,
)


def queue(number: int, broker: str = "broker-a", topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


Q0, Q1, Q2, Q10 = map(queue, (0, 1, 2, 10))
queues = st.builds(MessageQueue, topic=st.text(), broker_name=st.text(), queue_id=st.integers(0, 2**31 - 1))
tables = st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=8)


def test_users_write_the_next_offset_of_each_queue():
    text = '{"orders":{"broker-a":{"0":23,"1":-1},"broker-b":{"0":-2}}}'
    assert parse_offsets(text, "startingOffsets") == {Q0: 23, Q1: -1, queue(0, "broker-b"): -2}
    assert render(parse_offsets(text, "startingOffsets")) == text


@given(tables)
def test_what_is_rendered_is_read_back(offsets):
    assert parse_offsets(render(offsets), "startingOffsets") == offsets
    assert StreamOffset.from_json(json.loads(json.dumps(StreamOffset(offsets, offsets).to_json()))).ends == offsets


def test_equal_offsets_are_equal_text_with_queues_in_order():
    assert render({Q10: 1, Q0: 2, Q2: 3}) == render({Q2: 3, Q10: 1, Q0: 2})
    assert [*nested({Q10: 1, Q0: 2, Q2: 3})["orders"]["broker-a"]] == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "startingOffsets is not JSON"),
        ("[" * 100_000, "startingOffsets is not JSON"),
        ("[]", "startingOffsets must look like"),
        ('{"orders":5}', "startingOffsets: orders must look like"),
        ('{"orders":{"broker-a":[1]}}', "orders on broker-a must look like"),
        ('{"orders":{"broker-a":{"x":1}}}', "'x' is not a queue id"),
        ('{"orders":{"broker-a":{"0":-3}}}', "queue 0 of orders on broker-a has -3"),
        ('{"orders":{"broker-a":{"0":1.5}}}', "has 1.5; an offset is a number"),
        ('{"orders":{"broker-a":{"0":true}}}', "has True"),
        ('{"orders":{"broker-a":{"0":9223372036854775808}}}', "has 9223372036854775808"),
    ],
)
def test_what_is_no_offset_is_refused_with_its_place(text, problem):
    with pytest.raises(ConfigError, match=problem):
        parse_offsets(text, "startingOffsets")


def test_times_have_the_same_shape():
    assert parse_times('{"orders":{"broker-a":{"0":1700000000000}}}', "x") == {Q0: 1_700_000_000_000}
    with pytest.raises(ConfigError, match="must be a time such as 2026-01-31"):
        parse_times('{"orders":{"broker-a":{"0":-1}}}', "x")


def test_earliest_and_latest_become_numbers_and_queues_left_out_get_the_default():
    known = {Q0: (5, 9), Q1: (0, 7), Q2: (3, 3)}
    assert resolve({Q0: -1, Q1: -2}, known, lambda queue: EARLIEST, "x") == {Q0: 9, Q1: 0, Q2: 3}
    assert resolve({Q0: 6}, known, lambda queue: 4, "x") == {Q0: 6, Q1: 4, Q2: 4}
    with pytest.raises(ConfigError, match="startingOffsets: there is no queue 10 of orders on broker-a"):
        resolve({Q10: 1}, known, lambda queue: 0, "startingOffsets")


@pytest.mark.scenario("spark 9")
def test_the_start_of_the_first_batch_lies_in_its_end():
    first = StreamOffset.first({Q0: 10, Q1: 20})
    assert first.to_json() == {
        "v": 1,
        "offsets": {"orders": {"broker-a": {"0": 10, "1": 20}}},
        "initial": True,
    }
    end = first.advance({Q0: 15, Q1: 20}, {})
    # Asked for the initial offset again, the source answers with later ones: those do not count.
    asked_again = StreamOffset.first({Q0: 14, Q1: 25})
    assert ranges(asked_again, end) == ranges(first, end) == {Q0: (10, 15)}


@pytest.mark.scenario("spark 15")
def test_a_new_queue_brings_its_start_with_it_and_an_old_one_does_not():
    first = StreamOffset.first({Q0: 0})
    one = first.advance({Q0: 5}, {})
    two = one.advance({Q0: 8, Q1: 30}, {Q1: 22})
    assert two.starts == {Q1: 22}
    assert ranges(one, two) == {Q0: (5, 8), Q1: (22, 30)}
    three = two.advance({Q1: 31}, {})
    assert three.ends == {Q0: 8, Q1: 31}
    assert three.starts == {}
    assert ranges(two, three) == {Q1: (30, 31)}


def test_a_queue_without_a_start_is_no_guess():
    with pytest.raises(ValueError, match="no start for queue 1"):
        StreamOffset.first({Q0: 0}).advance({Q1: 5}, {})
    with pytest.raises(ConfigError, match="no start for queue 1"):
        ranges(StreamOffset({}), StreamOffset({Q1: 5}))


def test_an_offset_of_another_version_is_refused():
    with pytest.raises(ConfigError, match="its version is 2, this PyroMQ reads 1"):
        StreamOffset.from_json({"v": 2, "offsets": {}})
    broken: object
    for broken in ({"v": 1}, {"v": 1, "offsets": {"T": {"b": {"0": -1}}}}, [], None, {"offsets": {}}):
        with pytest.raises(ConfigError, match="offset in the checkpoint"):
            StreamOffset.from_json(broken)


def test_queues_that_are_gone_can_be_dropped():
    offset = StreamOffset({Q0: 1, Q1: 2}, {Q0: 0, Q1: 0})
    assert without(offset, {Q1}) == StreamOffset({Q0: 1}, {Q0: 0})


@pytest.mark.scenario("spark 43")
def test_a_thousand_queues_make_a_short_line():
    offsets = {queue(number, f"broker-{number % 10}"): 10**12 + number for number in range(1000)}
    text = json.dumps(StreamOffset.first(offsets).advance(offsets, {}).to_json())
    assert len(text) < 200_000
