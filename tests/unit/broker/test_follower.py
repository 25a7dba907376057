"""How long a slave waits before it tries again to follow its master."""

from __future__ import annotations

from pyromq.broker.replication.follower import Pauses


def test_pauses_grow_while_the_master_sends_nothing():
    pauses = Pauses()
    assert [pauses.after(was_fed=False) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_line_that_worked_is_tried_again_soon():
    pauses = Pauses()
    for _ in range(5):
        pauses.after(was_fed=False)
    assert [pauses.after(was_fed=True), pauses.after(was_fed=False)] == [0.5, 1.0]
