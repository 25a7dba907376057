"""The rules by which queues follow from a route; how routes are fetched is tested over sockets."""

from __future__ import annotations

import pytest

from pyromq.client.routes import publish_info, subscribe_queues
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from pyromq.protocol.message_queue import MessageQueue


def queues(name, count=2, perm=6, read=None):
    return QueueData(broker_name=name, perm=perm, read_queue_nums=read or count, write_queue_nums=count)


def broker(name, *ids):
    return BrokerData(broker_name=name, broker_addrs={number: f"{name}-{number}:1" for number in ids or (0,)})


def route(brokers, queue_datas, **more):
    return TopicRouteData(broker_datas=brokers, queue_datas=queue_datas, **more)


def names(found):
    assert all(isinstance(queue, MessageQueue) and queue.topic == "T" for queue in found)
    return [f"{queue.broker_name}/{queue.queue_id}" for queue in found]


@pytest.mark.scenario("client 7")
def test_only_queues_of_brokers_with_a_master_and_write_permission_are_sent_to():
    data = route(
        [broker("broker-c"), broker("broker-b", 1), broker("broker-a")],
        [queues("broker-c", perm=4), queues("broker-b"), queues("broker-a")],
    )
    info = publish_info("T", data)
    assert names(info.queues) == ["broker-a/0", "broker-a/1"]
    assert not info.order


def test_queues_come_in_the_order_of_their_brokers():
    data = route([broker("b"), broker("a")], [queues("b", 1), queues("a", 2)])
    assert names(publish_info("T", data).queues) == ["a/0", "a/1", "b/0"]


@pytest.mark.scenario("client 8")
def test_an_order_configuration_says_which_queues_there_are():
    data = route([broker("b0")], [queues("b0", 9, perm=4)], order_topic_conf="b1:2;b0:1")
    info = publish_info("T", data)
    assert names(info.queues) == ["b1/0", "b1/1", "b0/0"]
    assert info.order


def test_queues_that_may_be_read_need_no_master():
    data = route([broker("b", 1)], [queues("b", 1, read=2), queues("a", perm=2), queues("c", 1, perm=4)])
    assert names(subscribe_queues("T", data)) == ["b/0", "b/1", "c/0"]


def test_a_negative_count_is_no_queue():
    data = route([broker("a")], [QueueData(broker_name="a", perm=6, read_queue_nums=-1, write_queue_nums=-1)])
    assert publish_info("T", data).queues == ()
    assert subscribe_queues("T", data) == []


def test_more_queues_than_there_can_be_are_not_counted_out():
    many = [queues(f"b{number}", 2**20 // 4) for number in range(5)]
    data = route([broker(f"b{number}") for number in range(5)], many)
    for rule in (publish_info, subscribe_queues):
        with pytest.raises(RemoteProtocolError, match="cannot have"):
            rule("T", data)
