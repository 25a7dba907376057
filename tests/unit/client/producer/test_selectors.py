"""Which queue a message goes to."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pyromq.client.producer.faults import LatencyFaults
from pyromq.client.producer.selectors import Turns, at_random, by_hash, selected, shard_index
from pyromq.errors import InvalidMessage
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue

QUEUES = [MessageQueue(broker_name="a", queue_id=number, topic="T") for number in range(8)]
MESSAGE = Message("T", b"x")


@pytest.mark.scenario("client 19")
@pytest.mark.parametrize(("key", "queue"), [("order-1", 6), ("order-1001", 7), ("TagA", 2598919 % 8)])
def test_a_shard_key_goes_where_javas_hash_selector_puts_it(key, queue):
    assert shard_index(key, 8) == queue


async def test_the_built_in_selectors_take_a_queue_of_the_topic():
    assert await selected(by_hash("order-1"), QUEUES, MESSAGE) == 6
    assert await selected(at_random, QUEUES, MESSAGE) in range(8)


async def test_a_selector_may_be_a_coroutine_function():
    async def last(queues, message):
        return queues[-1]

    assert await selected(last, QUEUES, MESSAGE) == 7


async def test_a_selector_that_takes_no_queue_is_an_error():
    with pytest.raises(InvalidMessage, match="None, which is not a queue of the topic"):
        await selected(cast("Any", lambda queues, message: None), QUEUES, MESSAGE)


async def test_a_selector_that_raises_is_an_error_that_says_so():
    with pytest.raises(InvalidMessage, match="ZeroDivisionError") as caught:
        await selected(lambda queues, message: queues[1 // 0], QUEUES, MESSAGE)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_queues_take_turns():
    turns = Turns(["a", "a", "b"], start=6)
    assert [turns.next() for _ in range(4)] == [1, 2, 0, 1]


def test_turns_start_anywhere():
    assert len({Turns(["a"] * 1000).next() for _ in range(8)}) > 1


def test_after_a_failure_another_broker_is_next():
    turns = Turns(["a", "a", "b", "b"], start=-1)
    assert turns.avoiding("a") == 2
    assert turns.avoiding("a") == 3
    assert turns.avoiding("a") == 2
    assert turns.avoiding(None) == 3


def test_where_there_is_one_broker_it_is_tried_again():
    turns = Turns(["a", "a"], start=-1)
    assert {turns.avoiding("a") for _ in range(4)} <= {0, 1}


@pytest.mark.scenario("client 14")
def test_a_broker_that_failed_is_not_chosen_for_ten_seconds_unless_alone():
    faults = LatencyFaults()
    faults.failed("a", now=100.0)
    turns = Turns(["a", "a", "b", "b"])
    assert {turns.brokers[turns.healthy(faults, None, 105.0)] for _ in range(8)} == {"b"}
    assert {turns.brokers[turns.healthy(faults, None, 110.0)] for _ in range(8)} == {"a", "b"}
    alone = Turns(["a", "a"])
    assert {alone.healthy(faults, None, 105.0) for _ in range(4)} == {0, 1}


def test_of_two_brokers_that_are_not_well_the_one_that_did_not_refuse_is_chosen():
    faults = LatencyFaults()
    faults.failed("a", now=100.0, refused=True)
    faults.failed("b", now=100.0)
    turns = Turns(["a", "b"])
    assert {turns.brokers[turns.healthy(faults, None, 101.0)] for _ in range(4)} == {"b"}
