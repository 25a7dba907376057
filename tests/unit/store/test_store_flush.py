"""Flushing: when it is due, who waits for it, and what a failed one means."""

from __future__ import annotations

import errno
import threading

import pytest
from tests.unit.store.kit import bodies, message, numbered, put

from pyromq.errors import StoreNotWritable
from pyromq.store import FlushDiskType, PutStatus
from pyromq.store.flush import PAGE, Flusher, flush_is_due

SYNC = FlushDiskType.SYNC_FLUSH


@pytest.mark.parametrize(
    ("dirty", "least_pages", "since", "is_due"),
    [
        (0, 4, 99_999, False),
        (1, 4, 9_999, False),
        (1, 4, 10_000, True),
        (4 * PAGE - 1, 4, 0, False),
        (4 * PAGE, 4, 0, True),
        (1, 0, 0, True),
    ],
)
def test_a_flush_waits_for_pages_or_for_time(dirty, least_pages, since, is_due):
    assert flush_is_due(dirty, least_pages, since, 10_000) == is_due


def test_what_waits_for_a_flush_is_on_disk_when_it_is_told_so(store, disk):
    put(store, b"a")
    before = disk.syncs
    store.flushed().result(5)
    assert disk.syncs == before + 1
    assert store.flusher.flushed == store.log.end
    # All of it is; nobody has to wait.
    assert store.flushed().done()
    assert store.flushed(0).done()
    assert disk.syncs == before + 1


def put_and_see_it_flushed(store):
    flushed = threading.Event()
    store.flusher._on_flushed = flushed.set
    put(store, b"a")
    assert flushed.wait(5)
    assert store.flusher.flushed == store.log.end


def test_an_asynchronous_flush_happens_without_anybody_waiting(stores):
    put_and_see_it_flushed(stores.open(flush_interval=1, flush_least_pages=0))


def test_little_is_flushed_after_the_thorough_interval(stores):
    put_and_see_it_flushed(stores.open(flush_interval=1, flush_least_pages=1000, flush_thorough_interval=20))


def test_a_synchronous_store_flushes_also_what_nobody_waits_for(stores):
    store = stores.open(flush=SYNC)
    put_and_see_it_flushed(store)
    store.flusher.wake()


@pytest.mark.scenario("store 14")
def test_a_hundred_producers_share_few_flushes(stores, disk):
    store = stores.open(flush=SYNC, commit_log_file_size=1 << 20)
    queue = store.queue("T", 0)
    rounds = 10
    before = disk.syncs
    waiting = []
    for _ in range(rounds):
        disk.hold_syncs()
        first = store.put([(queue, [message(b"first")])])[0]
        waiting.append(store.flushed(first.physical_offset + first.size))
        assert disk.is_held.wait(5)  # its fsync is under way; whoever comes now shares the next one
        for number in range(99):
            (result,) = store.put([(queue, [message(b"m%d" % number)])])
            assert result.status is PutStatus.PUT_OK
            waiting.append(store.flushed(result.physical_offset + result.size))
        disk.release_syncs()
        for future in waiting:
            future.result(5)
    assert len(waiting) == 1000
    assert disk.syncs - before <= 1000 / 20


@pytest.mark.scenario("store 13")
def test_a_flush_that_stalls_keeps_who_waits_waiting_and_the_message_is_stored(stores, disk):
    store = stores.open(flush=SYNC)
    disk.hold_syncs()
    (result,) = put(store, b"a")
    flushed = store.flushed(result.physical_offset + result.size)
    assert disk.is_held.wait(5)
    assert not flushed.done()
    assert (result.status, result.physical_offset) == (PutStatus.PUT_OK, 0)
    assert bodies(store) == [b"a"]
    put(store, b"others can still be stored")
    disk.release_syncs()
    flushed.result(5)


