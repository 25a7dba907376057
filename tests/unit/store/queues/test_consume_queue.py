"""A consume queue on its own: adding, writing out, reading, ends, clean-up."""

from __future__ import annotations

import errno
import os

import pytest

from pyromq.errors import StoreError
from pyromq.store.format import ENTRY, PRE_BLANK, QueueOffset
from pyromq.store.open_files import OpenFiles
from pyromq.store.queues.consume_queue import ConsumeQueue, Gap
from pyromq.store.queues.consume_queues import ConsumeQueues
from pyromq.testing import FaultyDisk

PER_FILE = 10
SIZE = 100  # of every record in these tests
FOREVER = 2**62


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def files(disk):
    files = OpenFiles(disk)
    yield files
    files.close()


@pytest.fixture
def make(tmp_path, files):
    def make(*, load=False, crashed=False):
        queue = ConsumeQueue("T", 0, tmp_path / "consumequeue" / "T" / "0", PER_FILE * ENTRY.size, files)
        if load:
            queue.load(crashed=crashed)
        if crashed:
            queue.cut_back(FOREVER)
        return queue

    return make


@pytest.fixture
def queue(make):
    return make()


def add(queue, start, stop):
    """Entries of records that lie 1000 bytes apart, of which entry n has the tags code n."""
    for number in range(start, stop):
        queue.put(QueueOffset(number), number * 1000, SIZE, number)


def numbers(data):
    return [tags if size == SIZE else None for _, size, tags in ENTRY.iter_unpack(data)]


def path_of(tmp_path, number):
    return tmp_path / "consumequeue" / "T" / "0" / f"{number * PER_FILE * ENTRY.size:020d}"


# Adding and reading


def test_an_entry_can_be_read_as_soon_as_it_was_added(queue):
    queue.add(0, 100, 7)
    queue.add(100, 50, -8)
    assert queue.entry(0) == (0, 100, 7)
    assert queue.entry(1) == (100, 50, -8)
    assert queue.entry(2) is None
    assert queue.entry(-1) is None
    assert (queue.max_offset, queue.max_physical) == (2, 150)


def test_entries_added_since_a_mark_can_be_taken_back(queue):
    queue.add(0, 100, 7)
    mark = queue.mark()
    queue.add(100, 50, 8)
    queue.add(150, 50, 9)
    queue.reset(mark)
    assert (queue.max_offset, queue.max_physical, queue.entry(1)) == (1, 100, None)
    queue.add(100, 60, 10)
    assert queue.entry(1) == (100, 60, 10)


def test_entries_are_read_up_to_the_end_of_their_file(queue):
    add(queue, 0, 25)
    for written in (False, True):
        if written:
            queue.write_out()
        assert numbers(queue.entries(0, 100)) == list(range(10))
        assert numbers(queue.entries(8, 100)) == [8, 9]
        assert numbers(queue.entries(20, 100)) == [20, 21, 22, 23, 24]
        assert numbers(queue.entries(3, 2)) == [3, 4]
        assert queue.entries(25, 10) == b""
        assert queue.entries(1000, 10) == b""
        assert queue.entries(-5, 10) == b""


def test_entries_partly_in_the_file_and_partly_in_memory_are_read_as_one(tmp_path, files):
    queue = ConsumeQueue("T", 0, tmp_path / "q", 200 * ENTRY.size, files)
    add(queue, 0, 100)
    queue.write_out()  # 64 stay in memory
    add(queue, 100, 110)
    assert numbers(queue.entries(0, 200)) == list(range(110))
    assert numbers(queue.entries(30, 10)) == list(range(30, 40))
    assert numbers(queue.entries(34, 8)) == list(range(34, 42))


def test_the_next_file_begins_behind_this_one(queue):
    assert [queue.next_file_offset(offset) for offset in (0, 9, 10, 25)] == [10, 10, 20, 30]


def test_a_file_that_cannot_be_read_is_a_store_error(tmp_path, queue, files):
    add(queue, 0, 100)
    queue.write_out()
    files.close()
    os.truncate(path_of(tmp_path, 0), 50)
    with pytest.raises(StoreError, match="ends before byte"):
        queue.entries(0, 5)
    assert numbers(queue.entries(0, 2)) == [0, 1]
    path_of(tmp_path, 0).unlink()
    files.close()
    with pytest.raises(StoreError, match="No such file"):
        queue.entries(0, 5)


