"""Upkeep: queues and index on their way to the disk, and the checkpoint that follows them."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest
from tests.unit.store.kit import FOREVER, T0, bodies, message, numbered, put

from pyromq.errors import StoreError, StoreNotWritable
from pyromq.store import upkeep as upkeep_module
from pyromq.store.metadata.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def finish_round(store):
    """Let the round that is under way come to its end."""
    while store._upkeep._round or store._upkeep._round_mark is not None:
        store.maintain()
    if store._upkeep._syncing is not None:
        store._upkeep._syncing.result(5)


def checkpoint_of(store):
    checkpoint = Checkpoint(store.root / "checkpoint", store.disk)
    checkpoint.load()
    return checkpoint


def queue_files(store):
    return sorted(path for path in (store.root / "consumequeue").rglob("*") if path.is_file())


def test_entries_stay_in_memory_until_pages_are_full(stores):
    store = stores.open(consume_queue_file_size=200_000, commit_log_file_size=1 << 20)
    queue = store.queue("T", 0)
    store.put([(queue, [message(b"x")]) for _ in range(100)])
    store.maintain()
    assert queue.dirty == 2000
    assert queue_files(store) == []
    store.put([(queue, [message(b"x")]) for _ in range(310)])
    assert queue.dirty == 0  # two pages and more were written at once


def test_a_flush_of_queues_leaves_those_with_few_pages_for_later(stores, clock):
    store = stores.open(consume_queue_file_size=200_000, commit_log_file_size=1 << 20, queue_flush_least_pages=1)
    many, few = store.queue("T", 0), store.queue("T", 1)
    store.put([(many, [message(b"x")]) for _ in range(300)])
    store.put([(few, [message(b"x")]) for _ in range(20)])
    store.maintain()
    assert (many.dirty, few.dirty) == (6000, 400)  # a second has not passed yet
    clock.advance(1)
    store.maintain()
    assert (many.dirty, few.dirty) == (0, 400)
    clock.advance(58)
    store.maintain()
    assert few.dirty == 400
    clock.advance(1)
    store.maintain()
    assert few.dirty == 0


def test_a_thorough_round_syncs_everything_and_moves_the_checkpoint(store, clock, disk):
    put(store, *numbered(0, 30), keys="k")
    assert checkpoint_of(store).logics == 0
    clock.advance(60)
    before = disk.syncs
    store.maintain()
    finish_round(store)
    # A file or more of the log, three of the queue, one of the index, the checkpoint.
    assert disk.syncs - before >= 6
    checkpoint = checkpoint_of(store)
    assert (checkpoint.physic, checkpoint.logics, checkpoint.index) == (T0, T0, T0)
    put(store, b"later")
    clock.advance(30)
    store.maintain()
    finish_round(store)
    assert checkpoint_of(store).logics == T0


def test_a_round_is_taken_in_parts(stores, clock, monkeypatch):
    monkeypatch.setattr(upkeep_module, "_QUEUES_PER_STEP", 3)
    store = stores.open()
    for number in range(10):
        put(store, b"x", queue_id=number)
    clock.advance(60)
    dirty = []
    for _ in range(4):
        store.maintain()
        dirty.append(sum(queue.dirty > 0 for queue in store.queues))
    assert dirty == [7, 4, 1, 0]
    assert checkpoint_of(store).logics in (0, T0)
    finish_round(store)
    assert checkpoint_of(store).logics == T0


def test_the_checkpoint_says_no_more_than_what_the_round_began_with(stores, clock, monkeypatch):
    monkeypatch.setattr(upkeep_module, "_QUEUES_PER_STEP", 1)
    store = stores.open()
    put(store, b"x", queue_id=0)
    put(store, b"x", queue_id=1)
    clock.advance(60)
    store.maintain()
    clock.advance(10)
    put(store, b"came meanwhile", queue_id=2)
    finish_round(store)
    assert checkpoint_of(store).logics == T0
    assert store.queue("T", 2).dirty > 0


def test_the_next_round_waits_for_a_sync_that_takes_long(store, clock, disk):
    put(store, b"a")
    clock.advance(60)
    disk.hold_syncs()
    store.maintain()
    held = store._upkeep._syncing
    clock.advance(60)
    put(store, b"b")
    store.maintain()
    assert store._upkeep._syncing is held
    disk.release_syncs()
    held.result(5)
    store.maintain()
    finish_round(store)
    assert store._upkeep._syncing is not held


def test_a_clock_that_was_set_back_does_not_put_rounds_off(store, clock):
    clock.advance(-7200)
    store.maintain()
    put(store, b"a")
    clock.advance(60)
    store.maintain()
    finish_round(store)
    assert checkpoint_of(store).logics > 0


@pytest.mark.parametrize("where", ["consumequeue", "index"])
def test_queues_that_cannot_be_written_refuse_messages_until_they_can(stores, store, clock, disk, where):
    put(store, *numbered(0, 5), keys="k")
    disk.fail_writes(errno.ENOSPC, where)
    disk.fail_creates(errno.ENOSPC, where)
    clock.advance(60)
    store.maintain()
    with pytest.raises(StoreNotWritable, match=r"queues or index cannot be written.*No space left"):
        store.put([(store.queue("T", 0), [message()])])
    # What is stored can be read all the same.
    assert bodies(store) == numbered(0, 5)
    store.maintain()
    assert store.refusal is not None
    assert checkpoint_of(store).logics == 0
    disk.heal()
    store.maintain()
    assert store.refusal is None
    finish_round(store)
    assert checkpoint_of(store).logics == T0
    put(store, b"m5", keys="k")
    assert bodies(stores.crash(store)) == numbered(0, 6)
    assert len(store.query("T", "k", 32, 0, FOREVER)) == 6


def test_the_checkpoint_does_not_pass_what_a_failed_round_left_out(stores, clock, disk, monkeypatch):
    monkeypatch.setattr(upkeep_module, "_QUEUES_PER_STEP", 2)
    store = stores.open()
    for number in range(6):
        put(store, b"x", queue_id=number)
    clock.advance(60)
    disk.fail_creates(where="consumequeue/T/1")
    store.maintain()
    assert store.refusal is not None
    disk.fail_creates(where="nowhere")
    # The round is not taken up behind the queue that failed; it begins anew, with that one in it.
    store.maintain()
    finish_round(store)
    assert store.refusal is None
    assert [queue.dirty for queue in store.queues] == [0] * 6
    assert checkpoint_of(store).logics == T0


def test_files_that_are_not_synced_are_not_forgotten_when_the_index_fails(stores, store, clock, disk, monkeypatch):
    put(store, *numbered(0, 5), keys="k")
    clock.advance(60)
    disk.fail_writes(errno.ENOSPC, "index")
    store.maintain()
    disk.heal()
    synced: list[Path] = []
    monkeypatch.setattr(store._upkeep, "_sync_path", synced.append)
    store.maintain()
    finish_round(store)
    assert set(queue_files(store)) <= set(synced)


def test_an_index_that_cannot_be_read_back_refuses_messages(stores, store, monkeypatch):
    def broken(*_):
        raise StoreError("cannot read the index")

    put(store, b"a", keys="k")
    monkeypatch.setattr(store.index, "drain", broken)
    store.maintain()
    assert "cannot read the index" in store.refusal
    monkeypatch.undo()
    store.maintain()
    assert store.refusal is None


def test_messages_are_stored_though_their_entries_cannot_be_written_any_more(stores, disk):
    store = stores.open(consume_queue_file_size=200_000, commit_log_file_size=1 << 20)
    queue = store.queue("T", 0)
    disk.fail_creates(where="consumequeue")
    results = store.put([(queue, [message(b"m%d" % number)]) for number in range(500)])
    assert {result.status.name for result in results} == {"PUT_OK"}
    with pytest.raises(StoreNotWritable):
        store.put([(queue, [message()])])
    crashed = stores.crashed_copy(store)
    disk.heal()
    assert bodies(stores.start(crashed)) == numbered(0, 500)


def test_a_store_that_cannot_be_closed_cleanly_is_recovered(stores, store, disk):
    put(store, *numbered(0, 5))
    disk.fail_creates(where="consumequeue")
    stores.close(store)
    assert (stores.root / "abort").exists()
    disk.heal()
    assert bodies(stores.start(store.config)) == numbered(0, 5)


def test_files_that_went_meanwhile_need_no_sync(stores, store, clock, disk):
    put(store, *numbered(0, 30))
    put(store, *numbered(0, 30), topic="U")
    disk.hold_syncs("consumequeue")
    clock.advance(60)
    store.maintain()
    store.delete_topic("U")
    disk.release_syncs()
    finish_round(store)
    assert store.refusal is None


def test_files_of_many_queues_are_synced_together_and_before_their_folders(stores, disk, monkeypatch):
    store = stores.open(commit_log_file_size=1 << 20)
    for number in range(40):
        put(store, b"x", topic=f"T{number}")
    order: list[str] = []
    all_here = threading.Barrier(16)
    monkeypatch.setattr(disk, "sync_folder", lambda folder: order.append("folder"))

    def sync(fd):
        if threading.current_thread().name.startswith("sync queues") and order.count("file") < 16:
            order.append("file")
            all_here.wait(10)  # one after the other they would never meet

    monkeypatch.setattr(disk, "sync", sync)
    store.close()
    assert order[:16] == ["file"] * 16
    assert order.count("folder") >= 80
