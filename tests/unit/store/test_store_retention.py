"""Clean-up: what expires, what a full disk does, and that a file that cannot be deleted is no end."""

from __future__ import annotations

import dataclasses
import os
import time

import pytest
from tests.unit.store.kit import FOREVER, bodies, message, numbered, put, small

from pyromq.errors import StoreNotWritable
from pyromq.store import GetStatus
from pyromq.store.removal import Removal
from pyromq.store.retention import CleaningPlan, plan_cleaning
from pyromq.testing import FaultyDisk

HOUR = 3600
NOON = time.mktime((2024, 5, 5, 12, 0, 0, 0, 0, -1))
FOUR = time.mktime((2024, 5, 5, 4, 59, 59, 0, 0, -1))


class File:
    """As much of a segment as a plan needs."""

    def __init__(self, folder, number):
        self.path = folder / f"{number:020d}"
        self.path.touch()

    def aged(self, now, hours):
        os.utime(self.path, (now - hours * HOUR,) * 2)
        return self


@pytest.fixture
def plan(tmp_path):
    """Plans a round over files of these ages, oldest first."""

    def plan(ages, used, *, now=NOON, others=(), by_operator=False, **changes):
        files = [File(tmp_path, number).aged(now, age) for number, age in enumerate(ages)]
        return plan_cleaning(small(tmp_path, **changes), [used, *others], used, files, now, by_operator)

    return plan


# Deciding


def test_on_a_roomy_disk_files_expire_at_their_hour_and_not_before(plan):
    ages = [100, 80, 73, 71, 1]
    assert plan(ages, 0.5) == CleaningPlan(0, "", False, True)
    assert plan(ages, 0.5, now=FOUR).delete == 3
    assert plan(ages, 0.5, now=FOUR + 1).delete == 0
    assert plan(ages, 0.5, delete_when="04;12").delete == 3
    assert plan(ages, 0.5, delete_when="04; x ;").delete == 0
    assert plan(ages, 0.5, by_operator=True).delete == 3


def test_the_time_that_files_are_kept_is_a_setting(plan):
    assert plan([100, 80, 2, 1], 0.5, now=FOUR, reserved_hours=1).delete == 3
    assert plan([100, 80, 2, 1], 0.5, now=FOUR, reserved_hours=101).delete == 0


@pytest.mark.scenario("store 17")
def test_on_a_disk_at_80_percent_expired_files_go_at_any_hour(plan):
    decided = plan([90, 73, 71, 1], 0.80)
    assert (decided.delete, decided.disk_full, decided.disk_recovered) == (2, False, True)
    assert "80 %" in decided.reason
    assert plan([90, 73, 71, 1], 0.75).delete == 0
    assert plan([90, 73, 71, 1], 0.76).delete == 2


@pytest.mark.scenario("store 18")
def test_on_a_disk_at_86_percent_the_oldest_files_go_whatever_their_age(plan):
    assert plan([1] * 20, 0.86).delete == 10
    assert plan([1] * 4, 0.86).delete == 3
    assert plan([1], 0.86).delete == 0
    assert plan([], 0.86).delete == 0
    assert plan([1] * 20, 0.85).delete == 0
    assert plan([90, 80, 1, 1], 0.95, clean_forcibly=False).delete == 2


def test_a_disk_whose_use_is_unknown_counts_as_nearly_full(plan):
    assert plan([90, 80, 1], -1.0).delete == 2


def test_the_first_file_that_stays_keeps_all_behind_it(plan):
    assert plan([90, 1, 90, 90, 1], 0.8).delete == 1


def test_a_file_that_is_not_there_any_more_need_not_be_kept(plan, tmp_path):
    files = [File(tmp_path, number).aged(NOON, 1) for number in range(3)]
    files[0].path.unlink()
    assert plan_cleaning(small(tmp_path), [0.8], 0.8, files, NOON).delete == 1


