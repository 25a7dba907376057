"""A copy of a log whose master deletes topics and makes them again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.store.kit import put, small, state

if TYPE_CHECKING:
    from tests.unit.store.kit import Stores

    from pyromq.store import MessageStore

TOPICS = "TU"


def copy(master: MessageStore, slave: MessageStore, most: int = 1 << 30) -> None:
    """Give the slave what it lacks of the log, but no more than so many bytes."""
    while most and (begin := int(slave.log.end)) < master.log.end:
        segment = master.log.segment_at(begin)
        assert segment is not None
        piece = bytes(segment.view[begin - segment.start :][: min(most, int(master.log.end) - begin)])
        slave.append_copy(begin, piece)
        most -= len(piece)


def test_a_queue_that_begins_again_has_the_new_messages_only(stores: Stores, store: MessageStore) -> None:
    slave = stores.start(small(stores.folder / "slave"))
    put(store, b"old 0", b"old 1")
    copy(store, slave)
    store.delete_topic("T")
    put(store, b"new 0")
    copy(store, slave)
    assert state(slave) == state(store) == {("T", 0): (0, 1, [b"new 0"])}


def test_queues_without_new_messages_are_emptied_once_the_place_is_known(stores: Stores, store: MessageStore) -> None:
    slave = stores.start(small(stores.folder / "slave"))
    put(store, b"old", queue_id=0)
    put(store, b"old", queue_id=1)
    store.delete_topic("T")
    put(store, b"new", queue_id=2)
    copy(store, slave, 100)
    slave.delete_topics_before(store.deleted_topics)  # too early: not all of it has come
    assert len(state(slave)) == 1
    copy(store, slave)
    slave.delete_topics_before(store.deleted_topics)
    assert state(slave) == state(store) == {("T", 2): (0, 1, [b"new"])}
    assert state(stores.crash(slave)) == state(store)
    assert state(stores.reopen(slave)) == state(store)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_queues_are_the_masters_whatever_happens(stores: Stores, store: MessageStore, seed: int) -> None:
    """Sends, deletions, bytes in any pieces, crashes and restarts of the slave, and the places known at any time."""
    dice = random.Random(seed)
    slave = stores.start(small(stores.folder / "slave"))
    for number in range(150):
        match dice.randrange(12):
            case 0:
                store.delete_topic(dice.choice(TOPICS))
            case 1:
                slave.delete_topics_before(store.deleted_topics)
            case 2:
                stores.is_damaged(slave.root)  # the one that goes on may have half a record at its end
                slave = stores.crash(slave)
            case 3:
                slave = stores.reopen(slave)
            case 4:
                stores.sync_all(slave)
            case 5 | 6:
                copy(store, slave, dice.randrange(1, 2000))
            case _:
                put(store, b"m%d" % number, topic=dice.choice(TOPICS), queue_id=dice.randrange(3))
    copy(store, slave)
    slave.delete_topics_before(store.deleted_topics)
    assert state(slave) == state(store)
    assert state(stores.crash(slave)) == state(store)
    assert state(stores.reopen(slave)) == state(store)
