from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.client.consumer.process_queue import ProcessQueue
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import MessageRecord


def message(offset, size=1):
    return MessageExt(MessageRecord(topic="T", body=bytes(size), queue_offset=offset))


def messages(*offsets):
    return [message(offset) for offset in offsets]


def offsets(some):
    return [each.queue_offset for each in some]


@pytest.mark.scenario("client 37")
def test_progress_stays_at_the_smallest_unfinished_message():
    queue = ProcessQueue()
    all_of_them = messages(*range(10))
    queue.put(all_of_them)
    for finished in all_of_them[1:6]:
        assert queue.remove([finished]) == 0
    assert queue.remove([all_of_them[0]]) == 6


def test_when_all_are_finished_progress_is_behind_the_last():
    queue = ProcessQueue()
    batch = messages(3, 4, 9)
    queue.put(batch)
    assert queue.remove(batch) == 10


def test_removing_from_an_empty_queue_commits_nothing():
    queue = ProcessQueue()
    assert queue.remove(messages(1)) is None
    queue.put(messages(1))
    queue.clear()
    assert queue.remove(messages(1)) is None


def test_what_is_there_already_is_passed_over():
    queue = ProcessQueue()
    first = message(1, size=10)
    queue.put([first])
    queue.put([message(1, size=99), message(2, size=5)])
    assert (queue.count, queue.size) == (2, 15)
    assert queue.first() is first


def test_somebody_must_start_to_consume_only_when_nobody_is_at_work():
    queue = ProcessQueue()
    assert not queue.put([])
    assert queue.put(messages(0))
    assert not queue.put(messages(1))
    assert offsets(queue.take(5)) == [0, 1]
    assert queue.commit() == 2
    assert queue.consuming
    assert queue.take(5) == []
    assert not queue.consuming
    assert queue.put(messages(2))


def test_the_backlog_is_what_the_broker_had_behind_the_last_message():
    queue = ProcessQueue()
    queue.put(messages(5, 6), max_offset=20)
    assert queue.backlog == 14


def test_the_span_reaches_from_the_first_to_the_last():
    queue = ProcessQueue()
    assert queue.span == 0
    batch = messages(5, 6, 2010)
    queue.put(batch)
    assert queue.span == 2005
    queue.remove([batch[0]])
    assert queue.span == 2004
    queue.remove([batch[2]])
    assert queue.span == 0


def test_what_was_taken_is_counted_until_it_is_committed():
    queue = ProcessQueue()
    queue.put([message(0, 3), message(1, 4)])
    taken = queue.take(1)
    assert (queue.count, queue.size, queue.waiting) == (2, 7, 1)
    assert taken[0] in queue
    assert queue.commit() == 1
    assert (queue.count, queue.size) == (1, 4)
    assert queue.commit() is None


def test_a_rollback_puts_everything_back_in_its_place():
    queue = ProcessQueue()
    queue.put(messages(0, 1, 2, 3))
    queue.take(1)
    queue.take(2)
    queue.rollback()
    assert offsets(queue.take(9)) == [0, 1, 2, 3]


def test_some_of_the_taken_may_wait_again():
    queue = ProcessQueue()
    queue.put(messages(0, 1, 2))
    taken = queue.take(2)
    queue.again(taken[1:])
    assert offsets(queue.take(9)) == [1, 2]
    assert queue.commit() == 3


def test_messages_that_come_out_of_order_are_put_in_order():
    queue = ProcessQueue()
    queue.put(messages(7, 5))
    queue.put(messages(1, 6))
    assert offsets(queue.messages()) == [1, 5, 6, 7]
    assert offsets(queue.take(4)) == [1, 5, 6, 7]


def test_pulls_and_locks_expire():
    queue = ProcessQueue(now=100.0)
    assert not queue.is_pull_expired(220.0)
    assert queue.is_pull_expired(220.1)
    assert not queue.is_lock_expired(130.0)
    assert queue.is_lock_expired(130.1)


def test_it_tells_how_it_fares():
    queue = ProcessQueue(now=10.0)
    queue.put([message(offset, 1024 * 1024) for offset in (4, 5, 6)])
    queue.take(1)
    info = queue.info(commit_offset=4, epoch=1000.0)
    assert (info.cached_msg_min_offset, info.cached_msg_max_offset, info.cached_msg_count) == (5, 6, 2)
    assert (info.transaction_msg_min_offset, info.transaction_msg_max_offset, info.transaction_msg_count) == (4, 4, 1)
    assert (info.cached_msg_size_in_mib, info.commit_offset, info.last_pull_timestamp) == (3, 4, 1_010_000)


@given(st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.lists(st.integers(0, 30), max_size=6))))
def test_it_agrees_with_a_plain_dictionary(steps):
    queue = ProcessQueue()
    model: dict[int, int] = {}
    last = -1
    for step, wanted in steps:
        batch = [message(offset, offset) for offset in wanted]
        if step == "put":
            queue.put(batch)
            for offset in wanted:
                if offset not in model:
                    model[offset] = offset
                    last = max(last, offset)
        else:
            was_empty = not model
            for offset in wanted:
                model.pop(offset, None)
            assert queue.remove(batch) == (None if was_empty else min(model) if model else last + 1)
        assert offsets(queue.messages()) == sorted(model)
        assert queue.size == sum(model.values())
        assert queue.min_offset == min(model, default=None)
        assert queue.max_offset == max(model, default=None)
