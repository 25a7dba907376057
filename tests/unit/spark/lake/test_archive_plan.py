"""What one step of an archive takes, when, and what it calls lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.lake.archive_plan import Rhythm, TopicRecreated, check_same, missing, next_step
from pyromq.spark.lake.table import Gap, Move
from pyromq.spark.source.planning import QueueRange

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name="broker-a", queue_id=number)


def test_a_step_goes_on_where_the_table_is_and_starts_new_queues_at_their_minimum():
    step = next_step({queue(0): 10}, {queue(0): (3, 25), queue(1): (7, 9), queue(2): (4, 4)}, NOW)
    assert step.ranges == (QueueRange(queue(0), 10, 25), QueueRange(queue(1), 7, 9))
    assert step.moves == (Move(queue(0), 10, 25), Move(queue(1), 7, 9), Move(queue(2), 4, 4))
    assert step.gaps == ()
    assert step.lag == step.rows == 17


def test_nothing_new_is_no_step():
    step = next_step({queue(0): 10}, {queue(0): (3, 10)}, NOW)
    assert (step.ranges, step.moves, step.gaps, step.lag) == ((), (), (), 0)


def test_a_queue_whose_broker_is_away_waits():
    step = next_step({queue(0): 10, queue(1): 5}, {queue(0): (3, 11)}, NOW)
    assert step.moves == (Move(queue(0), 10, 11),)


def test_what_was_deleted_before_it_was_archived_is_a_gap_and_the_archive_goes_on():
    step = next_step({queue(0): 10, queue(1): 10}, {queue(0): (15, 20), queue(1): (12, 12)}, NOW)
    assert step.ranges == (QueueRange(queue(0), 15, 20),)
    assert step.moves == (Move(queue(0), 10, 20), Move(queue(1), 10, 12))
    assert step.gaps == (Gap(queue(0), 10, 15, NOW), Gap(queue(1), 10, 12, NOW))


def test_a_topic_that_was_created_again_is_refused():
    with pytest.raises(
        TopicRecreated, match="queue 0 of orders on broker-a ends at 9, but the table has messages up to 10"
    ):
        next_step({queue(0): 10}, {queue(0): (0, 9)}, NOW)


def test_a_topic_that_was_created_again_and_outgrew_its_table_is_refused():
    positions = {queue(0): 10, queue(1): 5}
    minutes = timedelta(minutes=1)
    # What a table has was stored before it was committed, as far as clocks agree. What it has not may be newer.
    check_same(positions, {queue(0): (3, NOW + 9 * minutes), queue(1): (5, NOW + 99 * minutes)}, NOW)
    with pytest.raises(TopicRecreated, match="queue 0 of orders on broker-a has message 3 of 2026-01-31 00:11:00"):
        check_same(positions, {queue(0): (3, NOW + 11 * minutes)}, NOW)


def test_a_large_backlog_takes_several_steps_and_leaves_no_queue_out():
    bounds = {queue(0): (0, 1_000_000), queue(1): (0, 1000)}
    positions: dict[MessageQueue, int] = {}
    steps = 0
    while (step := next_step(positions, bounds, NOW, limit=200_000 * 100.0, size=lambda _: 100.0)).moves:
        assert step.rows <= 200_000
        for move in step.moves:
            assert positions.get(move.queue, 0) == move.start
            positions[move.queue] = move.end
        steps += 1
    assert steps == 6
    assert positions == {queue(0): 1_000_000, queue(1): 1000}


def test_what_tasks_did_not_find_is_missing():
    ranges = [QueueRange(queue(0), 10, 30), QueueRange(queue(1), 0, 5), QueueRange(queue(2), 0, 5)]
    runs = [
        QueueRange(queue(0), 20, 25),
        QueueRange(queue(0), 12, 20),
        QueueRange(queue(2), 0, 2),
        QueueRange(queue(2), 2, 5),
    ]
    assert missing(ranges, runs, NOW) == [
        Gap(queue(0), 10, 12, NOW),
        Gap(queue(0), 25, 30, NOW),
        Gap(queue(1), 0, 5, NOW),
    ]


@pytest.mark.parametrize("run", [(0, 5, 12), (0, 25, 31), (3, 0, 1)])
def test_what_tasks_found_twice_or_uncalled_for_is_never_committed(run):
    number, start, end = run
    ranges = [QueueRange(queue(0), 10, 30)]
    with pytest.raises(ValueError, match=f"queue {number}"):
        missing(ranges, [QueueRange(queue(0), 10, 30), QueueRange(queue(number), start, end)], NOW)


def test_when_a_topic_is_due():
    rhythm = Rhythm(every=300, max_lag=900, worth=128, step=4096)
    assert not rhythm.is_due(10_000, 0)
    assert not rhythm.is_due(299, 1000)
    assert rhythm.is_due(300, 1000)
    assert not rhythm.is_due(300, 100)
    assert rhythm.is_due(900, 1)
    assert rhythm.is_due(0, 4096)
