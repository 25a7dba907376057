"""The rules of the admin client that need no server: order configurations, windows of time, goals, places, progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyromq.client.admin import order_conf
from pyromq.client.admin.addresses import Replica, addresses_in, brokers_in, masters_in, replicas
from pyromq.client.admin.config_text import config_from, config_text
from pyromq.client.admin.messages import earliest
from pyromq.client.admin.offsets import goal
from pyromq.client.admin.progress import progress_of, progress_of_groups
from pyromq.client.admin.times import from_millis, to_millis
from pyromq.errors import LocalProtocolError, RemoteProtocolError, RouteNotFound
from pyromq.protocol.bodies import BrokerData, ClusterInfo, ConsumeStats, ConsumeStatsList, OffsetWrapper
from pyromq.protocol.command import Command
from pyromq.protocol.ids import UniqKeys
from pyromq.protocol.message_queue import MessageQueue


def queue(topic="orders", broker="broker-a", number=0):
    return MessageQueue(broker_name=broker, queue_id=number, topic=topic)


# Order configurations


def test_an_order_configuration_is_read_in_its_order():
    assert list(order_conf.parse("b1:2; b0:1;").items()) == [("b1", 2), ("b0", 1)]
    assert order_conf.parse("") == {}


@pytest.mark.parametrize("text", ["b1", "b1:", ":3", "b1:x", "b1:-1", "b1:٣", "b1:1234567890", "b1:1;b2"])
def test_what_is_no_order_configuration_is_said_to_be_none(text):
    with pytest.raises(RemoteProtocolError):
        order_conf.parse(text)


def test_one_broker_is_merged_into_an_order_configuration():
    assert order_conf.merge("b1:2;b0:1", {"b1": 4, "b2": 3}) == "b1:4;b0:1;b2:3"
    assert order_conf.merge("", {"b1": 4}) == "b1:4"


@pytest.mark.parametrize("queues", [{"b;c": 1}, {"b:c": 1}, {"": 1}, {"b": -1}])
def test_an_order_configuration_that_would_read_as_another_is_not_written(queues):
    with pytest.raises(LocalProtocolError):
        order_conf.render(queues)


# Times


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(LocalProtocolError):
        to_millis(datetime(2026, 11, 15, 12))  # noqa: DTZ001 - the point of the test


def test_times_are_exact_to_the_millisecond_in_any_zone():
    when = datetime(2026, 11, 15, 12, 0, 0, 999_000, tzinfo=timezone(timedelta(hours=8)))
    assert to_millis(when) == 1794715200999
    assert from_millis(1794715200999) == when


@pytest.mark.parametrize("millis", [0, -1, 2**63 - 1])
def test_what_stands_for_no_time_is_none(millis):
    assert from_millis(millis) is None


def test_a_message_is_looked_for_from_a_second_before_its_id_was_made():
    now = 1794715200999
    [made] = [UniqKeys(b"\x7f\0\0\1", 1, 2, clock=lambda: now, zone=None).next()]
    assert earliest(made, now + 5000) == now - 1000


@pytest.mark.parametrize("uniq_key", ["", "not hexadecimal", "AB" * 15, "my-own-id"])
def test_an_id_that_says_no_time_is_looked_for_at_all_times(uniq_key):
    assert earliest(uniq_key, 1794715200999) == 0


# Goals of a reset


@pytest.mark.parametrize(
    ("current", "found", "force", "expected"),
    [(5, 3, False, 3), (5, 9, False, 5), (5, 9, True, 9), (5, 3, True, 3), (None, 9, False, 9)],
)
def test_without_force_a_group_only_goes_back(current, found, force, expected):
    assert goal(current, found, force=force) == expected


# Places


def cluster_info():
    return ClusterInfo(
        broker_addr_table={
            "b": BrokerData(broker_name="b", cluster="c1", broker_addrs={0: "b:1", 1: "b:2"}),
            "a": BrokerData(broker_name="a", cluster="c1", broker_addrs={0: "a:1"}),
            "d": BrokerData(broker_name="d", cluster="c2", broker_addrs={1: "d:2"}),
            "e": BrokerData(broker_name="e", cluster="c2"),
        },
        cluster_addr_table={"c1": ["b", "a"], "c2": ["d", "e", "gone"]},
    )


@pytest.mark.parametrize(
    ("cluster", "everyone", "expected"),
    [
        (None, False, ["a:1", "b:1"]),
        ("c1", False, ["a:1", "b:1"]),
        ("c1", True, ["a:1", "b:1", "b:2"]),
        ("c2", True, ["d:2"]),
    ],
)
def test_a_cluster_stands_for_its_brokers(cluster, everyone, expected):
    assert addresses_in(cluster_info(), cluster, everyone=everyone) == expected


@pytest.mark.parametrize("cluster", ["c2", "c3"])
def test_a_cluster_without_a_master_is_nowhere(cluster):
    with pytest.raises(RouteNotFound) as caught:
        addresses_in(cluster_info(), cluster, everyone=False)
    assert caught.value.code == 10003
    assert cluster in str(caught.value)


def test_questions_go_to_masters_and_without_one_to_a_slave():
    assert brokers_in(cluster_info()) == {"a": "a:1", "b": "b:1", "d": "d:2"}
    assert brokers_in(cluster_info(), "c2") == {"d": "d:2"}
    assert masters_in(cluster_info()) == {"a": "a:1", "b": "b:1"}
    assert masters_in(cluster_info(), "c2") == {}


def test_every_process_of_a_broker_is_known_by_cluster_name_and_id():
    assert replicas(cluster_info()) == [
        Replica("c1", "a", 0, "a:1"),
        Replica("c1", "b", 0, "b:1"),
        Replica("c1", "b", 1, "b:2"),
        Replica("c2", "d", 1, "d:2"),
    ]
    assert [each.address for each in replicas(cluster_info(), "c2")] == ["d:2"]
    for question in (replicas, brokers_in, masters_in):
        with pytest.raises(RouteNotFound, match="there is no cluster c3; known clusters: c1, c2"):
            question(cluster_info(), "c3")


# Progress


def test_the_answers_of_several_brokers_are_one_table():
    wrapper = OffsetWrapper(broker_offset=10, consumer_offset=7, last_timestamp=1794715200999)
    behind = OffsetWrapper(broker_offset=2, consumer_offset=3)
    retry = OffsetWrapper(broker_offset=1)
    stats = [
        ConsumeStats(consume_tps=1.5, offset_table={queue(broker="b"): behind}),
        ConsumeStats(consume_tps=2.0, offset_table={queue("%RETRY%g"): retry, queue(): wrapper}),
    ]
    progress = progress_of("g", stats, {queue(): "c1"})
    assert progress.tps == 3.5
    assert [row.queue for row in progress.rows] == [queue("%RETRY%g"), queue(broker="b"), queue()]
    assert [row.lag for row in progress.rows] == [1, -1, 3]
    assert progress.lag == 3
    assert [(row.client_id, row.last_time) for row in progress.of_topic("orders")] == [
        (None, None),
        ("c1", datetime(2026, 11, 15, 4, tzinfo=UTC) + timedelta(milliseconds=999)),
    ]


def test_what_brokers_say_of_all_groups_is_a_table_for_each():
    def offsets(end, at, pulled=0):
        return OffsetWrapper(broker_offset=end, consumer_offset=at, pull_offset=pulled)

    first = ConsumeStats(consume_tps=1.0, offset_table={queue(): offsets(9, 4, pulled=6)})
    second = ConsumeStats(consume_tps=2.0, offset_table={queue(broker="b"): offsets(5, 5)})
    found = progress_of_groups(
        [
            ConsumeStatsList(consume_stats_list=[{"g": [first]}, {"h": [second]}]),
            ConsumeStatsList(consume_stats_list=[{"g": [second]}]),
        ]
    )
    assert {group: (progress.lag, progress.tps) for group, progress in found.items()} == {"g": (5, 3.0), "h": (0, 2.0)}
    assert {row.queue.broker_name: row.in_flight for row in found["g"].rows} == {"broker-a": 2, "b": -5}


# Settings as text


def test_settings_survive_the_way_to_a_server_and_back():
    changes = {"brokerName": "a b", "path": "C:\\store", "text": "äöü =:#", "key with blanks": " x"}
    assert config_from(Command(body=config_text(changes)), "a:1") == changes


def test_settings_that_cannot_be_read_are_the_servers_fault():
    with pytest.raises(RemoteProtocolError, match="a:1"):
        config_from(Command(body=b"key=\\uXYZ"), "a:1")
