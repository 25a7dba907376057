"""Which queues a member of a group gets, by pulls and by pops."""

from __future__ import annotations

import pytest

from pyromq.broker.pop.assignment import share, share_for_pop
from pyromq.protocol.message_queue import MessageQueue

QUEUES = [MessageQueue(topic="T", broker_name=name, queue_id=number) for name in ("a", "b") for number in range(4)]
MEMBERS = ["c1", "c2", "c3"]


def numbers(queues: list[MessageQueue] | None) -> list[str]:
    assert queues is not None
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("AVG", [["a0", "a1", "a2"], ["a3", "b0", "b1"], ["b2", "b3"]]),
        ("AVG_BY_CIRCLE", [["a0", "a3", "b2"], ["a1", "b0", "b3"], ["a2", "b1"]]),
    ],
)
def test_queues_are_shared_as_clients_would(strategy, wanted):
    assert [numbers(share(strategy, member, QUEUES, MEMBERS)) for member in MEMBERS] == wanted
    assert share(strategy, "stranger", QUEUES, MEMBERS) == []


def test_a_strategy_of_the_client_alone_leaves_it_what_it_has():
    assert share("MACHINE_ROOM", "c1", QUEUES, MEMBERS) is None
    assert share(None, "c1", QUEUES, MEMBERS) is None


def test_pops_may_be_from_every_broker():
    for others in (-1, 0, 2, 9):
        assert numbers(share_for_pop("AVG", "c2", QUEUES, MEMBERS, others)) == ["a-1", "b-1"]


def test_pops_may_be_shared_with_the_next_members():
    four = [*MEMBERS, "c4"]
    assert numbers(share_for_pop("AVG", "c4", QUEUES, four, 1)) == ["b2", "b3", "a0", "a1"]
    assert share_for_pop("AVG", "stranger", QUEUES, four, 1) == []
    assert share_for_pop("MACHINE_ROOM", "c1", QUEUES, four, 1) is None


def test_more_members_than_queues_get_one_each():
    crowd = [f"c{number:02}" for number in range(20)]
    assert numbers(share_for_pop("AVG", "c09", QUEUES, crowd, 1)) == ["a1"]
    assert share_for_pop("AVG", "c09", [], crowd, 1) == []
