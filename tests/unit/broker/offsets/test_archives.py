"""How far archives are, found from what they committed and a real store."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tests.unit.broker.offsets.test_consumer_offsets import offsets
from tests.unit.store.kit import T0, message, small

from pyromq.broker.offsets.archives import Archives
from pyromq.store import MessageStore

LAKE, OTHER = "CID_RMQ_SYS_LAKE_a", "CID_RMQ_SYS_LAKE_b"
HOUR = 3600


@pytest.fixture
def store(tmp_path):
    with MessageStore(small(tmp_path, archive_before_delete=True), clock=lambda: T0 / 1000) as store:
        yield store


def put(store, topic, queue_id, count):
    """The places of the messages in the log."""
    queue = store.queue(topic, queue_id)
    store.put([(queue, [message(b"x", topic=topic, queue_id=queue_id)]) for _ in range(count)])
    return [queue.entry(offset)[0] for offset in range(queue.next_offset)]


def look(store, committed, now=T0):
    archives = Archives(store, committed, lambda: now)
    asyncio.run(archives.look())
    return archives.collect()


def test_without_a_report_nothing_counts_as_archived(store):
    put(store, "T", 0, 3)
    found = look(store, offsets(people={"T": {0: 3}}))
    assert store.archived == 0
    assert (found["archives"], found["archivedPhysicalOffset"]) == ("0", "-1")
    assert "lake_headroom_seconds" not in found


def test_the_first_message_that_an_archive_lacks_is_the_limit(store):
    a, b, c = put(store, "T", 0, 5), put(store, "T", 1, 5), put(store, "U", 0, 5)
    found = look(store, offsets(**{LAKE: {"T": {0: 5, 1: 2}, "U": {0: 1}}}))
    assert store.archived == b[2]
    assert (found["archiveBehind"], found["archiveBehindGroup"]) == ("T queue 1", LAKE)
    look(store, offsets(**{LAKE: {"T": {0: 5, 1: 5}, "U": {0: 1}}}))
    assert store.archived == c[1]
    look(store, offsets(**{LAKE: {"T": {0: 1, 1: 5}}}))
    assert store.archived == a[1]


def test_a_topic_that_nobody_archives_holds_nothing_up(store):
    put(store, "T", 0, 5)
    put(store, "U", 0, 5)
    found = look(store, offsets(**{LAKE: {"T": {0: 5}}}))
    assert store.archived == store.log.end
    assert "archiveBehind" not in found
    assert found["lake_headroom_seconds"] == str(72 * HOUR)


def test_a_queue_of_an_archived_topic_that_was_never_reported_is_not_archived(store):
    put(store, "T", 0, 5)
    new = put(store, "T", 1, 5)
    look(store, offsets(**{LAKE: {"T": {0: 5}}}))
    assert store.archived == new[0]


def test_of_two_archives_the_slower_one_counts(store):
    places = put(store, "T", 0, 5)
    found = look(store, offsets(**{LAKE: {"T": {0: 5}}, OTHER: {"T": {0: 3}}}))
    assert store.archived == places[3]
    assert (found["archives"], found["archiveBehindGroup"]) == ("2", OTHER)


def test_a_position_beyond_the_end_is_of_an_earlier_topic(store):
    places = put(store, "T", 0, 5)
    look(store, offsets(**{LAKE: {"T": {0: 17}}}))
    assert store.archived == places[0]


def test_the_headroom_is_what_is_left_for_the_oldest_message(store):
    put(store, "T", 0, 5)
    committed = offsets(**{LAKE: {"T": {0: 3}}})
    assert look(store, committed, T0 + 50 * HOUR * 1000)["lake_headroom_seconds"] == str(22 * HOUR)
    assert look(store, committed, T0 + 80 * HOUR * 1000)["lake_headroom_seconds"] == "0"


def test_a_broker_without_archives_says_nothing_of_them(store):
    store.reconfigure(dataclasses.replace(store.config, archive_before_delete=False))
    assert look(store, offsets(people={"T": {0: 3}})) == {}
    assert look(store, offsets(**{LAKE: {"T": {0: 0}}}))["archiveBeforeDelete"] == "false"


def test_many_queues_do_not_hold_up_the_loop(store):
    """A deleted queue among them does no harm."""
    for queue_id in range(3000):
        put(store, "T", queue_id, 1)
    committed = offsets(**{LAKE: {"T": dict.fromkeys(range(3000), 0)}})

    async def main():
        turns = 0
        archives = asyncio.create_task(Archives(store, committed, lambda: T0).look())
        while not archives.done():
            turns += 1
            await asyncio.sleep(0)
            if turns == 2:
                store.queues.delete_topic("T")
        return turns

    assert asyncio.run(main()) > 2
