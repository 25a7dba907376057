"""Who pays when frames that have not ended hold too much."""

from __future__ import annotations

from typing import Any

from pyromq.remoting import UnfinishedFrames

MiB = 1024 * 1024


def bounded(limit: int) -> Any:
    """Nothing but their identity matters of connections, so names stand for them here."""
    return UnfinishedFrames(limit)


def test_below_the_limit_nobody_is_closed():
    frames = bounded(10)
    frames.holds("a", 5)
    frames.holds("b", 5)
    assert frames.surplus() is None
    frames.holds("a", 2)
    assert frames.total == 7


def test_the_one_that_has_been_silent_for_longest_of_those_with_enough_goes():
    frames = bounded(10)
    for name, size in (("small", 1), ("silent", 4), ("busy", 3), ("busy", 6)):
        frames.holds(name, size)
    assert frames.surplus() == "silent"
    frames.forget("silent")
    assert frames.surplus() is None
    assert len(frames) == 2


def test_a_peer_that_goes_on_sending_a_message_is_not_closed_for_many_that_began_one():
    frames = bounded(100 * MiB)
    closed: set[object] = set()
    for size in range(1, 13):
        for name in range(40):
            if name % 8 == 0:
                frames.holds("honest", min(size, 4) * MiB)
            if name not in closed:
                frames.holds(name, size * MiB)
            while (surplus := frames.surplus()) is not None:
                frames.forget(surplus)
                closed.add(surplus)
    assert closed
    assert "honest" not in closed
    assert frames.total <= frames.limit


def test_a_finished_frame_holds_nothing():
    frames = bounded(10)
    frames.holds("a", 5)
    frames.holds("a", 0)
    assert (frames.total, len(frames)) == (0, 0)
