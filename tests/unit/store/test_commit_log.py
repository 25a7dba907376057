"""The commit log and its files."""

from __future__ import annotations

import errno
import gc
import os
import resource
from pathlib import Path

import pytest

from pyromq.errors import OffsetOutOfRange, StoreError
from pyromq.protocol.record import HeadKind, MessageRecord, encode_record, read_head
from pyromq.store.commit_log import CommitLog
from pyromq.store.format import PhysicalOffset
from pyromq.store.segment import Segment
from pyromq.testing import FaultyDisk

SIZE = 1000


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def log(tmp_path, disk):
    log = CommitLog([tmp_path], SIZE, disk)
    log.load()
    yield log
    disk.heal()
    log.close()


def names(folder):
    return sorted(int(path.name) for path in folder.iterdir())


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


# Segments


def test_a_segment_is_written_in_place_and_read_through_its_map(tmp_path, disk):
    segment = Segment.create(tmp_path / "0", 0, SIZE, disk)
    segment.write(b"hello", 10)
    assert bytes(segment.view[8:17]) == b"\0\0hello\0\0"
    segment.zero(12)
    assert bytes(segment.view[8:17]) == b"\0\0he\0\0\0\0\0"
    segment.sync()
    assert disk.syncs == 1
    segment.close()
    assert (tmp_path / "0").read_bytes() == b"he".rjust(12, b"\0").ljust(SIZE, b"\0")


def test_a_slice_can_be_read_after_its_file_was_deleted(tmp_path, disk):
    segment = Segment.create(tmp_path / "0", 0, SIZE, disk)
    segment.write(b"hello", 0)
    view = segment.view[:5]
    segment.delete()
    assert not (tmp_path / "0").exists()
    assert bytes(view) == b"hello"


def test_a_segment_that_was_opened_keeps_no_descriptor_beside_its_map(tmp_path, disk):
    Segment.create(tmp_path / "0", 0, SIZE, disk).close()
    before = open_files()
    segment = Segment.open(tmp_path / "0", 0, SIZE, disk)
    assert open_files() == before + 1
    segment.sync()
    assert open_files() == before + 1
    segment.write(b"x", 3)
    assert open_files() == before + 2
    assert segment.view[3] == ord("x")
    segment.close()
    segment.close()
    assert open_files() == before


def test_a_segment_that_cannot_be_mapped_is_not_left_in_the_way(tmp_path, disk, monkeypatch):
    def no_memory(fd, size):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    before = open_files()
    monkeypatch.setattr(disk, "map", no_memory)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        Segment.create(tmp_path / "0", 0, SIZE, disk)
    assert names(tmp_path) == []
    assert open_files() == before
    (tmp_path / "0").write_bytes(bytes(SIZE))
    with pytest.raises(StoreError, match=r"cannot open .*/0: Cannot allocate memory"):
        Segment.open(tmp_path / "0", 0, SIZE, disk)
    assert open_files() == before


def test_a_segment_that_is_not_there_cannot_be_opened(tmp_path, disk):
    with pytest.raises(StoreError, match="No such file"):
        Segment.open(tmp_path / "0", 0, SIZE, disk)


# Writing


def test_the_first_file_is_made_with_the_first_record(tmp_path, log):
    assert names(tmp_path) == []
    assert (log.start, log.end, log.room(), log.segments) == (0, 0, 0, ())
    log.roll()
    assert names(tmp_path) == [0]
    assert (log.room(), log.file_size) == (SIZE, SIZE)
    assert log.write(b"abc") == 0
    assert log.write(b"de") == 3
    assert bytes(log.read(0, 5)) == b"abcde"
    assert log.end == 5


def test_a_write_needs_a_file(log):
    with pytest.raises(StoreError, match="no file"):
        log.write(b"abc")


def test_what_fits_leaves_room_for_a_blank_record(log):
    assert not log.fits(1)
    log.roll()
    assert log.fits(SIZE - 8)
    assert not log.fits(SIZE - 7)


