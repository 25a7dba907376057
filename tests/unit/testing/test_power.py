"""The disk that loses power loses what it may, and nothing else."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig
from pyromq.testing.power import PAGE, SECTOR, RecordingDisk, Synced, abandon

if TYPE_CHECKING:
    from pathlib import Path

TRIES = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def disk(root: Path) -> RecordingDisk:
    return RecordingDisk(root)


@pytest.fixture
def after(tmp_path: Path, disk: RecordingDisk):
    """What files may hold after a power failure: all that come up in many tries; None if there is no such file."""

    def after(*names: str, at: int | None = None) -> set[tuple[bytes | None, ...]]:
        found = set()
        for number in range(TRIES):
            into = tmp_path / f"after{number}-{len(disk.events)}-{at}"
            disk.lose_power(into, Random(number), at)
            paths = [into / name for name in names]
            found.add(tuple(path.read_bytes() if path.exists() else None for path in paths))
        return found

    return after


@pytest.fixture
def made(disk: RecordingDisk, root: Path):
    """A new file, whose name is safe."""
    opened = []

    def made(name: str, size: int) -> int:
        opened.append(disk.create(root / name, size))
        disk.sync_folder(root)
        return opened[-1]

    yield made
    for fd in opened:
        os.close(fd)


def test_what_was_synced_is_there(disk, made, after):
    fd = made("a", 4)
    disk.write(fd, b"new!", 0)
    disk.sync(fd)
    assert after("a") == {(b"new!",)}


def test_what_was_not_synced_is_there_or_not(disk, made, after):
    fd = made("a", 4)
    disk.write(fd, b"new!", 0)
    assert after("a") == {(b"new!",), (bytes(4),)}


def test_of_several_writes_to_a_page_any_of_the_first_may_be_the_last(disk, made, after):
    fd = made("a", 4)
    disk.write(fd, b"1", 0)
    disk.sync(fd)
    disk.write(fd, b"2", 1)
    disk.write(fd, b"3", 2)
    disk.zero(fd, 0, 2)
    assert after("a") == {(b"1\0\0\0",), (b"12\0\0",), (b"123\0",), (b"\0\0003\0",)}


def test_pages_are_written_in_any_order(disk, made, after):
    fd = made("a", 2 * PAGE)
    disk.write(fd, b"1", 0)
    disk.write(fd, b"2", PAGE)
    starts = {(data[0], data[PAGE]) for (data,) in after("a")}
    assert starts == {(0, 0), (0x31, 0), (0, 0x32), (0x31, 0x32)}


def test_a_page_may_be_torn_between_sectors_and_nowhere_else(disk, made, after):
    fd = made("a", 2 * SECTOR)
    disk.write(fd, b"x" * 2 * SECTOR, 0)
    old, new = bytes(SECTOR), b"x" * SECTOR
    assert after("a") == {(old + old,), (old + new,), (new + old,), (new + new,)}


def test_a_name_is_safe_once_its_folder_was_synced(disk, root, after):
    os.close(disk.create(root / "a", 4))
    assert after("a") == {(None,), (bytes(4),)}
    disk.sync_folder(root)
    assert after("a") == {(bytes(4),)}


def test_a_new_folder_may_vanish_with_all_that_was_synced_in_it(disk, root, after):
    (root / "folder").mkdir()
    fd = disk.create(root / "folder" / "a", 1)
    disk.sync(fd)
    os.close(fd)
    disk.sync_folder(root / "folder")
    assert after("folder/a") == {(None,), (b"\0",)}
    disk.sync_folder(root)
    assert after("folder/a") == {(b"\0",)}


def test_a_deleted_file_may_come_back_until_its_folder_was_synced(disk, root, made, after):
    disk.write(made("a", 1), b"1", 0)
    disk.delete(root / "a")
    assert after("a") == {(None,), (b"1",), (b"\0",)}
    disk.sync_folder(root)
    assert after("a") == {(None,)}


def test_of_a_file_that_was_made_again_the_old_one_may_be_left(disk, root, made, after):
    made("a", 1)
    disk.delete(root / "a")
    os.close(disk.create(root / "a", 2))
    assert after("a") == {(b"\0",), (None,), (b"\0\0",)}


def replaced(disk: RecordingDisk, path: Path, text: bytes) -> None:
    """Write a file anew, and put it in the place of the old one, as stores do with tables."""
    new = path.with_suffix(".tmp")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    disk.write(fd, text, 0)
    disk.sync(fd)
    os.close(fd)
    new.replace(path)
    disk.sync_folder(path.parent)


def test_a_file_that_replaced_another_is_safe_once_its_folder_was_synced(disk, root, after):
    for number in range(4):
        # Each gets the inode that one before it had.
        replaced(disk, root / "a", b"a%d" % number)
        replaced(disk, root / "b", b"b%d" % number)
        assert after("a", "b", "a.tmp", "b.tmp") == {(b"a%d" % number, b"b%d" % number, None, None)}


def test_what_is_there_at_the_beginning_is_safe(root, tmp_path):
    (root / "folder").mkdir()
    (root / "folder" / "a").write_bytes(b"old")
    RecordingDisk(root).lose_power(tmp_path / "after", Random(0))
    assert (tmp_path / "after" / "folder" / "a").read_bytes() == b"old"


def test_power_may_fail_at_any_earlier_moment(disk, made, after):
    fd = made("a", 1)
    disk.write(fd, b"1", 0)
    disk.sync(fd)
    disk.note("one is safe")
    moment = len(disk.events)
    disk.write(fd, b"2", 0)
    disk.sync(fd)
    disk.note("two is safe")
    assert after("a", at=moment) == {(b"1",)}
    assert disk.notes(moment) == ["one is safe"]
    assert disk.notes() == ["one is safe", "two is safe"]


def test_an_abandoned_store_keeps_its_files_and_can_be_opened_again(root, disk):
    config = StoreConfig(
        root=str(root), commit_log_file_size=1000, consume_queue_file_size=200, index=False, flush_interval=60_000
    )
    store = MessageStore(config, disk=disk)
    store.open()
    store.put([(store.queue("orders", 0), [MessageRecord("orders", bytes(500))])])
    events = len(disk.events)
    abandon(store)
    assert not any(isinstance(event, Synced) for event in disk.events[events:])
    # The queue's entry was only in memory. The next file of the log was made in advance.
    assert sorted(path.name for path in (root / "commitlog").iterdir()) == [f"{0:020d}", f"{1000:020d}"]
    assert not list((root / "consumequeue").rglob("0*"))
    assert (root / "abort").exists()
    with MessageStore(config) as again:
        assert again.queue("orders", 0).max_offset == 1
