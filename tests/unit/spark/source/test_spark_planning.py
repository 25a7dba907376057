"""Tasks and admission: tasks worth their start, and no queue left waiting."""

from __future__ import annotations

import time

import pytest

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.source.planning import QueueRange, admit, plan

KIB = 1024


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="b", queue_id=number)


def span(number: int, length: int, start: int = 0) -> QueueRange:
    return QueueRange(queue(number), start, start + length)


def kib(_queue: MessageQueue) -> float:
    return KIB


@pytest.mark.scenario("spark 14")
def test_quiet_queues_share_one_task():
    (task,) = plan([span(number, 10) for number in range(16)], kib)
    assert [each.queue.queue_id for each in task] == [*range(16)]


@pytest.mark.scenario("spark 14")
def test_a_backlog_in_one_queue_becomes_many_tasks():
    tasks = plan([span(0, 10 << 20, start=7)], kib)  # 10 GiB
    assert len(tasks) == 160
    assert tasks[0][0].start == 7
    assert all(len(each) * KIB <= 64 << 20 for (each,) in tasks)


def test_a_batch_that_is_worth_it_uses_the_parallelism_but_not_more():
    ranges = [span(number, 4000) for number in range(16)]
    assert len(plan(ranges, kib)) == 8
    assert len(plan(ranges, kib, parallelism=3)) == 3
    assert len(plan(ranges[:2], kib)) == 2


def test_more_tasks_than_the_parallelism_when_a_task_would_become_too_large():
    tasks = plan([span(number, 60_000) for number in range(16)], kib, parallelism=4)
    assert len(tasks) == 16


def test_ranges_are_cut_until_there_are_as_many_tasks_as_asked_for():
    assert len(plan([span(0, 1000), span(1, 10)], kib, min_partitions=20)) == 20
    assert len(plan([span(0, 3)], kib, min_partitions=20)) == 3


def test_no_ranges_make_no_tasks():
    assert plan([], kib) == []
    assert plan([span(0, 0)], kib, min_partitions=4) == []


@pytest.mark.scenario("spark 11")
def test_a_limit_is_kept_and_small_queues_do_not_wait_for_a_large_one():
    starts = {queue(number): 0 for number in range(4)}
    ends = {queue(0): 10_000, queue(1): 100, queue(2): 100, queue(3): 100}
    at, batches = starts, 0
    small_done = None
    while at != ends:
        following = admit(at, ends, 1000)
        taken = sum(following[each] - at[each] for each in ends)
        assert 0 < taken <= 1000
        at, batches = following, batches + 1
        if small_done is None and all(at[queue(number)] == 100 for number in (1, 2, 3)):
            small_done = batches
    assert small_done is not None
    assert small_done <= 3
    assert batches <= 12


def test_less_than_one_message_for_each_queue_goes_round():
    ends = {queue(number): 1000 for number in range(10)}
    at = dict.fromkeys(ends, 0)
    for _ in range(20):
        at = admit(at, ends, 3)
    assert min(at.values()) >= 3


@pytest.mark.scenario("spark 43")
def test_a_thousand_queues_are_planned_in_less_than_a_second():
    begin = time.process_time()
    starts = {queue(number): 0 for number in range(1000)}
    ends = admit(starts, dict.fromkeys(starts, 100_000), 10_000_000)
    tasks = plan([span(each.queue_id, end) for each, end in ends.items()], kib)
    assert sum(len(each) for task in tasks for each in task) == sum(ends.values())
    assert time.process_time() - begin < 1