def test_a_file_that_is_missing_in_the_middle_has_no_entries(tmp_path, queue, make, files):
    add(queue, 0, 40)
    queue.write_out()
    path_of(tmp_path, 1).unlink()
    again = make(load=True)
    assert again.max_offset == 40
    assert again.entries(12, 5) == b""
    assert again.first_real(12) == 20
    assert again.search(15_000) == 20


# What is read back from the log


def test_an_entry_that_is_there_is_not_made_twice(queue):
    add(queue, 0, 5)
    assert not queue.put(QueueOffset(4), 4000, SIZE, 4)
    assert not queue.put(QueueOffset(2), 9000, SIZE, 2)
    assert queue.max_offset == 5
    assert queue.put(QueueOffset(5), 5000, SIZE, 5)


def test_a_hole_is_filled_so_that_messages_keep_their_offsets(queue):
    add(queue, 0, 3)
    add(queue, 6, 8)
    assert queue.max_offset == 8
    assert numbers(queue.entries(0, 10)) == [0, 1, 2, None, None, None, 6, 7]
    assert queue.entries(3, 1) == PRE_BLANK
    assert queue.gap == Gap(QueueOffset(3), 2100)


def test_a_queue_that_begins_late_is_filled_from_the_beginning_of_its_file(queue, tmp_path):
    add(queue, 13, 15)
    assert (queue.min_offset, queue.max_offset, queue.first_offset) == (13, 15, 10)
    assert numbers(queue.entries(10, 10)) == [None, None, None, 13, 14]
    assert queue.gap == Gap(QueueOffset(0), 0)
    queue.write_out()
    assert not path_of(tmp_path, 0).exists()
    assert path_of(tmp_path, 1).read_bytes()[:60] == PRE_BLANK * 3


def test_a_gap_is_closed_by_the_message_that_was_missing(queue):
    add(queue, 0, 3)
    queue.gap = Gap(QueueOffset(3), 2100)
    add(queue, 3, 4)
    assert queue.gap is None


@pytest.mark.parametrize("offset", [-1, 2**62, 300_100])
def test_a_message_with_an_impossible_offset_is_passed_over(queue, offset, caplog):
    add(queue, 0, 3)
    assert not queue.put(QueueOffset(offset), 3000, SIZE, 3)
    assert "skipped" in caplog.text
    assert queue.max_offset == 3
    add(queue, 3, 4)
    assert numbers(queue.entries(0, 10)) == [0, 1, 2, 3]


def test_a_queue_that_begins_anew_at_0_drops_what_it_was(queue):
    add(queue, 0, 15)
    queue.write_out()
    assert queue.put(QueueOffset(0), 50_000, SIZE, 50)
    assert queue.put(QueueOffset(1), 51_000, SIZE, 51)
    assert numbers(queue.entries(0, 10)) == [50, 51]
    assert (queue.min_offset, queue.max_offset) == (0, 2)


def test_a_single_message_that_claims_the_offset_0_is_taken_for_damaged(queue):
    add(queue, 0, 5)
    queue.put(QueueOffset(0), 5000, SIZE, 5)
    add(queue, 6, 8)
    assert numbers(queue.entries(0, 10)) == list(range(8))


@pytest.mark.parametrize(("is_new", "expected"), [(False, [0, 1, 2, 9]), (True, [9])])
def test_what_the_last_message_of_the_log_claims_is_settled_by_what_else_is_known(queue, is_new, expected):
    add(queue, 0, 3)
    queue.put(QueueOffset(0), 9000, SIZE, 9)
    queue.settle(is_new=is_new)
    queue.settle(is_new=is_new)
    assert numbers(queue.entries(0, 10)) == expected


def test_many_fillers_do_not_stay_in_memory(tmp_path, files):
    queue = ConsumeQueue("T", 0, tmp_path / "q", 100_000 * ENTRY.size, files)
    queue.put(QueueOffset(90_000), 0, SIZE, 1)
    assert len(queue.tail) < 100 * ENTRY.size
    assert queue.entry(89_999) == ENTRY.unpack(PRE_BLANK)
    assert queue.entry(90_000) == (0, SIZE, 1)
    assert queue.first_real(queue.first_offset) == 90_000


