"""Revival: which checkpoints are decided when, what is remembered, and how much of it."""

from __future__ import annotations

import pytest

from pyromq.broker.pop.records import Ack, Checkpoint, Key
from pyromq.broker.pop.revive_plan import ReviveQueue
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig

TOPIC = "rmq_sys_REVIVE_LOG_c"


class Revive:
    """A revive queue, and a hand that writes to it."""

    def __init__(self, folder, room: int = 100) -> None:
        self.store = MessageStore(
            StoreConfig(root=str(folder), commit_log_file_size=1 << 20, consume_queue_file_size=6000, index=False)
        )
        self.store.open()
        self.room = room
        self.queue = self.opened(None)

    def opened(self, done: int | None) -> ReviveQueue:
        return ReviveQueue(self.store, TOPIC, 0, self.room, done)

    def put(self, *records: Checkpoint | Ack) -> None:
        for record in records:
            tag = b"ck" if isinstance(record, Checkpoint) else b"bAck"
            message = MessageRecord(TOPIC, record.encode(), b"TAGS\x01" + tag)
            self.store.put([(self.store.queue(TOPIC, 0), [message])])

    def read(self) -> None:
        while self.queue.read():
            pass

    def due(self, now: int) -> list[tuple[int, set[int]]]:
        """The checkpoints that are decided by their start offsets, with what comes back of each."""
        self.read()
        return [(each.checkpoint.start_offset, each.left) for each in self.queue.due(now)]

    def revive(self, now: int) -> list[int]:
        """Decide all that is due, as the reviver does."""
        self.read()
        some = list(self.queue.due(now))
        for each in some:
            self.queue.decided(each)
        return [each.checkpoint.start_offset for each in some]


@pytest.fixture
def revive(tmp_path):
    made = Revive(tmp_path)
    yield made
    made.store.close()


def ck(start: int, due: int = 1000, count: int = 2) -> Checkpoint:
    return Checkpoint(
        group="g",
        topic="T",
        count=count,
        distances=list(range(count)),
        start_offset=start,
        invisible_time=due,
    )


def ack(start: int, *offsets: int) -> Ack:
    return Ack(group="g", topic="T", start_offset=start, offsets=list(offsets))


def test_what_is_not_acknowledged_is_due_when_timers_have_delivered_its_time(revive):
    revive.put(ck(0), ck(2), ck(4, due=2000), ack(0, 0), ack(2, 2, 3))
    assert revive.due(999) == []
    assert revive.due(1000) == [(0, {1})]
    assert revive.due(2000) == [(0, {1}), (4, {4, 5})]


def test_the_offset_follows_what_is_decided(revive):
    assert revive.queue.done == -1
    revive.put(ck(0), ck(2), ck(4, due=2000), ack(2, 2, 3))
    revive.read()
    assert revive.queue.done == -1
    assert revive.revive(1000) == [0]
    assert revive.queue.done == 1
    assert revive.revive(2000) == [4]
    assert revive.queue.done == 3


def test_a_restart_goes_on_behind_the_last_that_is_done(revive):
    revive.put(ck(0), ack(0, 0, 1), ck(2))
    revive.queue = revive.opened(1)
    assert revive.revive(1000) == [2]
    assert revive.queue.done == 2


def test_what_was_revived_before_a_crash_is_told_by_the_ack_behind_it(revive):
    revive.put(ck(0), ck(2), ack(0, 0, 1))
    revive.queue = revive.opened(None)
    assert revive.revive(1000) == [2]


def test_a_checkpoint_that_timers_deliver_twice_is_decided_once(revive):
    revive.put(ck(0), ck(2))
    assert revive.revive(1000) == [0, 2]
    revive.put(ck(0), ck(2))
    assert revive.revive(1000) == []
    assert revive.queue.done == 3
    revive.put(ck(0))
    assert revive.revive(12_000) == []
    revive.put(ck(0))
    assert revive.revive(12_000) == [0], "names are not remembered for ever"


def test_an_ack_for_nothing_and_a_checkpoint_of_nothing_are_passed_over(revive):
    revive.put(ack(0, 0), ck(2, count=0), ack(77, 1))
    assert revive.revive(1000) == []
    assert revive.queue.done == 2


def test_memory_has_a_limit_and_nothing_is_lost_by_it(revive):
    revive.room = 10
    revive.queue = revive.opened(None)
    count = 200
    revive.put(*(ck(2 * number) for number in range(count)))
    revive.put(*(ack(2 * number, 2 * number, 2 * number + 1) for number in range(0, count, 2)))
    found: list[int] = []
    for _ in range(count):
        found += revive.revive(1000)
        assert len(revive.queue) <= 10
    assert found == [2 * number for number in range(1, count, 2)]
    assert revive.queue.done == count + count // 2 - 1


def test_with_too_many_acks_are_looked_for_as_far_as_they_may_be(revive):
    revive.put(ck(0, due=1000))
    revive.room = 1
    revive.queue = revive.opened(None)
    revive.read()
    # The queue has grown since the start. Acks of the first are not behind what is due so much later.
    revive.put(ck(2, due=1500), ack(2, 2, 3), ck(4, due=9000), ack(0, 0, 1))
    assert revive.revive(1000) == [0]
    assert revive.revive(9000) == [4]


def test_the_key_of_an_ack_is_that_of_its_checkpoint():
    assert ack(3).key == ck(3).key == Key("T", "g", 0, 3, 0)
