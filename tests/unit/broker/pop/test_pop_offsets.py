"""How far groups have popped: ahead of what is committed, and found again after a crash."""

from __future__ import annotations

import pytest

from pyromq.broker.offsets.consumer_offsets import ConsumerOffsets
from pyromq.broker.pop.offsets import PopOffsets, QueueOfGroup, caught_up
from pyromq.broker.pop.records import Checkpoint

QUEUE = QueueOfGroup("g", "T", 0)


@pytest.fixture
def offsets():
    return ConsumerOffsets()


@pytest.fixture
def pops(offsets):
    return PopOffsets(offsets)


def test_what_was_popped_is_committed_when_it_is_settled(pops, offsets):
    assert pops.get(QUEUE) is None
    pops.commit(QUEUE, 5)
    pops.move(QUEUE, 8)
    assert (pops.get(QUEUE), offsets.get(*QUEUE)) == (8, 5)
    reached = pops.snapshot()
    pops.move(QUEUE, 12)
    pops.settle(reached)
    assert (pops.get(QUEUE), offsets.get(*QUEUE), len(pops)) == (12, 8, 1)
    pops.settle(pops.snapshot())
    assert (pops.get(QUEUE), offsets.get(*QUEUE), len(pops)) == (12, 12, 0)


def test_whoever_sets_the_offset_is_obeyed_also_while_it_is_being_settled(pops, offsets):
    pops.commit(QUEUE, 5)
    pops.move(QUEUE, 8)
    reached = pops.snapshot()
    offsets.commit(*QUEUE, 2)
    pops.settle(reached)
    assert (pops.get(QUEUE), offsets.get(*QUEUE)) == (2, 2)


def test_what_was_given_back_is_popped_again_and_not_committed(pops, offsets):
    pops.commit(QUEUE, 5)
    pops.move(QUEUE, 8)
    pops.move(QUEUE, 10)
    reached = pops.snapshot()
    pops.give_back(QUEUE, 8)
    assert pops.get(QUEUE) == 8
    pops.settle(reached)
    assert (pops.get(QUEUE), offsets.get(*QUEUE)) == (8, 8)


def checkpoint(start: int, *distances: int, pop_time: int, topic: str = "T") -> Checkpoint:
    return Checkpoint(
        group="g", topic=topic, distances=list(distances), count=len(distances), start_offset=start, pop_time=pop_time
    )


def test_after_a_crash_offsets_follow_the_checkpoints_that_are_newer_than_their_file(offsets):
    offsets.commit(*QUEUE, 5)
    newer = [checkpoint(5, 0, 1, 2, pop_time=11), checkpoint(20, 0, 3, pop_time=12)]
    assert caught_up(offsets, [*newer, checkpoint(0, 0, 1, pop_time=13, topic="other")], saved_at=10) == 3
    assert offsets.get(*QUEUE) == 24
    assert offsets.get("g", "other", 0) == 2


def test_older_checkpoints_count_only_where_the_group_is(offsets):
    offsets.commit(*QUEUE, 5)
    older = [checkpoint(3, 0, 1, pop_time=7), checkpoint(5, 0, 1, 2, pop_time=8), checkpoint(50, 0, 1, pop_time=9)]
    assert caught_up(offsets, older, saved_at=10) == 1
    assert offsets.get(*QUEUE) == 8


def test_a_message_whose_time_was_changed_does_not_undo_a_reset(offsets):
    offsets.commit(*QUEUE, 0)
    assert caught_up(offsets, [checkpoint(500, 0, pop_time=11)], saved_at=10) == 0
    assert offsets.get(*QUEUE) == 0
