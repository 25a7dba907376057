"""The log of a slave: pieces of its master's log, and the messages that are whole in it."""

from __future__ import annotations

import pytest
from tests.unit.store.kit import FOREVER, bodies, numbered, put, records

COUNT = 5


@pytest.fixture
def log(stores, tmp_path):
    """What a master sends: a few messages of equal size."""
    master = stores.open(root=tmp_path / "master")
    put(master, *numbered(0, COUNT), keys="k")
    return bytes(master.log.read(0, int(master.log.end)))


@pytest.fixture
def slave(stores, tmp_path, log):
    return stores.open(root=tmp_path / "slave")


def test_pieces_that_come_together_are_one_stretch_of_the_log(slave, log):
    assert slave.append_copy(0, log[:10], log[10:11], log[11:]) == [slave.queue("T", 0)]
    assert bytes(slave.log.read(0, len(log))) == log
    assert bodies(slave) == numbered(0, COUNT)


def test_the_log_can_be_acknowledged_before_the_queues_are_filled(slave, log):
    assert slave.keep_copy(0, log[:7]) == 7
    assert slave.keep_copy(7, log[7:-1]) == len(log) - 1
    assert (int(slave.log.end), bodies(slave)) == (len(log) - 1, [])
    assert slave.dispatch_copy() == [slave.queue("T", 0)]
    assert bodies(slave) == numbered(0, COUNT - 1)
    assert slave.dispatch_copy() == []
    slave.append_copy(len(log) - 1, log[-1:])
    assert bodies(slave) == numbered(0, COUNT)


def test_keys_that_are_still_collected_are_found(slave, log):
    slave.append_copy(0, log)
    found = records(slave.query("T", "k", 10, 0, FOREVER))
    assert sorted(each.body for each in found) == numbered(0, COUNT)


def test_what_came_before_a_piece_that_the_disk_refuses_is_kept(slave, disk, log):
    size = len(log) // COUNT
    slave.append_copy(0, log[:size])
    disk.fill(2 * size)
    with pytest.raises(OSError, match="space"):
        slave.append_copy(size, log[size : 3 * size], log[3 * size :])
    assert int(slave.log.end) == 3 * size
    assert bodies(slave) == numbered(0, 3)
    disk.free()
    slave.append_copy(3 * size, log[3 * size :])
    assert bodies(slave) == numbered(0, COUNT)
