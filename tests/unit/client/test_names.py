from __future__ import annotations

import pytest

from pyromq.client.names import Namespace, check_group, check_topic, check_topic_for_create, check_topic_for_send
from pyromq.errors import InvalidMessage
from pyromq.protocol.names import dlq_topic, is_dlq_topic, is_retry_topic, reply_topic, retry_topic

ONLY_BROKERS_WRITE = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_wheel_timer",
]
SYSTEM = ["TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC", "rmq_sys_anything"]


@pytest.mark.parametrize("name", ["orders", "a", "%RETRY%g", "a-b_c|d%e", "X" * 127])
def test_a_legal_topic_is_let_through(name):
    for check in (check_topic, check_topic_for_send, check_topic_for_create, check_group):
        check(name)


@pytest.mark.scenario("client 17")
@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "ordérs", "a\n", "X" * 128])
def test_a_topic_that_no_broker_takes_is_refused(name):
    for check in (check_topic, check_topic_for_send, check_topic_for_create):
        with pytest.raises(InvalidMessage) as caught:
            check(name)
        assert caught.value.code == -1


@pytest.mark.parametrize("name", ["", "a b", "X" * 256])
def test_a_group_that_no_broker_takes_is_refused(name):
    with pytest.raises(InvalidMessage, match="group"):
        check_group(name)
    check_group("X" * 255)


@pytest.mark.scenario("client 17")
@pytest.mark.parametrize("name", ONLY_BROKERS_WRITE)
def test_topics_that_only_brokers_write_to_are_forbidden(name):
    check_topic(name)
    with pytest.raises(InvalidMessage, match="forbidden"):
        check_topic_for_send(name)


@pytest.mark.parametrize("name", [*ONLY_BROKERS_WRITE, *SYSTEM])
def test_system_topics_cannot_be_created(name):
    with pytest.raises(InvalidMessage, match="conflict with a system topic"):
        check_topic_for_create(name)


@pytest.mark.parametrize("name", SYSTEM)
def test_system_topics_that_others_write_to_can_be_sent_to(name):
    check_topic_for_send(name)


def test_the_topics_of_a_group_carry_their_prefix():
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert is_retry_topic("%RETRY%g")
    assert not is_retry_topic("%DLQ%g")
    assert is_dlq_topic("%DLQ%g")
    assert not is_dlq_topic("g")
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("other%orders", "ns%other%orders"),
    ],
)
def test_a_namespace_stands_in_front_of_names_and_comes_off_again(name, wire):
    namespace = Namespace("ns")
    assert namespace.wrap(name) == wire
    assert namespace.wrap(wire) == wire
    assert namespace.unwrap(wire) == name


@pytest.mark.parametrize("name", [*ONLY_BROKERS_WRITE, *SYSTEM, "CID_RMQ_SYS_TRANS", "CLIENT_INNER_PRODUCER", ""])
def test_system_names_are_the_same_in_every_namespace(name):
    assert Namespace("ns").wrap(name) == name


@pytest.mark.parametrize("name", ["other%orders", "%RETRY%other%g", "orders"])
def test_a_name_of_another_namespace_is_left_alone(name):
    assert Namespace("ns").unwrap(name) == name


@pytest.mark.parametrize("none", [None, ""])
def test_without_a_namespace_names_stay_as_they_are(none):
    namespace = Namespace(none)
    assert namespace.name is None
    for name in ("orders", "%RETRY%g", "ns%orders"):
        assert namespace.wrap(name) == name
        assert namespace.unwrap(name) == name


def test_a_namespace_that_no_broker_takes_is_refused():
    with pytest.raises(InvalidMessage):
        Namespace("a b")