def test_of_several_disks_for_the_log_the_least_full_one_counts(plan, tmp_path):
    decided = plan_cleaning(small(tmp_path), [0.95, 0.5, 0.92], 0.5, [], NOON)
    assert (decided.disk_full, decided.disk_recovered) == (False, True)
    assert plan_cleaning(small(tmp_path), [0.95, 0.5], 0.91, [], NOON).disk_full


@pytest.mark.parametrize("percent", range(10, 100))
def test_percents_are_compared_exactly(plan, percent, tmp_path):
    config = small(tmp_path, disk_warning=percent, disk_clean_forcibly=percent)
    assert not plan_cleaning(config, [percent / 100], 0.1, [], NOON).disk_full
    assert plan_cleaning(config, [percent / 100], 0.1, [], NOON).disk_recovered
    assert plan_cleaning(config, [(percent + 1) / 100], 0.1, [], NOON).disk_full == (percent < 100)


# Doing


@pytest.mark.scenario("store 16")
def test_a_disk_at_91_percent_takes_no_messages_and_serves_those_it_has(store, disk):
    put(store, *numbered(0, 5))
    disk.used = 0.90
    store.clean()
    put(store, b"m5")
    disk.used = 0.91
    store.clean()
    with pytest.raises(StoreNotWritable, match="disk is nearly full"):
        store.put([(store.queue("T", 0), [message()])])
    assert bodies(store) == numbered(0, 6)
    for used in (0.90, 0.86):
        disk.used = used
        store.clean()
        assert store.refusal is not None
    disk.used = 0.85
    store.clean()  # within a round, which comes every ten seconds
    assert store.refusal is None
    put(store, b"m6")


def test_a_store_that_was_closed_on_a_full_disk_is_recovered(stores, store, disk):
    put(store, b"a")
    disk.used = 0.95
    store.clean()
    stores.close(store)
    assert (stores.root / "abort").exists()
    disk.used = 0.1
    assert bodies(stores.start(store.config)) == [b"a"]


def test_expired_files_go_and_younger_ones_stay(stores, store, clock):
    put(store, *numbered(0, 300))
    segments = store.log.segments
    now = clock()
    for age, segment in zip((100, 90, 73, 71, 80), segments, strict=False):
        os.utime(segment.path, (now - age * HOUR,) * 2)
    stores.sync_all(store)
    stores.disk.used = 0.80
    gone = store.clean()
    store._removal.wait()
    assert [path for path in gone if path.parent.name == "commitlog"] == [segment.path for segment in segments[:3]]
    assert store.log.start == segments[3].start
    assert not any(path.exists() for path in gone)


@pytest.mark.scenario("store 19")
@pytest.mark.parametrize("again", ["running", "stop", "crash"])
def test_queues_and_index_follow_the_log(stores, again):
    store = stores.open(delete_batch=3)
    put(store, *numbered(0, 250), keys="k")
    queue = store.queue("T", 0)
    queue.write_out()
    store.index.flush()
    expected = next(offset for offset in range(250) if queue.entry(offset)[0] >= 3 * 4096)
    index_files = sorted((stores.root / "index").iterdir())
    gone = stores.drop_oldest_files(store)
    assert store.log.start == 3 * 4096
    if again == "stop":
        store = stores.reopen(store)
    elif again == "crash":
        store = stores.crash(store)
    queue = store.queue("T", 0)
    low = int(queue.min_offset)
    assert low == expected
    result = store.get(queue, low - 1, 32)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    assert bodies(store) == numbered(low, 250)
    # Of the queue all files wholly below went, and of the index, whose last entries lie in the log, none but those.
    if again != "crash":
        assert queue.first_offset == low - low % 10
    folder = store.root / "consumequeue" / "T" / "0"
    assert min(int(path.name) for path in folder.iterdir()) == queue.first_offset * 20
    assert len(index_files) == 3
    assert index_files[0] in gone
    assert index_files[2] not in gone
    found = store.query("T", "k", 64, 0, FOREVER)
    assert len(found) == 64


