"""How many slaves have the log up to some place."""

from __future__ import annotations

import pytest

from pyromq.broker.replication.slaves import Slaves


def slaves(*connections):
    """Connections, each with its host, its broker id if it said so, and how far it is."""
    found = Slaves()
    for number, (host, broker_id, end) in enumerate(connections):
        found.joined(number, host)
        if broker_id is not None:
            found.introduced(number, broker_id)
        found.acknowledged(number, end)
    return found


@pytest.mark.parametrize(
    ("connections", "count"),
    [
        ([], 0),
        ([("a", None, 10)], 1),
        ([("a", None, 9)], 0),
        ([("a", None, 10), ("b", None, 10)], 2),
        ([("a", None, 10), ("a", None, 10)], 1),
        ([("a", 1, 10), ("a", 2, 10)], 2),
        ([("a", 1, 10), ("b", 1, 10)], 1),
        ([("a", 1, 10), ("a", None, 10)], 1),
        ([("a", 1, 9), ("a", None, 10)], 1),
        ([("a", 1, 10), ("b", None, 10), ("b", None, 10)], 2),
    ],
)
def test_a_slave_counts_once(connections, count):
    assert slaves(*connections).having(10) == count


def test_those_who_wait_are_told_when_a_second_slave_has_it():
    told = []
    found = slaves(("a", 1, 0), ("a", 2, 0), ("a", 1, 0))
    found.when_had(10, 2, lambda: told.append("both"))
    found.acknowledged(0, 10)
    found.acknowledged(2, 10)
    assert told == []
    found.acknowledged(1, 10)
    assert told == ["both"]


def test_a_slave_that_left_does_not_count():
    found = slaves(("a", 1, 10), ("b", 2, 10))
    found.left(0)
    assert (found.having(10), found.furthest, len(found)) == (1, 10, 1)
