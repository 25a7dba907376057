"""Queue locks, with a clock made of numbers."""

from __future__ import annotations

import pytest

from pyromq.broker.clients.queue_locks import LOCK_EXPIRES_MS, QueueLocks
from pyromq.protocol.message_queue import MessageQueue


def queue(queue_id, topic="T"):
    return MessageQueue(topic=topic, broker_name="b", queue_id=queue_id)


Q0, Q1, Q2 = queue(0), queue(1), queue(2)


@pytest.fixture
def locks():
    return QueueLocks()


def test_a_free_queue_is_taken(locks):
    assert locks.lock("g", "a", [Q0, Q1], 0) == [Q0, Q1]


def test_a_queue_that_another_holds_is_not_in_the_answer(locks):
    locks.lock("g", "a", [Q0], 0)
    assert locks.lock("g", "b", [Q0, Q1], 0) == [Q1]


def test_groups_do_not_disturb_each_other(locks):
    locks.lock("g", "a", [Q0], 0)
    assert locks.lock("h", "b", [Q0], 0) == [Q0]


def test_a_queue_named_twice_is_answered_once(locks):
    assert locks.lock("g", "a", [Q0, queue(0)], 0) == [Q0]


def test_a_lock_lasts_sixty_seconds_from_its_last_refresh(locks):
    locks.lock("g", "a", [Q0], 0)
    assert locks.lock("g", "a", [Q0], 20_000) == [Q0]
    assert locks.lock("g", "b", [Q0], 20_000 + LOCK_EXPIRES_MS) == []
    assert locks.lock("g", "b", [Q0], 20_000 + LOCK_EXPIRES_MS + 1) == [Q0]
    assert locks.lock("g", "a", [Q0], 20_000 + LOCK_EXPIRES_MS + 1) == []


def test_being_refused_refreshes_nothing(locks):
    locks.lock("g", "a", [Q0], 0)
    assert locks.lock("g", "b", [Q0], LOCK_EXPIRES_MS) == []
    assert locks.lock("g", "b", [Q0], LOCK_EXPIRES_MS + 1) == [Q0]


def test_an_expired_lock_is_still_its_holders_until_somebody_takes_it(locks):
    locks.lock("g", "a", [Q0], 0)
    assert locks.lock("g", "a", [Q0], 10 * LOCK_EXPIRES_MS) == [Q0]


def test_what_is_given_back_is_free(locks):
    locks.lock("g", "a", [Q0, Q1], 0)
    locks.unlock("g", "a", [Q0, Q2])
    assert locks.lock("g", "b", [Q0, Q1], 0) == [Q0]


def test_nobody_gives_back_what_another_holds(locks):
    locks.lock("g", "a", [Q0], 0)
    locks.unlock("g", "b", [Q0])
    locks.unlock("h", "a", [Q0])
    assert locks.lock("g", "b", [Q0], 0) == []


def test_another_life_time_can_be_chosen():
    locks = QueueLocks(expires_ms=10)
    locks.lock("g", "a", [Q0], 0)
    assert locks.lock("g", "b", [Q0], 11) == [Q0]


def test_locks_of_the_past_do_not_pile_up(locks):
    for day in range(100):
        locks.lock(f"group of day {day}", "a", [queue(number) for number in range(100)], day * 86_400_000)
    assert len(locks) < 2000


def test_locks_of_the_present_survive_the_sweep(locks):
    many = [queue(number) for number in range(5000)]
    assert locks.lock("g", "a", many, 0) == many
    assert locks.lock("g", "b", many, 1) == []
