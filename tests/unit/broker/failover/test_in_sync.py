"""Who belongs to the in-sync set of a master, and how much of the log that confirms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyromq.broker.failover.in_sync import InSync, Log
from pyromq.broker.failover.role import InSyncSet

PATIENCE = 15.0


def members(*ids, epoch=1):
    return InSyncSet(frozenset(ids), epoch)


def log(end, confirmed=None, epoch_start=0):
    return Log(end, end if confirmed is None else confirmed, epoch_start)


def alone():
    return InSync(1, members(1))


def wanted(in_sync, state, now=0.0):
    return in_sync.wanted(state, PATIENCE, now)


def test_a_slave_that_has_everything_joins():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    assert wanted(in_sync, log(100)) is None
    in_sync.acknowledged(2, 99, log(100), 0.0)
    assert wanted(in_sync, log(100)) is None
    in_sync.acknowledged(2, 100, log(100), 0.0)
    assert wanted(in_sync, log(100)) == {1, 2}


def test_a_slave_joins_only_with_the_beginning_of_the_newest_epoch():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 90, log(100, confirmed=90, epoch_start=95), 0.0)
    assert wanted(in_sync, log(100, confirmed=90, epoch_start=95)) is None
    in_sync.acknowledged(2, 95, log(100, confirmed=90, epoch_start=95), 0.0)
    assert wanted(in_sync, log(100, confirmed=90, epoch_start=95)) == {1, 2}


def test_a_learner_never_joins():
    in_sync = alone()
    in_sync.connected(2, 0.0, is_learner=True)
    in_sync.acknowledged(2, 100, log(100), 0.0)
    assert wanted(in_sync, log(100)) is None
    assert in_sync.counted == set()
    assert in_sync.having(100) == 1


def test_the_set_asked_for_counts_until_there_is_an_answer():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 100, log(100), 0.0)
    in_sync.asked(frozenset({1, 2}), 0.0)
    assert (in_sync.counted, in_sync.size) == ({2}, 2)
    assert wanted(in_sync, log(100)) is None
    in_sync.take(members(1, 2, epoch=2))
    assert (in_sync.counted, in_sync.pending, in_sync.size) == ({2}, set(), 2)


def test_a_refusal_ends_what_was_asked():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 100, log(100), 0.0)
    in_sync.asked(frozenset({1, 2}), 0.0)
    in_sync.refused(0.0)
    assert in_sync.counted == set()
    assert wanted(in_sync, log(100)) == {1, 2}


def test_after_a_lost_answer_both_sets_count_whatever_is_asked_next():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 100, log(100), 0.0)
    in_sync.asked(frozenset({1, 2}), 0.0)
    in_sync.failed(1.0)
    in_sync.disconnected(2)
    assert in_sync.counted == {2}
    assert in_sync.had_by_all(in_sync.counted) is None
    assert wanted(in_sync, log(100), 2.0) is None

    # A refusal of something else says nothing about the first, which may still be under way.
    in_sync.connected(3, 2.0)
    in_sync.acknowledged(3, 100, log(100), 2.0)
    assert wanted(in_sync, log(100), 2.0) == {1, 3}
    in_sync.asked(frozenset({1, 3}), 2.0)
    in_sync.refused(3.0)
    assert in_sync.counted == {2, 3}
    in_sync.disconnected(3)

    # After a while it cannot be any more: the controllers are asked for the set that they should have, and say so.
    assert wanted(in_sync, log(100), 20.0) == {1}
    in_sync.asked(frozenset({1}), 20.0)
    in_sync.refused(20.0)
    assert in_sync.counted == set()
    assert wanted(in_sync, log(100), 20.0) is None


def test_a_newer_set_settles_everything():
    in_sync = alone()
    in_sync.asked(frozenset({1, 2}), 0.0)
    in_sync.failed(0.0)
    in_sync.take(members(1, epoch=1))
    assert in_sync.pending == {1, 2}
    in_sync.take(members(1, 2, epoch=2))
    assert (in_sync.pending, in_sync.counted) == (set(), {2})
    in_sync.take(members(1, epoch=1))
    assert in_sync.counted == {2}


def test_a_member_that_is_gone_leaves():
    in_sync = InSync(1, members(1, 2))
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 100, log(100), 0.0)
    assert wanted(in_sync, log(100)) is None
    in_sync.disconnected(2)
    assert wanted(in_sync, log(100)) == {1}
    # Until the controllers know, nothing is confirmed without it.
    assert in_sync.counted == {2}
    assert in_sync.had_by_all(in_sync.counted) is None


def test_a_member_that_never_came_leaves():
    assert wanted(InSync(1, members(1, 2)), log(100)) == {1}


def test_a_member_that_does_not_keep_up_leaves():
    in_sync = InSync(1, members(1, 2))
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 100, log(100), 1.0)
    in_sync.sent(2, 120, 2.0)
    # Nothing to keep up with is no reason, however long.
    assert wanted(in_sync, log(100), 1000.0) is None
    in_sync.sent(2, 130, 10.0)
    assert wanted(in_sync, log(130, confirmed=100), 17.0) is None
    assert wanted(in_sync, log(130, confirmed=100), 17.1) == {1}
    # It has what was sent at 2.0, and 16 seconds later what had come until then.
    in_sync.acknowledged(2, 120, log(130, confirmed=100), 12.0)
    assert wanted(in_sync, log(130, confirmed=100), 17.1) == {1}
    in_sync.acknowledged(2, 130, log(140, confirmed=100), 18.0)
    assert wanted(in_sync, log(140, confirmed=100), 27.0) is None
    assert wanted(in_sync, log(140, confirmed=100), 27.1) == {1}


def test_a_member_that_had_nothing_to_do_for_long_has_time_for_the_next_message():
    in_sync = InSync(1, members(1, 2))
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 100, log(100), 1.0)
    in_sync.sent(2, 120, 5000.0)
    assert wanted(in_sync, log(120, confirmed=100), 5015.0) is None
    assert wanted(in_sync, log(120, confirmed=100), 5015.1) == {1}


def test_a_member_that_is_always_a_little_behind_keeps_up():
    in_sync = InSync(1, members(1, 2))
    in_sync.connected(2, 0.0)
    for second in range(1, 100):
        in_sync.sent(2, second * 10, float(second))
        in_sync.sent(2, second * 10 + 5, second + 0.5)
        in_sync.acknowledged(2, second * 10, log(second * 10 + 5, confirmed=0), second + 0.9)
        assert wanted(in_sync, log(second * 10 + 5, confirmed=0), second + 0.9) is None


def test_the_others_wait_for_a_slave_that_is_near():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 50, log(90), 1.0)
    in_sync.sent(2, 100, 1.0)
    in_sync.acknowledged(2, 100, log(150), 1.05)
    assert in_sync.is_joining
    assert in_sync.counted == {2}
    # What is confirmed stands still now, so it gets there.
    assert wanted(in_sync, log(160, confirmed=150), 1.06) is None
    in_sync.acknowledged(2, 150, log(170, confirmed=150), 1.07)
    assert wanted(in_sync, log(170, confirmed=150), 1.07) == {1, 2}


def test_the_others_do_not_wait_for_long_nor_again_soon():
    in_sync = alone()
    in_sync.connected(2, 0.0)
    in_sync.acknowledged(2, 50, log(90), 1.0)
    in_sync.sent(2, 100, 1.0)
    in_sync.acknowledged(2, 100, log(150), 1.05)
    in_sync.expire(2.0)
    assert in_sync.is_joining
    in_sync.expire(2.1)
    assert in_sync.counted == set()
    in_sync.acknowledged(2, 200, log(200), 3.0)
    assert not in_sync.is_joining
    in_sync.acknowledged(2, 300, log(300), 13.0)
    assert in_sync.is_joining


def test_nobody_waits_for_a_slave_that_is_far_behind():
    in_sync = alone()
    in_sync.connected(2, 1.0)
    in_sync.acknowledged(2, 5, log(1000), 1.0)
    in_sync.sent(2, 1000, 1.0)
    in_sync.acknowledged(2, 500, log(1000), 1.05)
    in_sync.acknowledged(2, 1000, log(1100), 1.2)
    assert not in_sync.is_joining


IDS = st.integers(2, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), IDS),
        st.tuples(st.just("disconnect"), IDS),
        st.tuples(st.just("acknowledge"), IDS, st.sampled_from([0, 1, 100])),
        st.tuples(st.just("acknowledge"), IDS, st.just(100)),
        st.tuples(st.just("append"), st.integers(1, 2)),
        st.tuples(st.just("ask"), st.sampled_from(["taken", "refused", "lost and taken", "lost"])),
        st.tuples(st.just("ask"), st.just("taken")),
        st.tuples(st.just("poll")),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.5, 5.0, 20.0])),
    ),
    min_size=15,
    max_size=60,
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=500)
def test_every_member_the_controllers_could_elect_has_all_that_is_confirmed(steps):
    """Whatever slaves and controllers do, and however much of it the master knows."""
    in_sync = alone()
    controllers = members(1)
    now, end, confirmed = 100.0, 0, 0
    has = {2: 0, 3: 0}
    there = {2, 3}
    for each in there:
        in_sync.connected(each, now)
    # A request whose answer was lost may be carried out later, unless the set has changed by then.
    under_way: list[tuple[frozenset[int], int, float]] = []

    for step, *args in steps:
        if step == "connect" and args[0] not in there:
            in_sync.connected(args[0], now)
            there.add(args[0])
        elif step == "disconnect" and args[0] in there:
            in_sync.disconnected(args[0])
            there.discard(args[0])
        elif step == "acknowledge" and args[0] in there:
            has[args[0]] = min(has[args[0]] + args[1], end)
            in_sync.acknowledged(args[0], has[args[0]], Log(end, confirmed, 0), now)
        elif step == "append":
            end += args[0]
            for each in there:
                in_sync.sent(each, end, now)
        elif step == "ask":
            asked = in_sync.wanted(Log(end, confirmed, 0), PATIENCE, now)
            if asked is not None:
                in_sync.asked(asked, now)
                is_known = in_sync.taken.epoch == controllers.epoch
                if args[0] in ("taken", "lost and taken") and is_known and asked != controllers.members:
                    controllers = InSyncSet(asked, controllers.epoch + 1)
                if args[0].startswith("lost"):
                    under_way.append((asked, in_sync.taken.epoch, now))
                    in_sync.failed(now)
                elif args[0] == "taken" and is_known and controllers.epoch > in_sync.taken.epoch:
                    in_sync.take(controllers)
                elif asked == controllers.members == in_sync.taken.members or (
                    asked != controllers.members and is_known
                ):
                    in_sync.refused(now)
                else:
                    in_sync.failed(now)
        elif step == "poll":
            in_sync.take(controllers)
        elif step == "wait":
            for asked, epoch, at in under_way:
                if now - at < 5 and epoch == controllers.epoch:
                    controllers = InSyncSet(asked, epoch + 1)
            under_way = [each for each in under_way if now - each[2] < 5]
            now += args[0]
        in_sync.expire(now)
        counted = in_sync.counted
        had = in_sync.had_by_all(counted) if counted else end
        if had is not None:
            confirmed = max(confirmed, had)
        assert all(has[each] >= confirmed for each in controllers.members if each != 1)
