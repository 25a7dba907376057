"""The checkpoint: what is kept of other versions, what a short file means, and from where recovery begins."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from pyromq.errors import StoreError
from pyromq.store.disk import Disk
from pyromq.store.format import CHECKPOINT_SIZE, CHECKPOINT_TIMES
from pyromq.store.metadata.checkpoint import Checkpoint

T0 = 1_700_000_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def loaded(path) -> Checkpoint:
    checkpoint = Checkpoint(path, Disk())
    checkpoint.load()
    return checkpoint


def times(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return checkpoint.physic, checkpoint.logics, checkpoint.index


def test_what_is_saved_is_loaded(path):
    checkpoint = Checkpoint(path, Disk())
    checkpoint.physic, checkpoint.logics, checkpoint.index = T0, T0 + 1, T0 + 2
    checkpoint.save()
    assert path.stat().st_size == CHECKPOINT_SIZE
    assert times(loaded(path)) == (T0, T0 + 1, T0 + 2)


def test_without_a_file_everything_is_to_be_recovered(path):
    checkpoint = loaded(path)
    assert times(checkpoint) == (0, 0, 0)
    assert not path.exists()
    assert checkpoint.min_timestamp == 0


@pytest.mark.parametrize(
    ("size", "expected"), [(0, (0, 0, 0)), (8, (T0, 0, 0)), (20, (T0, T0, T0 & ~0xFFFFFFFF)), (24, (T0, T0, T0))]
)
def test_what_a_short_file_lacks_counts_as_zero(path, caplog, size, expected):
    path.write_bytes(CHECKPOINT_TIMES.pack(T0, T0, T0)[:size])
    with caplog.at_level(logging.WARNING):
        checkpoint = loaded(path)
    assert times(checkpoint) == expected
    assert str(path) in caplog.text
    checkpoint.save()
    assert path.stat().st_size == CHECKPOINT_SIZE


def test_a_negative_time_counts_as_zero(path):
    path.write_bytes(CHECKPOINT_TIMES.pack(-1, -(2**63), T0).ljust(CHECKPOINT_SIZE, b"\0"))
    assert times(loaded(path)) == (0, 0, T0)


def test_what_newer_versions_keep_behind_the_times_stays(path):
    rest = os.urandom(CHECKPOINT_SIZE - CHECKPOINT_TIMES.size)
    path.write_bytes(CHECKPOINT_TIMES.pack(T0, T0, 0) + rest)
    checkpoint = loaded(path)
    checkpoint.index = T0 + 5
    checkpoint.save()
    assert path.read_bytes() == CHECKPOINT_TIMES.pack(T0, T0, T0 + 5) + rest


@pytest.mark.parametrize(
    ("physic", "logics", "index", "log", "with_index"),
    [
        (T0, T0 + 9, T0, T0 - 3000, T0 - 3000),
        (T0 + 9, T0, T0 - 5000, T0 - 3000, T0 - 5000),
        (T0, T0, 0, T0 - 3000, 0),
        (2999, 5000, 5000, 0, 0),
        (T0, 0, T0, 0, 0),
    ],
)
def test_recovery_begins_three_seconds_before_the_older_of_log_and_queues(path, physic, logics, index, log, with_index):
    checkpoint = Checkpoint(path, Disk())
    checkpoint.physic, checkpoint.logics, checkpoint.index = physic, logics, index
    assert checkpoint.min_timestamp == log
    assert checkpoint.min_timestamp_index == with_index


def test_saving_waits_for_the_disk_and_says_when_it_fails(path, monkeypatch):
    disk = Disk()
    checkpoint = Checkpoint(path, disk)
    calls = []
    monkeypatch.setattr(disk, "sync", lambda fd: calls.append(os.fstat(fd).st_size))
    monkeypatch.setattr(disk, "sync_folder", calls.append)
    checkpoint.save()
    checkpoint.save()
    assert calls == [CHECKPOINT_SIZE, path.parent, CHECKPOINT_SIZE]

    def fail(fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "sync", fail)
    with pytest.raises(OSError, match="Input/output"):
        checkpoint.save()


def test_a_file_that_cannot_be_read_is_an_error_with_its_path(path):
    path.mkdir()
    with pytest.raises(StoreError, match=f"cannot read {path}"):
        loaded(path)
