"""How evenly a task sends at a given rate."""

from __future__ import annotations

import pytest

from pyromq.spark.sink.pace import Pace


def times(rate: float, rows: int, cost: float = 0.0) -> list[float]:
    """When each row goes, by a clock that only the pace and the cost of a row turn."""
    pace, now, found = Pace(rate), 1000.0, []
    for _ in range(rows):
        now += pace.wait(now)
        found.append(now)
        now += cost
    return found


@pytest.mark.parametrize("rate", [0.5, 1, 30, 100, 999, 20_000])
def test_rows_go_at_the_rate_in_every_part(rate):
    rows = int(max(10, rate * 2))
    gone = times(rate, rows)
    for first, last in ((0, rows - 1), (0, rows // 2), (rows // 2, rows - 1)):
        step = max(1, round(rate * 0.05))
        assert gone[last] - gone[first] == pytest.approx((last - first) / rate, abs=step / rate + 1e-6)


def test_a_slow_sender_is_not_slowed_down_further_and_catches_up_with_half_a_second_only():
    gone = times(100, 200, cost=0.02)
    assert gone[-1] - gone[0] == pytest.approx(199 * 0.02)
    pace = Pace(100)
    now = 0.0
    for _ in range(20):
        now += pace.wait(now)
    now += 60  # a pause of the source
    burst = 0
    while not pace.wait(now):
        burst += 1
    assert 45 <= burst <= 60
