"""Who is alive, by a clock that the tests turn (docs/spec/controller.md 3.2)."""

from __future__ import annotations

from pyromq.controller.election import Standing
from pyromq.controller.liveness import DEFAULT_TIMEOUT, BrokerKey, Liveness, SteadyClock, standing_of
from pyromq.testing import Clock

A, B = BrokerKey("c", "b", 1), BrokerKey("c", "b", 2)


class Wire:
    """A connection."""


def beat(liveness, key, now, *, over, standing=Standing(), timeout=DEFAULT_TIMEOUT):  # noqa: B008 - a value
    return liveness.beat(key, over, standing, timeout, now)


def test_a_broker_lives_until_its_time_out_ends():
    liveness, wire = Liveness(), Wire()
    assert not liveness.is_alive(A, 0)
    assert beat(liveness, A, 0, over=wire)
    assert liveness.is_alive(A, 10)
    assert not liveness.is_alive(A, 10.1)
    assert liveness.expire(10) == ([], [])
    assert liveness.next_end() == 10
    assert liveness.expire(10.1) == ([A], [wire])
    assert liveness.next_end() is None


def test_a_beat_renews_time_time_out_and_priority():
    liveness, wire = Liveness(), Wire()
    beat(liveness, A, 0, over=wire, standing=Standing(1, 5, 9))
    assert not beat(liveness, A, 8, over=wire, standing=Standing(1, 5, 2), timeout=3)
    assert liveness.is_alive(A, 11)
    assert not liveness.is_alive(A, 11.1)
    assert liveness.standings("c", "b", 9) == {1: Standing(1, 5, 2)}
    assert liveness.standings("c", "b", 12) == {}
    assert liveness.standings("other", "b", 9) == {}
    assert beat(liveness, A, 20, over=wire)  # it was gone


def test_epoch_and_offset_only_grow():
    liveness, wire = Liveness(), Wire()
    for given, kept in [((1, 9), (1, 9)), ((1, 3), (1, 9)), ((2, 0), (2, 0)), ((2, 4), (2, 4)), ((1, 99), (2, 4))]:
        beat(liveness, A, 0, over=wire, standing=Standing(*given))
        assert liveness.standings("c", "b", 0)[1][:2] == kept


def test_a_broker_in_doubt_has_what_it_says_now():
    liveness, wire, new_wire = Liveness(), Wire(), Wire()
    doubtful = Standing(1, 3, 5, doubtful=True)
    beat(liveness, A, 0, over=wire, standing=Standing(1, 9, 5))
    assert not liveness.is_doubtful(A)
    beat(liveness, A, 1, over=new_wire, standing=doubtful)
    assert liveness.standings("c", "b", 1) == {1: doubtful}
    assert liveness.is_doubtful(A)
    # A late word of its former life.
    beat(liveness, A, 2, over=wire, standing=Standing(1, 9, 5))
    assert liveness.standings("c", "b", 2) == {1: doubtful}
    beat(liveness, A, 3, over=new_wire, standing=Standing(1, 7, 5))
    assert liveness.standings("c", "b", 3) == {1: Standing(1, 7, 5)}
    assert not liveness.is_doubtful(A)


def test_a_broker_that_is_sure_again_over_a_new_connection_is_believed_once_the_old_one_is_gone():
    liveness, wire, new_wire = Liveness(), Wire(), Wire()
    beat(liveness, A, 0, over=wire, standing=Standing(1, 3, 5, doubtful=True))
    beat(liveness, A, 1, over=new_wire, standing=Standing(1, 7, 5))
    assert liveness.is_doubtful(A)
    assert liveness.connection_closed(wire) == [A]
    assert beat(liveness, A, 2, over=new_wire, standing=Standing(1, 7, 5))
    assert not liveness.is_doubtful(A)


def test_who_closes_its_connection_is_gone_at_once():
    liveness, one, two = Liveness(), Wire(), Wire()
    beat(liveness, A, 0, over=one)
    beat(liveness, B, 0, over=two)
    assert liveness.connection_closed(one) == [A]
    assert liveness.connection_closed(one) == []
    assert not liveness.is_alive(A, 0)
    assert liveness.is_alive(B, 0)


def test_an_old_connection_may_close_after_a_broker_came_back_over_a_new_one():
    liveness, one, two = Liveness(), Wire(), Wire()
    beat(liveness, A, 0, over=one)
    beat(liveness, A, 1, over=two)
    assert liveness.connection_closed(one) == []
    assert liveness.connection_closed(two) == [A]


def test_a_pause_of_the_controller_is_not_held_against_brokers(caplog):
    clock = Clock(100.0)
    steady, liveness, wire = SteadyClock(clock), Liveness(), Wire()
    beat(liveness, A, steady(), over=wire)
    clock.advance(30)
    assert liveness.expire(steady()) == ([], [])
    assert "stood still for 29.0 s" in caplog.text
    # From there on time passes as usual.
    for _ in range(9):
        clock.advance(1)
        assert liveness.is_alive(A, steady())
    clock.advance(0.1)
    assert not liveness.is_alive(A, steady())


def test_absent_fields_count_least():
    assert standing_of(None, None, None) == Standing(-1, -1, 2**31 - 1)
    assert standing_of(0, 0, 0) == Standing(0, 0, 0)
