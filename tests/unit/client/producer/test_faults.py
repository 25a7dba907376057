"""How long a broker is left alone."""

from __future__ import annotations

import pytest

from pyromq.client.producer.faults import LatencyFaults, pause


@pytest.mark.parametrize(
    ("latency", "seconds"),
    [
        (0.0, 0),
        (0.05, 0),
        (0.549, 0),
        (0.55, 2),
        (1.799, 2),
        (1.8, 5),
        (3.0, 6),
        (4.999, 6),
        (5.0, 10),
        (10.0, 10),
        (15.0, 30),
        (99.0, 30),
    ],
)
def test_the_slower_the_last_answer_the_longer_the_pause(latency, seconds):
    assert pause(latency) == seconds


def test_a_broker_that_nobody_sent_to_is_well():
    faults = LatencyFaults()
    assert faults.is_available("a", 0.0)
    assert faults.is_reachable("a", 0.0)


def test_a_failed_broker_is_left_alone_for_ten_seconds():
    faults = LatencyFaults()
    faults.failed("a", now=100.0)
    assert not faults.is_available("a", 109.9)
    assert faults.is_available("a", 110.0)
    assert faults.is_reachable("a", 100.0)


def test_a_broker_that_refused_is_doubted_until_it_answers():
    faults = LatencyFaults()
    faults.failed("a", now=100.0, refused=True)
    assert not faults.is_reachable("a", 1000.0)
    faults.answered("a", 0.01, now=1000.0)
    assert faults.is_reachable("a", 1000.0)
    assert faults.is_available("a", 1000.0)