# Writing


def test_entries_go_to_files_of_fixed_size(queue, tmp_path):
    add(queue, 0, 25)
    assert queue.dirty == 25 * ENTRY.size
    assert not path_of(tmp_path, 0).exists()
    queue.write_out()
    assert queue.dirty == 0
    assert [path_of(tmp_path, number).stat().st_size for number in range(3)] == [200, 200, 200]
    assert numbers(path_of(tmp_path, 1).read_bytes()) == list(range(10, 20))
    assert path_of(tmp_path, 2).read_bytes()[100:] == bytes(100)


def test_files_and_new_folders_are_to_be_synced_once(queue, tmp_path):
    assert queue.take_unsynced() == []
    add(queue, 0, 15)
    queue.write_out()
    folder = tmp_path / "consumequeue" / "T" / "0"
    folders = [folder, folder.parent, folder.parent.parent, tmp_path]
    assert queue.take_unsynced() == [path_of(tmp_path, 0), path_of(tmp_path, 1), *folders]
    assert queue.take_unsynced() == []
    add(queue, 15, 17)
    queue.write_out()
    assert queue.take_unsynced() == [path_of(tmp_path, 1)]


def test_what_a_full_disk_does_not_take_can_still_be_read_and_is_written_later(queue, disk, make):
    add(queue, 0, 25)
    disk.fill(250)
    with pytest.raises(OSError, match="No space left"):
        queue.write_out()
    assert [queue.entry(offset)[2] for offset in range(25)] == list(range(25))
    disk.free()
    queue.write_out()
    assert queue.dirty == 0
    again = make(load=True)
    assert [again.entry(offset)[2] for offset in range(25)] == list(range(25))


# Loading


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25, 30, 45])
def test_a_queue_ends_where_its_entries_end(queue, make, count, crashed):
    add(queue, 0, count)
    queue.write_out()
    again = make(load=True, crashed=crashed)
    assert (again.min_offset, again.max_offset) == (0, count)
    assert again.max_physical == (0 if count == 0 else (count - 1) * 1000 + SIZE)
    add(again, count, count + 5)
    assert [again.entry(offset)[2] for offset in range(count + 5)] == list(range(count + 5))


@pytest.mark.parametrize("crashed", [False, True])
def test_files_without_an_entry_are_dropped(queue, make, tmp_path, crashed):
    add(queue, 0, 15)
    queue.write_out()
    for number in (2, 3):
        path_of(tmp_path, number).write_bytes(bytes(200))
    again = make(load=True, crashed=crashed)
    assert again.max_offset == 15
    assert not path_of(tmp_path, 2).exists()


@pytest.mark.parametrize("crashed", [False, True])
def test_a_queue_of_nothing_but_empty_files_is_empty(tmp_path, make, crashed):
    path_of(tmp_path, 0).parent.mkdir(parents=True)
    for number in (3, 4):
        path_of(tmp_path, number).write_bytes(bytes(200))
    queue = make(load=True, crashed=crashed)
    assert queue.min_offset == queue.max_offset
    assert queue.max_physical == 0


def test_after_a_crash_only_entries_of_records_that_were_surely_on_disk_are_kept(queue, make, tmp_path):
    add(queue, 3, 28)
    queue.write_out()
    again = make(load=True)
    again.cut_back(15_000)
    assert (again.max_offset, again.max_physical) == (15, 14_100)
    assert path_of(tmp_path, 1).read_bytes()[100:] == bytes(100)
    again.cut_back(3000)
    assert again.max_offset == 3  # what stands for older messages keeps the offsets what they are
    again.cut_back(0)
    assert again.max_offset == 3


def test_a_file_that_is_missing_between_others_is_mended(queue, make, tmp_path):
    add(queue, 0, 45)
    queue.write_out()
    path_of(tmp_path, 1).unlink()
    expired = make(load=True)
    expired.mend(25_000)  # the log begins behind the hole: what is in front of it was to be deleted
    assert (expired.first_offset, expired.max_offset, expired.gap) == (20, 45, None)
    assert not path_of(tmp_path, 0).exists()
    path_of(tmp_path, 3).unlink()
    cut = make(load=True)
    cut.mend(0)  # the log still has what is missing
    assert (cut.first_offset, cut.max_offset) == (20, 30)
    assert cut.gap == Gap(QueueOffset(30), 29_100)


