"""How fast a slave is sent the log."""

from __future__ import annotations

from pyromq.broker.replication.slave_link import Pace


def test_no_second_has_more_than_its_rate():
    pace, sent, now = Pace(), 0, 100.0
    for step in range(101):
        now = 100.0 + step / 100
        left = pace.left(1000, now)
        pace.spend(left)
        sent += left
    assert 1000 <= sent <= 1100


def test_a_long_silence_allows_no_more_than_a_portion():
    pace = Pace()
    pace.spend(pace.left(1000, 0.0))
    assert pace.left(1000, 3600.0) == 100


def test_a_tiny_rate_still_sends_something():
    pace = Pace()
    assert pace.left(1, 0.0) == 1
    pace.spend(1)
    assert pace.left(1, 0.5) == 0
    assert pace.left(1, 1.0) == 1
