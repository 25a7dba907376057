"""Pops in order: when a queue is free, what acks do to it, and what is remembered over a restart."""

from __future__ import annotations

import pytest

from pyromq.broker.pop.offsets import QueueOfGroup
from pyromq.broker.pop.orders import PopOrders
from pyromq.protocol.bodies import ConsumerOrderInfoTable

QUEUE = QueueOfGroup("g", "T", 3)
# As 5.5.0 writes it to consumerOrderInfo.json.
OF_ROCKETMQ = b'{"table":{"T@g":{3:{"cm":1,"i":60000,"l":1000,"o":[7,1,4],"oc":{7:2},"popTime":1000}}}}'


@pytest.fixture
def orders():
    return PopOrders(lambda: 1000)


def test_a_queue_is_free_when_all_is_acknowledged(orders):
    assert orders.free_at(QUEUE, None, None, 500) == 500
    assert orders.popped(QUEUE, [7, 8, 11], 1000, 60_000, None) == ([], 0)
    assert orders.free_at(QUEUE, 7, None, 1500) == 61_000
    assert orders.acked(QUEUE, 8, 1000) == 7
    assert orders.acked(QUEUE, 7, 1000) == 11
    assert orders.free_at(QUEUE, 11, None, 1500) == 61_000
    assert orders.acked(QUEUE, 11, 1000) == 12
    assert orders.free_at(QUEUE, 12, None, 1500) == 1500


def test_a_queue_is_free_when_the_time_is_over_and_counts_who_comes_again(orders):
    orders.popped(QUEUE, [7, 8], 1000, 500, None)
    assert orders.free_at(QUEUE, 7, None, 1500) == 1500
    assert orders.popped(QUEUE, [7, 8, 9], 1500, 500, None) == ([(7, 1), (8, 1)], 0)
    assert orders.popped(QUEUE, [7, 8], 2500, 500, None) == ([(7, 2), (8, 2)], 2)


def test_the_same_attempt_is_not_counted_again(orders):
    orders.popped(QUEUE, [7], 1000, 60_000, "a")
    assert orders.free_at(QUEUE, 7, "a", 1500) == 1500
    assert orders.free_at(QUEUE, 7, "b", 1500) == 61_000
    assert orders.popped(QUEUE, [7], 1500, 60_000, "a") == ([], 0)


def test_a_changed_time_is_the_time(orders):
    orders.popped(QUEUE, [7, 8], 1000, 60_000, None)
    orders.change(QUEUE, 7, 1000, 2000)
    orders.change(QUEUE, 8, 999, 1)
    orders.change(QUEUE, 77, 1000, 1)
    assert orders.free_at(QUEUE, 7, None, 1500) == 61_000
    assert orders.acked(QUEUE, 8, 1000) == 7
    assert orders.free_at(QUEUE, 7, None, 1500) == 2000


def test_acks_of_other_pops_change_nothing_and_of_no_pop_are_refused(orders):
    assert orders.acked(QUEUE, 7, 1) == 8
    orders.popped(QUEUE, [7], 1000, 60_000, None)
    assert orders.acked(QUEUE, 7, 999) is None
    with pytest.raises(ValueError, match="9"):
        orders.acked(QUEUE, 9, 1000)
    assert orders.free_at(QUEUE, 7, None, 1500) == 61_000


def test_a_reset_offset_frees_the_queue(orders):
    orders.popped(QUEUE, [7], 1000, 60_000, None)
    assert orders.free_at(QUEUE, 0, None, 1500) == 1500


def test_what_rocketmq_remembered_is_taken_over(orders):
    orders.load(ConsumerOrderInfoTable.decode(OF_ROCKETMQ))
    assert orders.free_at(QUEUE, 8, None, 1500) == 61_000
    assert orders.acked(QUEUE, 8, 1000) == 11
    assert orders.dirty
    again = PopOrders(lambda: 1000)
    again.load(ConsumerOrderInfoTable.decode(orders.snapshot().encode()))
    assert again.free_at(QUEUE, 11, None, 1500) == 61_000


def test_what_nobody_asked_for_in_a_day_is_forgotten(orders):
    orders.popped(QUEUE, [7], 1000, 60_000, None)
    orders.clean(1000 + 24 * 3_600_000)
    assert len(orders) == 1
    orders.clean(1001 + 24 * 3_600_000)
    assert len(orders) == 0
