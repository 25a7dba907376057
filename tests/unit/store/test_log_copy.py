"""The log of a slave: bytes of its master's as they come, and what is left when they stop coming."""

from __future__ import annotations

import pytest
from tests.unit.store.kit import message, put, sized, small

from pyromq.store import MessageStore
from pyromq.store.check.store_check import Severity

FILE = 4096


@pytest.fixture
def master(tmp_path):
    with MessageStore(small(tmp_path / "master")) as store:
        yield store


@pytest.fixture
def slave(tmp_path):
    with MessageStore(small(tmp_path / "slave")) as store:
        yield store


def bytes_of(store, start=0, end=None):
    """What lies in the files of the log from `start` to `end`."""
    files = sorted(store.log.segments, key=lambda segment: segment.start)
    return b"".join(bytes(segment.view) for segment in files)[start : store.log.end if end is None else end]


def copy(master, slave, end=None):
    start = int(slave.log.end)
    slave.append_copy(start, bytes_of(master, start, end))


def test_a_part_of_a_record_is_cut_off(master, slave):
    first, second = put(master, b"one", b"two")
    copy(master, slave, second.physical_offset + 30)
    assert slave.cut_unfinished() == 30
    assert slave.log.end == second.physical_offset
    assert slave.newest_of_copy == (first.physical_offset, second.physical_offset)
    assert slave.cut_unfinished() == 0
    copy(master, slave)
    assert bytes_of(slave) == bytes_of(master)
    assert slave.queue("T", 0).max_offset == 2


def test_a_blank_record_is_cut_off_with_the_file_after_it(master, slave):
    queue = master.queue("T", 0)
    master.put([(queue, [sized(3000)])])
    master.put([(queue, [sized(2000)])])  # goes to the next file
    copy(master, slave, FILE + 100)
    assert len(slave.log.segments) == 2
    assert slave.cut_unfinished() == FILE + 100 - 3000
    assert slave.log.end == 3000
    assert [segment.start for segment in slave.log.segments] == [0]
    copy(master, slave)
    assert bytes_of(slave) == bytes_of(master)
    assert not [str(finding) for finding in slave.check() if finding.severity is not Severity.NOTE]


def test_the_file_made_in_advance_is_not_taken_for_an_earlier_one(master, slave):
    queue = master.queue("T", 0)
    master.put([(queue, [sized(3000)])])
    master.put([(queue, [sized(3000)])])
    master.put([(queue, [sized(3000)])])
    copy(master, slave, FILE + 2500)  # enough of the second file to make the third in advance
    slave.cut_unfinished()
    copy(master, slave)
    assert [segment.path.name[-4:] for segment in slave.log.segments] == ["0000", "4096", "8192"]
    assert bytes_of(slave) == bytes_of(master)


def test_what_was_cut_off_and_came_again_is_not_flushed_yet(master, slave):
    _, second = put(master, b"one", b"two")
    copy(master, slave, second.physical_offset + 30)
    slave.flushed().result(5)
    assert slave.flusher.flushed == second.physical_offset + 30
    slave.cut_unfinished()
    assert slave.flusher.flushed == second.physical_offset


def test_a_copy_without_a_whole_record_may_begin_elsewhere(master, slave):
    put(master, b"one")
    copy(master, slave, 30)
    assert slave.cut_unfinished() == 30
    assert (slave.log.end, slave.log.segments) == (0, ())
    queue = master.queue("T", 0)
    for _ in range(3):
        master.put([(queue, [sized(3000)])])
    newest = int(master.log.end) - int(master.log.end) % FILE
    slave.append_copy(newest, bytes_of(master, newest))
    assert bytes_of(slave, 0, 3000) == bytes_of(master, newest)


def test_the_newest_record_is_known_after_a_restart(master, tmp_path):
    config = small(tmp_path / "slave")
    with MessageStore(config) as slave:
        first, second = put(master, b"one", b"two")
        copy(master, slave)
    with MessageStore(config) as slave:
        assert slave.newest_of_copy == (second.physical_offset, int(master.log.end))
        assert slave.cut_unfinished() == 0
    assert first.physical_offset == 0


def test_the_newest_record_need_not_have_a_queue_entry(master, slave):
    put(master, b"one")
    (half,) = master.put([(master.queue("T", 0), [message(b"half", sys_flag=4)])])
    copy(master, slave)
    assert slave.newest_of_copy == (half.physical_offset, int(master.log.end))


def test_what_a_broker_stored_as_a_master_is_whole_when_it_becomes_a_slave(master, slave):
    put(master, b"one", b"two")
    copy(master, slave)
    put(slave, b"three", b"four", topic="U")
    end = int(slave.log.end)
    assert slave.cut_unfinished() == 0
    assert slave.newest_of_copy is not None
    assert slave.newest_of_copy[1] == slave.log.end == end


def test_the_newest_record_is_known_after_others_were_cut_off(master, slave):
    first, second, third = put(master, b"one", b"two", b"three")
    copy(master, slave)
    slave.truncate(third.physical_offset)
    assert slave.cut_unfinished() == 0
    assert slave.newest_of_copy == (second.physical_offset, third.physical_offset)
    assert first.physical_offset == 0
