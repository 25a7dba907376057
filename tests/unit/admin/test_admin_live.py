"""Rates out of looks at offsets."""

from __future__ import annotations

from pyromq.admin.live import LiveRow, Look, Pulse

KEY = ("orders", "billing")


def a_look(at, end, done):
    return Look(at, {"orders": end, "unread": 5}, {KEY: done}, {KEY: end - done}, brokers=1)


def test_one_look_knows_no_rates():
    pulse = Pulse()
    pulse.add(a_look(0.0, 100, 40))
    assert pulse.rows() == [
        LiveRow("orders", "billing", None, None, 60, None),
        LiveRow("unread", None, None, None, None, None),
    ]
    assert pulse.summary() == "1 brokers, 2 topics, 1 groups, lag 60"


def test_rates_are_those_since_the_first_look_of_the_window():
    pulse = Pulse(window=10.0)
    pulse.add(a_look(0.0, 100, 40))
    pulse.add(a_look(2.0, 120, 80))
    [orders, unread] = pulse.rows()
    assert orders == LiveRow("orders", "billing", 10.0, 20.0, 40, -10.0)
    assert unread.in_tps == 0.0
    for second in range(4, 40, 2):
        pulse.add(a_look(float(second), 120, 80))
    assert pulse.rows()[0] == LiveRow("orders", "billing", 0.0, 0.0, 40, 0.0)


def test_a_group_that_came_later_has_no_rate_yet():
    pulse = Pulse()
    pulse.add(Look(0.0, {}, {}, {}))
    pulse.add(a_look(1.0, 10, 0))
    assert pulse.rows()[0] == LiveRow("orders", "billing", None, None, 10, None)
