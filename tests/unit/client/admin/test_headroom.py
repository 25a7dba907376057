"""When an archive is too slow."""

from __future__ import annotations

import pytest

from pyromq.client.admin.headroom import Alarm, alarm, duration

HOUR = 3600


@pytest.mark.scenario("spark 34")
def test_less_than_24_hours_is_a_warning_and_less_than_6_an_error():
    assert alarm(24 * HOUR, 72 * HOUR) is Alarm.NONE
    assert alarm(24 * HOUR - 1, 72 * HOUR) is Alarm.WARN
    assert alarm(6 * HOUR, 72 * HOUR) is Alarm.WARN
    assert alarm(6 * HOUR - 1, 72 * HOUR) is Alarm.ERROR
    assert alarm(24 * HOUR - 1, 1000 * HOUR) is Alarm.WARN


def test_a_broker_that_keeps_messages_for_a_few_hours_does_not_always_warn():
    assert alarm(5 * HOUR, 12 * HOUR) is Alarm.NONE
    assert alarm(3 * HOUR, 12 * HOUR) is Alarm.WARN
    assert alarm(HOUR / 2, 12 * HOUR) is Alarm.ERROR
    assert alarm(0, 0) is Alarm.ERROR


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12, "12 s"), (310, "5 min"), (11100, "3 h 5 min"), (183_600, "2 d 3 h"), (-5, "0 s")],
)
def test_times_are_said_in_two_units(seconds, text):
    assert duration(seconds) == text