def test_the_next_file_is_made_in_advance_when_half_of_this_one_is_full(tmp_path, log):
    log.roll()
    log.write(bytes(SIZE // 2))
    assert log._spare is None
    log.write(b"x")
    spare = log._spare.result()  # type: ignore[attr-defined]  # the write before this line made it
    assert names(tmp_path) == [0, SIZE]
    assert [segment.start for segment in log.segments] == [0]
    log.roll()
    assert log.segments[-1] is spare
    assert log.end == SIZE
    assert read_head(log.segments[0].view, SIZE // 2 + 1) == (HeadKind.BLANK, SIZE // 2 - 1)


def test_the_file_made_in_advance_is_removed_at_the_end(tmp_path, log, disk):
    log.roll()
    log.write(bytes(SIZE - 100))
    log._spare.result()
    log.close()
    assert names(tmp_path) == [0]


def test_a_spare_file_that_cannot_be_removed_does_no_harm(tmp_path, log, disk, caplog):
    log.roll()
    log.write(bytes(SIZE - 100))
    log._spare.result()
    disk.refuse_deletes()
    log.close()
    assert "cannot delete" in caplog.text
    assert names(tmp_path) == [0, SIZE]


def test_a_spare_file_that_could_not_be_made_is_made_when_it_is_needed(tmp_path, log, disk):
    log.roll()
    disk.fail_creates()
    log.write(bytes(SIZE - 100))
    assert log._spare.exception() is not None
    with pytest.raises(OSError, match="No space left"):
        log.roll()
    assert log.end == SIZE - 100
    disk.heal()
    log.roll()
    assert names(tmp_path) == [0, SIZE]


def test_files_go_round_several_folders(tmp_path, disk):
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    log = CommitLog(folders, SIZE, disk)
    log.load()
    for _ in range(5):
        log.roll()
    log.close()
    assert [names(folder) for folder in folders] == [[0, 3 * SIZE], [SIZE, 4 * SIZE], [2 * SIZE]]
    again = CommitLog(folders, SIZE, disk)
    again.load()
    assert [segment.start for segment in again.segments] == [0, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE]
    assert again.end == 5 * SIZE
    again.close()
    (tmp_path / "b" / f"{0:020d}").write_bytes(bytes(SIZE))
    third = CommitLog(folders, SIZE, disk)
    with pytest.raises(StoreError, match="same segment"):
        third.load()
    third.close()


# Ends


def test_truncating_zeroes_the_rest_and_deletes_what_lies_behind(tmp_path, log, disk):
    for letter in (b"a", b"b", b"c"):
        log.roll()
        log.write(letter * 400)
    log.truncate(PhysicalOffset(SIZE + 100))
    assert names(tmp_path) == [0, SIZE]
    assert (log.end, log.room()) == (SIZE + 100, SIZE - 100)
    assert bytes(log.segments[1].view) == b"b" * 100 + bytes(SIZE - 100)
    assert disk.syncs == 1
    log.write(b"d")
    assert bytes(log.read(SIZE + 99, 2)) == b"bd"


def test_a_log_that_ends_where_a_file_begins_keeps_that_file(tmp_path, log):
    for letter in (b"a", b"b", b"c"):
        log.roll()
        log.write(letter * 400)
    log.truncate(PhysicalOffset(SIZE))
    assert names(tmp_path) == [0, SIZE]
    assert bytes(log.segments[1].view) == bytes(SIZE)
    assert log.room() == SIZE


def test_the_oldest_file_can_be_dropped_but_not_the_last(log):
    log.roll()
    log.roll()
    dropped = log.drop_oldest()
    assert (dropped.start, log.start) == (0, SIZE)
    with pytest.raises(StoreError, match="last file"):
        log.drop_oldest()
    dropped.close()


# Reading


def test_what_is_not_in_the_log_is_out_of_range(log):
    log.roll()
    log.write(b"a" * 100)
    log.roll()
    log.write(b"b" * 100)
    assert bytes(log.read(SIZE + 99, 1)) == b"b"
    for offset, size in [(SIZE + 99, 2), (SIZE + 101, 0), (-1, 1), (-SIZE, 1), (0, -1), (990, 20), (5 * SIZE, 1)]:
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, size)
    log.drop_oldest().close()
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1)


def test_a_closed_log_holds_nothing(log):
    log.roll()
    log.write(b"abc")
    log.close()
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 3)


def test_the_log_knows_a_record_by_its_head(log):
    log.roll()
    log.write(encode_record(MessageRecord("T", b"a")))
    at, size = log.end, 93
    log.write(encode_record(MessageRecord("T", b"b", physical_offset=at)))
    assert log.holds(0, size)
    assert log.holds(at, size)
    for offset, length in [(0, size + 1), (1, size), (0, 0), (0, 20), (at, 2 * size), (-1, size), (2**70, size)]:
        assert not log.holds(offset, length)


def test_all_files_from_an_offset_on_can_be_synced(log, disk):
    for _ in range(4):
        log.roll()
    log.sync(SIZE + 5)
    assert disk.syncs == 3
    log.sync()
    assert disk.syncs == 7


def test_rolling_without_a_descriptor_left_fails_and_works_again(tmp_path, log):
    log.roll()
    log.write(b"a")
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is on the numbers of descriptors, not on how many there are: it must leave no free one.
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            log.roll()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert log.end == 1
    log.roll()
    assert names(tmp_path) == [0, SIZE]