def test_a_failed_flush_is_told_to_all_and_ends_storing_for_good(stores, disk):
    store = stores.open(flush=SYNC)
    put(store, b"safe")
    store.flushed().result(5)
    disk.hold_syncs()
    disk.fail_syncs(errno.EIO, "commitlog")
    (result,) = put(store, b"lost?")
    waiters = [store.flushed(), store.flushed(), store.flushed(1)]
    assert waiters.pop().done()
    disk.release_syncs()
    for waiter in waiters:
        with pytest.raises(StoreNotWritable, match="Input/output error"):
            waiter.result(5)
    disk.heal()
    # What the page cache holds now is anybody's guess, so working again is not enough.
    with pytest.raises(StoreNotWritable, match="flush failed"):
        store.put([(store.queue("T", 0), [message()])])
    assert "restart" in store.refusal
    with pytest.raises(StoreNotWritable):
        store.flushed().result(5)
    with pytest.raises(StoreNotWritable):
        store.flushed(result.physical_offset + result.size).result(5)
    # Reading goes on.
    assert bodies(store) == [b"safe", b"lost?"]
    stores.close(store)
    assert (stores.root / "abort").exists()
    again = stores.start(store.config)
    put(again, b"works")
    assert bodies(again)[0] == b"safe"
    assert bodies(again)[-1] == b"works"


def test_a_queue_or_an_index_that_cannot_be_synced_counts_as_a_failed_flush(stores, store, clock, disk):
    put(store, b"a")
    disk.fail_syncs(errno.EIO, "consumequeue")
    clock.advance(60)
    store.maintain()
    with pytest.raises(StoreNotWritable):
        store._upkeep._syncing.result(5)
    with pytest.raises(StoreNotWritable):
        store.put([(store.queue("T", 0), [message()])])


def test_a_waiter_that_gave_up_is_not_told(store, disk):
    disk.hold_syncs()
    put(store, b"a")
    waiter = store.flushed()
    assert waiter.cancel()
    disk.release_syncs()
    store.flushed().result(5)


def test_waiting_for_more_than_was_written_is_an_error(store):
    put(store, b"a")
    with pytest.raises(StoreNotWritable, match="ends at"):
        store.flushed(store.log.end + 1).result(5)


def test_nobody_waits_for_a_store_that_is_closed(stores, store):
    put(store, *numbered(0, 5))
    stores.close(store)
    assert store.flushed().done()
    with pytest.raises(StoreNotWritable, match="closed"):
        store.flushed(10**6).result(5)
    with pytest.raises(StoreNotWritable, match="closed"):
        store.flusher.run(lambda: None).result(5)


def test_the_flush_thread_survives_whatever_a_job_does(store):
    def wrong():
        raise ValueError("a bug")

    with pytest.raises(StoreNotWritable, match="a bug"):
        store.flusher.run(wrong).result(5)
    assert store.flusher.error is not None
    with pytest.raises(StoreNotWritable):
        store.flusher.run(lambda: None).result(5)


def test_a_flusher_tells_whoever_wants_to_know(store):
    told = threading.Event()
    flusher = Flusher(store.log, store.config, told.set)
    flusher.start()
    put(store, b"a")
    flusher.wait_for(int(store.log.end)).result(5)
    assert told.is_set()
    flusher.stop()


def test_a_flush_covers_every_file_that_was_written_since_the_last_one(store, disk):
    put(store, *numbered(0, 100))
    files = len(store.log.segments)
    assert files > 2
    before = disk.syncs
    store.flushed().result(5)
    assert disk.syncs - before == files
    put(store, b"x")
    store.flushed().result(5)
    assert disk.syncs - before == files + 1


def test_whoever_waits_for_the_log_does_not_wait_for_the_queues(stores, disk, clock):
    store = stores.open(flush=SYNC)
    put(store, b"a")
    store.flushed().result(5)
    disk.hold_syncs("consumequeue")
    clock.advance(60)
    store.maintain()
    assert disk.is_held.wait(5)
    (result,) = put(store, b"b")
    store.flushed(result.physical_offset + result.size).result(5)
    disk.release_syncs()
    store._upkeep._syncing.result(5)
