"""The six strategies, against the shares that the Java client computes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.client.consumer.allocation import (
    Averagely,
    AveragelyByCircle,
    Config,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    ring_hash,
)
from pyromq.errors import ConfigError
from pyromq.protocol.message_queue import MessageQueue

IDS = ["10.0.0.1@c1", "10.0.0.2@c2", "10.0.0.3@c3"]


def queues(count, broker="broker-a"):
    return [MessageQueue(broker_name=broker, queue_id=number, topic="TopicTest") for number in range(count)]


def shares(strategy, all_queues, ids):
    return [[queue.queue_id for queue in strategy.allocate("g", own, all_queues, ids)] for own in ids]


def members(count):
    return [f"c{number}" for number in range(count)]


@pytest.mark.scenario("client 27")
@pytest.mark.parametrize(
    ("strategy", "count", "ids", "expected"),
    [
        (Averagely(), 8, members(3), [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (Averagely(), 3, members(5), [[0], [1], [2], [], []]),
        (Averagely(), 7, members(2), [[0, 1, 2, 3], [4, 5, 6]]),
        (AveragelyByCircle(), 8, members(3), [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (ConsistentHash(), 8, IDS, [[0], [2, 6], [1, 3, 4, 5, 7]]),
        (ConsistentHash(), 8, IDS[:2], [[0, 1, 7], [2, 3, 4, 5, 6]]),
    ],
)
def test_the_shares_are_those_of_the_java_client(strategy, count, ids, expected):
    assert shares(strategy, queues(count), ids) == expected


@pytest.mark.scenario("client 27")
def test_a_machine_room_gives_what_does_not_divide_to_the_first():
    strategy = MachineRoom(["room1"])
    assert shares(strategy, queues(8, "room1@broker-a"), members(3)) == [[0, 1, 6], [2, 3, 7], [4, 5]]


@pytest.mark.parametrize("broker", ["room2@broker-a", "room1", "room1@", "room1@a@b"])
def test_a_machine_room_leaves_brokers_elsewhere_alone(broker):
    assert shares(MachineRoom(["room1"]), queues(8, broker), members(2)) == [[], []]


@pytest.mark.scenario("client 27")
def test_hashes_on_the_ring_are_those_of_the_java_client():
    assert ring_hash(str(queues(1)[0])) == 1987926524
    assert ring_hash("10.0.0.1@c1-0") == 4156134030


def nearby(inner=None):
    return MachineRoomNearby(
        inner or Averagely(), lambda queue: queue.broker_name.split("-")[0], lambda client_id: client_id.split("-")[0]
    )


def by_broker(strategy, all_queues, ids):
    return [
        [(queue.broker_name[:2], queue.queue_id) for queue in strategy.allocate("g", own, all_queues, ids)]
        for own in ids
    ]


@pytest.mark.scenario("client 27")
def test_members_read_the_queues_of_their_own_room():
    both = queues(4, "r1-a") + queues(4, "r2-a")
    assert by_broker(nearby(), both, ["r1-c0", "r1-c1", "r2-c2"]) == [
        [("r1", 0), ("r1", 1)],
        [("r1", 2), ("r1", 3)],
        [("r2", 0), ("r2", 1), ("r2", 2), ("r2", 3)],
    ]


@pytest.mark.scenario("client 27")
def test_queues_of_a_room_without_members_are_shared_by_all():
    both = queues(4, "r1-a") + queues(4, "r2-a")
    assert by_broker(nearby(), both, ["r1-c0", "r1-c1"]) == [
        [("r1", 0), ("r1", 1), ("r2", 0), ("r2", 1)],
        [("r1", 2), ("r1", 3), ("r2", 2), ("r2", 3)],
    ]


def test_a_member_of_a_room_without_queues_takes_part_in_those_of_empty_rooms_only():
    assert by_broker(nearby(), queues(2, "r1-a") + queues(2, "r3-a"), ["r1-c0", "r2-c1"]) == [
        [("r1", 0), ("r1", 1), ("r3", 0)],
        [("r3", 1)],
    ]


def test_who_is_in_no_room_is_an_error():
    with pytest.raises(ConfigError, match="no room"):
        nearby().allocate("g", "-c0", queues(2, "r1-a"), ["-c0"])


def test_a_nearby_strategy_is_named_after_the_one_inside():
    assert nearby(AveragelyByCircle()).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


def test_a_configured_list_is_given_whoever_asks():
    mine = queues(2)
    assert Config(mine).allocate("g", "stranger", queues(8), members(3)) == mine


ALL = [Averagely(), AveragelyByCircle(), MachineRoom(["r1"]), ConsistentHash(), nearby()]


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_who_is_not_among_the_members_gets_nothing(strategy):
    assert strategy.allocate("g", "stranger", queues(8, "r1@a"), members(3)) == []


@pytest.mark.parametrize("strategy", [Averagely(), AveragelyByCircle(), ConsistentHash(), MachineRoom(["r1"])])
@given(st.integers(0, 40), st.integers(1, 12))
def test_every_queue_has_exactly_one_reader(strategy, count, k):
    all_queues = queues(count, "r1@a")
    ids = sorted(members(k))
    given_out = [queue for own in ids for queue in strategy.allocate("g", own, all_queues, ids)]
    assert sorted(given_out) == all_queues


def test_a_ring_needs_nodes():
    with pytest.raises(ConfigError):
        ConsistentHash(0)