# Searching


def test_the_first_record_from_an_offset_on_is_found(queue):
    add(queue, 0, 25)
    for written in (False, True):
        if written:
            queue.write_out()
        assert [queue.search(offset) for offset in (-5, 0, 1, 9000, 9001, 24_000, 24_001)] == [0, 0, 1, 9, 10, 24, 25]


def test_fillers_count_for_nothing_in_a_search(queue):
    add(queue, 4, 7)
    add(queue, 12, 14)
    add(queue, 19, 20)
    found = {offset: queue.search(offset * 1000) for offset in range(21)}
    assert found == {
        offset: next((real for real in (4, 5, 6, 12, 13, 19) if real >= offset), 20) for offset in range(21)
    }
    queue.correct_min(0)
    assert queue.min_offset == 4
    assert queue.last_real(12) == 6
    assert queue.last_real(12, 7) is None
    assert queue.last_real(4) is None


def test_many_fillers_are_passed_over_quickly(tmp_path, files, monkeypatch):
    queue = ConsumeQueue("T", 0, tmp_path / "q", 50_000 * ENTRY.size, files)
    queue.put(QueueOffset(40_000), 0, SIZE, 1)
    queue.write_out()
    reads = []
    real = os.pread

    def counted(*args):
        reads.append(args)
        return real(*args)

    monkeypatch.setattr(os, "pread", counted)
    assert queue.search(0) == 40_000
    assert len(reads) < 100


# Ends


def test_entries_of_records_behind_the_end_of_the_log_are_forgotten(queue, tmp_path, make):
    add(queue, 0, 25)
    queue.truncate(13_500)
    assert (queue.max_offset, queue.max_physical) == (14, 13_000 + SIZE)
    assert path_of(tmp_path, 1).read_bytes()[80:] == bytes(120)
    assert not path_of(tmp_path, 2).exists()
    add(queue, 14, 16)
    queue.write_out()
    assert numbers(make(load=True).entries(10, 10)) == list(range(10, 16))


def test_fillers_at_the_end_go_and_those_at_the_beginning_stay(queue):
    add(queue, 13, 15)
    add(queue, 18, 19)
    queue.truncate(16_000)
    assert queue.max_offset == 15
    queue.truncate(5)
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (13, 13, 0)
    add(queue, 13, 14)
    assert numbers(queue.entries(10, 10)) == [None, None, None, 13]


def test_a_truncation_behind_the_end_changes_nothing(queue):
    add(queue, 0, 5)
    queue.truncate(4001)
    assert queue.max_offset == 5
    assert queue.dirty == 5 * ENTRY.size


def test_entries_that_the_log_does_not_know_are_dropped_from_the_end(queue):
    add(queue, 0, 12)
    queue.drop_unknown(lambda physical, size: physical <= 8000, 0)
    assert queue.max_offset == 9
    assert queue.gap == Gap(QueueOffset(9), 8100)
    queue.gap = None
    queue.drop_unknown(lambda physical, size: False, 7500)
    assert queue.max_offset == 8
    queue.drop_unknown(lambda physical, size: True, 0)
    assert queue.max_offset == 8


def test_the_offsets_of_messages_that_are_gone_can_be_kept(queue):
    assert queue.fill_up_to(QueueOffset(13))
    assert (queue.min_offset, queue.max_offset) == (13, 13)
    add(queue, 13, 14)
    assert queue.fill_up_to(QueueOffset(17))
    assert queue.max_offset == 17
    assert not queue.fill_up_to(QueueOffset(10**6))


# Clean-up


def test_files_whose_records_are_all_gone_expire(queue, tmp_path):
    add(queue, 0, 35)
    queue.write_out()
    assert queue.expire(9_000) == []
    assert queue.min_offset == 9
    assert queue.expire(25_000) == [path_of(tmp_path, 0), path_of(tmp_path, 1)]
    assert (queue.first_offset, queue.min_offset) == (20, 25)
    assert path_of(tmp_path, 1).exists()  # until whoever asked deletes it
    assert queue.expire(99_000) == [path_of(tmp_path, 2)]
    assert (queue.min_offset, queue.max_offset) == (35, 35)
    assert path_of(tmp_path, 3).exists()