def test_an_operator_can_have_files_deleted_at_once(stores, store, clock):
    put(store, *numbered(0, 200))
    stores.sync_all(store)
    for segment in store.log.segments:
        os.utime(segment.path, (clock() - 100 * HOUR,) * 2)
    assert store.clean() == []
    store.clean_now(rounds=1)
    assert store.clean() != []
    store._removal.wait()
    put(store, *numbered(200, 400))
    stores.sync_all(store)
    assert store.clean() == []


def test_the_last_file_is_never_deleted(stores, store):
    put(store, *numbered(0, 200))
    for _ in range(3):
        stores.drop_oldest_files(store)
    assert len(store.log.segments) == 1
    assert bodies(store)[-1] == b"m199"


def test_what_is_not_on_disk_yet_is_not_deleted(stores, store, disk):
    disk.hold_syncs()
    put(store, *numbered(0, 200))
    disk.used = 0.86
    assert store.clean() == []
    disk.release_syncs()
    store.flushed().result(5)
    # The log is; its entries are not, and the next round will see to that.
    assert store.clean() == []
    store.maintain()
    store._upkeep._syncing.result(5)
    assert store.clean() != []


def test_a_queue_keeps_its_offsets_when_all_its_messages_expire_before_a_crash(stores, store):
    put(store, *numbered(0, 7))
    put(store, *numbered(0, 200), topic="U")
    stores.drop_oldest_files(store)
    crashed = stores.crash(store)
    queue = crashed.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (7, 7)
    assert put(crashed, b"next")[0].queue_offset == 7


def test_room_is_made_though_entries_cannot_be_written(stores, store, disk):
    put(store, *numbered(0, 200))
    store.flushed().result(5)
    disk.fail_creates(where="consumequeue")
    disk.used = 0.86
    assert store.clean() == []
    store.maintain()
    assert store.refusal is not None
    assert store.clean() != []
    disk.heal()
    store.maintain()
    assert store.refusal is None


def test_a_file_that_cannot_be_deleted_is_tried_again_before_any_other_goes(stores, disk):
    store = stores.open(delete_batch=2)
    put(store, *numbered(0, 200))
    stores.sync_all(store)
    disk.used = 0.86
    disk.refuse_deletes(where="commitlog")
    first = store.clean()
    store._removal.wait()
    assert len(store._removal) == len([path for path in first if path.parent.name != "index"])
    assert store.clean() == []
    store._removal.wait()
    # A restart finds a log without a hole.
    crashed = stores.start(stores.crashed_copy(store), disk=FaultyDisk())
    assert bodies(crashed) == numbered(0, 200)
    disk.heal()
    assert store.clean() == []
    store._removal.wait()
    assert len(store._removal) == 0
    assert not any(path.exists() for path in first)
    assert store.clean() != []


def test_an_index_file_that_cannot_be_deleted_is_no_end(stores, store, disk):
    put(store, *numbered(0, 250), keys="k")
    disk.refuse_deletes(where="index")
    stores.drop_oldest_files(store)
    assert len(store.log.segments) < 5
    put(store, b"more", keys="k2")
    assert len(store.query("T", "k2", 1, 0, FOREVER)) == 1


def test_a_topic_that_is_deleted_and_made_anew_keeps_its_new_files(stores, disk):
    store = stores.open(delete_batch=2)
    put(store, *numbered(0, 200))
    store.queue("T", 0).write_out()
    stores.sync_all(store)
    disk.used = 0.86
    disk.refuse_deletes(where="commitlog")
    waiting = [path for path in store.clean() if path.parent.name == "0"]
    assert waiting
    store._removal.wait()
    disk.used = 0.1
    assert store.delete_topic("T") == 1
    assert not any(path.exists() for path in waiting)
    put(store, *numbered(0, 50))
    store.queue("T", 0).write_out()
    disk.heal()
    store.clean()
    store._removal.wait()
    assert bodies(store) == numbered(0, 50)


