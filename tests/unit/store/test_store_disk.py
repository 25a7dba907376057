"""The calls by which the store changes a disk, on the real one; and the fake that lets them fail."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from pyromq.store import disk as disk_module
from pyromq.store.disk import Disk
from pyromq.testing import Clock, FaultyDisk


@pytest.fixture
def opened(tmp_path):
    """A file of 100 letters, open."""
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100)
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def content(fd):
    return os.pread(fd, 1 << 20, 0)


@pytest.mark.parametrize("reserve", [False, True])
def test_a_new_file_has_its_full_size_and_is_all_zeros(tmp_path, reserve):
    fd = Disk().create(tmp_path / "new", 10_000, reserve=reserve)
    try:
        assert (tmp_path / "new").read_bytes() == bytes(10_000)
        assert (os.fstat(fd).st_blocks > 0) == reserve
        Disk().write(fd, b"x", 9_999)
        assert (tmp_path / "new").stat().st_size == 10_000
    finally:
        os.close(fd)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_file_is_not_made_where_one_is(tmp_path):
    (tmp_path / "there").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        Disk().create(tmp_path / "there", 100)
    assert (tmp_path / "there").read_bytes() == b"mine"


@pytest.mark.parametrize("missing", ["O_TMPFILE", "link"])
def test_a_file_is_made_where_the_system_knows_no_files_without_a_name(tmp_path, monkeypatch, missing):
    if missing == "link":

        def no_link(*_, **__):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", no_link)
    else:
        monkeypatch.delattr(os, "O_TMPFILE")
    fd = Disk().create(tmp_path / "new", 5000)
    os.close(fd)
    assert (tmp_path / "new").read_bytes() == bytes(5000)


def test_a_file_that_there_is_no_space_for_leaves_no_trace(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk_module, "_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        Disk().create(tmp_path / "new", 5000)
    monkeypatch.delattr(os, "O_TMPFILE")
    with pytest.raises(OSError, match="No space left"):
        Disk().create(tmp_path / "new", 5000)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_space_that_cannot_be_reserved_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_module, "_libc_fallocate", None)
    fd = Disk().create(tmp_path / "new", 5000)
    try:
        assert os.fstat(fd).st_size == 5000
        Disk().reserve(fd, 0, 5000)
    finally:
        os.close(fd)


def test_zeroing_keeps_what_lies_before_and_behind(opened):
    Disk().zero(opened, 10, 90)
    assert content(opened) == b"a" * 10 + bytes(80) + b"a" * 10
    Disk().zero(opened, 95, 95)
    Disk().zero(opened, 95, 90)
    assert content(opened)[90:] == b"a" * 10


def test_zeroing_works_without_holes(opened, monkeypatch):
    monkeypatch.setattr(disk_module, "_libc_fallocate", None)
    Disk().zero(opened, 10, 90)
    assert content(opened) == b"a" * 10 + bytes(80) + b"a" * 10


def test_space_that_was_given_back_can_be_taken_again(tmp_path):
    disk = Disk()
    fd = disk.create(tmp_path / "new", 1 << 16)
    try:
        before = os.fstat(fd).st_blocks
        disk.zero(fd, 0, 1 << 16)
        assert os.fstat(fd).st_blocks < before
        disk.reserve(fd, 0, 1 << 16)
        assert os.fstat(fd).st_blocks == before
    finally:
        os.close(fd)


def test_a_write_that_the_system_takes_in_parts_is_done_as_a_whole(opened, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:7], at))
    Disk().write(opened, bytes(range(50)), 20)
    assert content(opened)[20:70] == bytes(range(50))


def test_folders_are_made_with_those_above_them_and_synced(tmp_path):
    disk = FaultyDisk()
    disk.make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert disk.folder_syncs == 3
    disk.make_folder(tmp_path / "a" / "b")
    assert disk.folder_syncs == 3


def test_a_folder_cannot_be_made_where_a_file_is(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        Disk().make_folder(tmp_path / "a" / "b")


def test_syncing_and_deleting_are_the_systems(tmp_path, opened):
    disk = Disk()
    disk.sync(opened)
    disk.sync_folder(tmp_path)
    disk.delete(tmp_path / "file")
    disk.delete(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == []
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(tmp_path / "nowhere")


def test_the_use_of_a_disk_is_rounded_up_to_whole_percents(tmp_path, monkeypatch):
    used = Disk().used_ratio(tmp_path)
    assert 0 < used <= 1
    assert used == round(used, 2)

    class Stat:
        f_blocks, f_bfree, f_bavail = 1000, 300, 100  # 700 used, 200 kept for root

    monkeypatch.setattr(os, "statvfs", lambda _: Stat)
    assert Disk().used_ratio(tmp_path) == 0.88
    Stat.f_blocks = Stat.f_bfree = Stat.f_bavail = 0
    assert Disk().used_ratio(tmp_path) == -1


def test_the_use_of_a_disk_that_is_not_there_is_unknown(tmp_path):
    assert Disk().used_ratio(tmp_path / "nowhere") == -1


# The fake


def test_a_disk_that_fills_up_takes_what_there_is_space_for(opened):
    disk = FaultyDisk()
    disk.fill(5)
    disk.write(opened, b"123", 0)
    with pytest.raises(OSError, match="No space left"):
        disk.write(opened, b"4567", 3)
    assert content(opened)[:7] == b"12345aa"
    with pytest.raises(OSError, match="No space left"):
        disk.write(opened, b"x", 0)
    disk.free()
    disk.write(opened, b"x", 0)
    assert disk.writes == 4


def test_faults_may_concern_some_paths_only(tmp_path):
    disk = FaultyDisk()
    disk.fail_creates(where="index")
    disk.refuse_deletes(where="index")
    os.close(disk.create(tmp_path / "log", 10))
    with pytest.raises(OSError, match="No space left"):
        disk.create(tmp_path / "index", 10)
    disk.delete(tmp_path / "log")
    with pytest.raises(PermissionError):
        disk.delete(tmp_path / "index")
    disk.heal()
    os.close(disk.create(tmp_path / "index", 10))


def test_a_sync_can_be_held_and_released(opened):
    disk = FaultyDisk()
    disk.hold_syncs()
    thread = threading.Thread(target=disk.sync, args=(opened,))
    thread.start()
    assert disk.is_held.wait(5)
    disk.release_syncs()
    thread.join(5)
    assert not thread.is_alive()
    assert disk.syncs == 1


def test_a_clock_goes_only_when_it_is_turned():
    clock = Clock()
    assert int(clock() * 1000) == clock.millis == 1_700_000_000_000
    clock.advance(0.123)
    assert int(clock() * 1000) == 1_700_000_000_123
    clock.advance(-1)
    assert clock.millis == 1_699_999_999_123
    clock.set_millis(5)
    assert int(clock() * 1000) == 5


def test_the_whole_file_system_is_synced_where_the_system_says_whether_that_worked(tmp_path, monkeypatch):
    assert Disk().sync_file_system(tmp_path)
    monkeypatch.setattr(disk_module, "_libc_syncfs", None)
    assert not Disk().sync_file_system(tmp_path)


def test_a_file_system_that_cannot_be_synced_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_module, "_libc_syncfs", lambda fd: -1)
    with pytest.raises(OSError):  # noqa: PT011 - whatever the last error was
        Disk().sync_file_system(tmp_path)