def test_a_filler_at_the_end_of_a_file_does_not_make_it_expire(queue, tmp_path):
    add(queue, 0, 8)
    add(queue, 12, 15)
    queue.write_out()
    assert queue.expire(5_000) == []
    assert queue.expire(7_001) == [path_of(tmp_path, 0)]


def test_a_deleted_queue_leaves_nothing_behind_but_the_folder_of_its_topic(queue, tmp_path):
    add(queue, 0, 35)
    queue.write_out()
    queue.delete()
    assert list((tmp_path / "consumequeue" / "T").iterdir()) == []
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (0, 0, 0)
    assert queue.take_unsynced()[:1] != [path_of(tmp_path, 0)]
    add(queue, 0, 3)
    assert numbers(queue.entries(0, 10)) == [0, 1, 2]


# Descriptors


def test_only_so_many_files_are_open_at_a_time(tmp_path, disk):
    files = OpenFiles(disk, limit=3)
    for number in range(10):
        files.create(tmp_path / f"{number}", 100)
    assert len(files) == 3
    assert os.pread(files.get(tmp_path / "0"), 10, 0) == bytes(10)
    assert len(files) == 3
    kept = files.get(tmp_path / "9")
    assert files.get(tmp_path / "9") == kept
    files.forget(tmp_path / "9")
    files.forget(tmp_path / "9")
    assert len(files) == 2
    files.close()
    assert len(files) == 0


def test_descriptors_are_given_up_when_there_are_no_more(tmp_path, disk, monkeypatch):
    files = OpenFiles(disk)
    for number in range(8):
        files.create(tmp_path / f"{number}", 100)
    (tmp_path / "more").touch()
    real = os.open
    limit = len(files)

    def scarce(path, *args, **kwargs):
        if len(files) >= limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", scarce)
    files.get(tmp_path / "more")
    assert len(files) == 5
    limit = 5
    files.create(tmp_path / "8", 100)
    assert len(files) == 3
    limit = 0
    with pytest.raises(OSError, match="Too many open files"):
        files.get(tmp_path / "0")
    files.close()


# All queues


def test_queues_are_found_by_topic_and_number(tmp_path, disk):
    queues = ConsumeQueues(tmp_path, PER_FILE * ENTRY.size, disk)
    queues.load()
    assert len(queues) == 0
    assert queues.max_physical == 0
    assert queues.find("T", 0) is None
    queue = queues.get("T", 0)
    assert queues.get("T", 0) is queue is queues.find("T", 0)
    other = queues.get("T", 1)
    add(queue, 0, 3)
    add(other, 0, 5)
    assert queues.of_topic("T") == [queue, other]
    assert queues.of_topic("U") == []
    assert queues.max_physical == 4100
    assert list(queues) == [queue, other]
    assert repr(queue) == "<ConsumeQueue T/0 0..3>"
    queues.close()


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("", 0), (".", 0), ("..", 0), ("a/b", 0), ("a\0", 0), ("T", -1), ("x" * 256, 0), ("\ud800", 0)],
)
def test_what_can_be_no_folder_can_be_no_queue(tmp_path, disk, topic, queue_id):
    with pytest.raises(StoreError, match="folder"):
        ConsumeQueues(tmp_path, 200, disk).get(topic, queue_id)


def test_a_deleted_topic_is_told_by_its_empty_folder(tmp_path, disk):
    queues = ConsumeQueues(tmp_path, 200, disk)
    for topic in ("T", "U"):
        add(queues.get(topic, 0), 0, 3)
        add(queues.get(topic, 1), 0, 3)
        for queue in queues.of_topic(topic):
            queue.write_out()
    assert queues.delete_topic("T") == 2
    assert queues.delete_topic("T") == 0
    assert queues.of_topic("T") == []
    queues.close()
    again = ConsumeQueues(tmp_path, 200, disk)
    again.load()
    assert again.deleted_topics == {"T"}
    assert len(again) == 2
    again.delete_all()
    assert [queue.max_offset for queue in again] == [0, 0]
    again.close()