def test_files_are_deleted_in_order_with_a_pause_between(tmp_path):
    disk = FaultyDisk()
    paths = [tmp_path / f"{number}" for number in range(5)]
    for path in paths:
        path.touch()
    removal = Removal(disk)
    removal.run()
    removal.add(paths[:2], pause=60)
    removal.add(paths[2:4], pause=30)
    removal.run()
    removal.close()  # does not wait for the pauses
    assert [path.exists() for path in paths] == [False] * 4 + [True]
    assert len(removal) == 0


def test_files_of_the_log_and_of_queues_have_pauses_of_their_own(stores, disk):
    store = stores.open(delete_batch=4, delete_interval=0, delete_queue_interval=60_000)
    put(store, *numbered(0, 200))
    stores.sync_all(store)
    disk.used = 0.86
    going = store.clean()
    of_log = [path for path in going if path.parent.name == "commitlog"]
    beside = going[len(of_log) :]
    assert (len(of_log), len(beside) > 1) == (4, True)
    deadline = time.monotonic() + 10
    while beside[0].exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert not any(path.exists() for path in of_log)
    assert all(path.exists() for path in beside[1:])


# What is not archived yet


@pytest.mark.scenario("spark 34")
def test_expired_files_stay_until_they_are_archived_or_the_disk_is_too_full(tmp_path):
    files = [File(tmp_path, number).aged(NOON, 100) for number in range(4)]
    for number, file in enumerate(files):
        file.end = (number + 1) * 1000

    def decided(used, archived, **changes):
        config = small(tmp_path, delete_when="12", **changes)
        found = plan_cleaning(config, [used], used, files, NOON, archived=archived)
        return found.delete, found.unarchived

    assert decided(0.5, None) == (3, 0)
    assert decided(0.5, 0) == (0, 3)
    assert decided(0.5, 1999) == (1, 2)
    assert decided(0.5, 2000) == (2, 1)
    assert decided(0.5, 9999) == (3, 0)
    assert decided(0.85, 1000) == (1, 2)
    assert decided(-1.0, 1000) == (1, 2)
    # Then the disk counts more; and it is known how many go that no archive has.
    assert decided(0.86, 1000) == (3, 2)
    assert decided(0.86, 1000, clean_forcibly=False) == (3, 2)
    assert decided(0.86, 1000, delete_batch=2) == (2, 1)


def test_what_waits_for_its_archive_is_known_at_any_hour_and_an_operator_does_not_delete_it(tmp_path):
    files = [File(tmp_path, number).aged(NOON, 100) for number in range(4)]
    for number, file in enumerate(files):
        file.end = (number + 1) * 1000
    config = small(tmp_path)
    assert plan_cleaning(config, [0.5], 0.5, files, NOON, archived=1000)[::4] == (0, 2)
    assert plan_cleaning(config, [0.5], 0.5, files, NOON, True, archived=1000)[::4] == (1, 2)


def test_the_store_keeps_files_for_the_archive_if_it_is_told_to(stores, clock, caplog):
    store = stores.open(delete_when="0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23")
    put(store, *numbered(0, 200))
    stores.sync_all(store)
    for segment in store.log.segments:
        os.utime(segment.path, (clock() - 100 * HOUR,) * 2)
    store.reconfigure(dataclasses.replace(store.config, archive_before_delete=True))
    first, second = store.log.segments[:2]
    assert store.clean() == []
    assert "keeping" in caplog.text
    assert store.kept_for_archive == len(store.log.segments) - 1
    store.archived = second.start + 1
    assert store.clean()[0] == first.path
    store._removal.wait()
    assert store.log.start == second.start
    assert store.clean() == []
    stores.disk.used = 0.86
    assert store.clean() != []
    assert "not archived: disk 86 % full" in caplog.text
    assert store.kept_for_archive == 0
