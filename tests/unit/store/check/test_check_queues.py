"""Damage in the queues, and in what records say of them, is found at its place, once."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest
from tests.unit.store.check.kit import (
    LOG,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    T0,
    found,
    in_queue,
    lay_out_vectors,
    log_end,
    log_file,
    message,
    opened,
    overwrite,
    queue_file,
    records,
    write_entry,
    write_log,
)

from pyromq.store.check.store_check import check_store
from pyromq.store.format import ENTRY, PRE_BLANK, segment_name

if TYPE_CHECKING:
    from pathlib import Path

# What records say: no CRC protects it


def test_another_queue_offset_in_a_record(root):
    record = in_queue(root)[3]
    write_log(root, record.physical_offset + QUEUE_OFFSET_AT, struct.pack(">q", 300))
    assert found(root) == [
        f"error: Orders/1/3: the record at {record.physical_offset} says that its queue offset is 300"
    ]


def test_another_queue_in_a_record(root):
    record = in_queue(root)[3]
    write_log(root, record.physical_offset + QUEUE_ID_AT, struct.pack(">i", 77))
    at = record.physical_offset
    orphan = f"error: Orders/1/3: the entry points to {at}, where there is no such message"
    # Our store knows which queues there were when it was closed.
    assert found(root) == [orphan]
    (root / "queueends.json").unlink()
    assert found(root) == [orphan, f"error: Orders/77/3: the message at {at} has no entry"]


def test_a_negative_queue_offset(root):
    record = in_queue(root, "Six", 0)[0]
    write_log(root, record.physical_offset + QUEUE_OFFSET_AT, struct.pack(">q", -1))
    at = record.physical_offset
    assert found(root) == [
        f"error: Six/0: the record at {at} has the queue offset -1",
        f"error: Six/0/0: the entry points to {at}, where there is no such message",
    ]


def test_another_tag_in_a_record(root):
    record = in_queue(root)[3]
    path = root / log_file(record.physical_offset)
    at = path.read_bytes().index(b"TAGS\x01red", record.physical_offset % LOG)
    overwrite(path, at, b"TAGS\x01rad")
    (text,) = found(root)
    assert text.startswith(f"error: Orders/1/3: the entry has size {record.size} and tags code 112785, its message")


def test_messages_that_were_lost_before(tmp_path):
    """RocketMQ leaves out a queue offset if its record cannot be read back; we fill the hole."""
    lay_out_vectors(tmp_path)
    path = tmp_path / "consumequeue" / "TestTopic" / "3" / segment_name(0)
    data = path.read_bytes()
    path.write_bytes((data[:40] + PRE_BLANK * 2 + data[40:60]).ljust(200, b"\0"))
    overwrite(tmp_path / "commitlog" / segment_name(1200), QUEUE_OFFSET_AT, struct.pack(">q", 4))
    assert [str(finding) for finding in check_store(tmp_path)] == [
        "warning: TestTopic/3/2: a message was lost; a filler keeps its place; the same up to offset 3"
    ]
    path.write_bytes((data[:40] + bytes(40) + data[40:60]).ljust(200, b"\0"))
    assert [str(finding) for finding in check_store(tmp_path)] == [
        "error: TestTopic/3/2: the log has no message with this queue offset; it continues with 4"
    ]


def test_a_queue_offset_that_was_given_twice(tmp_path):
    lay_out_vectors(tmp_path)
    overwrite(tmp_path / "commitlog" / segment_name(1200), QUEUE_OFFSET_AT, struct.pack(">q", 1))
    write_entry(tmp_path, 2, bytes(20), "TestTopic", 3)
    assert [str(finding) for finding in check_store(tmp_path)] == [
        "error: TestTopic/3/1: the record at 1200 repeats this queue offset; 2 was due",
        "error: TestTopic/3/1: the entry points to 112, but its message is at 1200",
    ]


# Entries


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((1, 0, 0), "the entry points to {0}, but its message is at {1}"),
        ((0, 1, 0), "the entry has size {2} and tags code 112785, its message {3} and 112785"),
        ((0, 0, 1), "the entry has size {3} and tags code 112786, its message {3} and 112785"),
    ],
)
def test_an_entry_that_changed(root, change, what):
    record = in_queue(root)[4]
    wrong = (record.physical_offset + change[0], record.size + change[1])
    write_entry(root, 4, ENTRY.pack(*wrong, 112785 + change[2]))
    what = what.format(wrong[0], record.physical_offset, wrong[1], record.size)
    assert found(root) == [f"error: Orders/1/4: {what}"]


@pytest.mark.slow
def test_every_byte_of_a_queue_counts(root):
    path = queue_file(root)
    sound = path.read_bytes()
    assert len(in_queue(root)) == 9, "the last entry of the file is free"
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x40]) + sound[at + 1 :])
        (text,) = found(root)
        assert text.split(": ")[1] == f"Orders/1/{at // ENTRY.size}"


def test_an_entry_that_was_never_written(root):
    record = in_queue(root)[4]
    write_entry(root, 4, bytes(20))
    assert found(root) == [f"error: Orders/1/4: the message at {record.physical_offset} has no entry"]


def test_a_filler_in_place_of_an_entry(root):
    record = in_queue(root)[4]
    write_entry(root, 4, PRE_BLANK)
    assert found(root) == [f"error: Orders/1/4: the message at {record.physical_offset} has only a filler for an entry"]


def test_a_page_of_a_queue_that_is_lost(root):
    write_entry(root, 2, bytes(100))
    at = in_queue(root)[2].physical_offset
    assert found(root) == [f"error: Orders/1/2: the message at {at} has no entry; the same up to offset 6"]


def test_entries_that_moved(root):
    entries = queue_file(root).read_bytes()
    write_entry(root, 1, entries[:-20])
    offsets = [record.physical_offset for record in in_queue(root)]
    what = f"the entry points to {offsets[0]}, but its message is at {offsets[1]}; the same up to offset 8"
    assert found(root) == [
        f"error: Orders/1/1: {what}",
        f"error: Orders/1/9: the entry points to {offsets[8]}, where there is no such message",
    ]


def test_a_queue_that_lags(root):
    write_entry(root, 5, bytes(100))
    what = f"Orders/1/5: the message at {in_queue(root)[5].physical_offset} has no entry; the same up to offset 8"
    assert found(root) == [f"error: {what}"]
    # After a crash the next start makes them anew, if the checkpoint does not promise that they are on disk.
    (root / "abort").touch()
    overwrite(root / "checkpoint", 0, struct.pack(">qq", T0, T0))
    assert found(root)[1:] == [f"note: {what}"]
    safe = records(root)[-1].store_timestamp + 3000
    overwrite(root / "checkpoint", 0, struct.pack(">qq", safe, safe))
    assert f"error: {what}" in found(root)


def test_a_queue_that_is_gone(root):
    shutil.rmtree(root / "consumequeue" / "Orders" / "1")
    at = in_queue(root)[0].physical_offset
    assert found(root) == [f"error: Orders/1/0: the message at {at} has no entry; the same up to offset 8"]


@pytest.fixture
def long_queue(tmp_path: Path) -> Path:
    """A store with one queue of 35 messages, in four files."""
    root = tmp_path / "long"
    store = opened(root)
    store.put([(store.queue("Long", 0), [message(body=bytes(20))]) for _ in range(35)])
    store.close()
    assert found(root) == []
    return root


def test_the_first_file_of_a_queue_is_gone(long_queue):
    queue_file(long_queue, "Long", 0).unlink()
    assert found(long_queue) == ["error: Long/0/0: the message at 0 has no entry; the same up to offset 9"]


def test_a_file_in_the_middle_of_a_queue_is_gone(long_queue):
    queue_file(long_queue, "Long", 0, 200).unlink()
    assert found(long_queue) == [
        f"error: consumequeue/Long/0/{segment_name(400)}: begins at 400, but the file before it ends at 200"
    ]


def test_the_last_file_of_a_queue_is_gone(long_queue):
    queue_file(long_queue, "Long", 0, 600).unlink()
    at = records(long_queue)[30].physical_offset
    assert found(long_queue) == [f"error: Long/0/30: the message at {at} has no entry; the same up to offset 34"]


def test_a_queue_file_that_was_cut(long_queue):
    os.truncate(queue_file(long_queue, "Long", 0, 200), 130)
    assert found(long_queue) == [
        f"error: consumequeue/Long/0/{segment_name(200)}: has 130 bytes where segments have 200"
    ]


def test_the_beginning_of_a_queue_may_be_fillers_but_not_nothing(long_queue, tmp_path):
    """As after a rebuild of a queue whose first messages are no longer in the log."""
    (long_queue / log_file(0)).unlink()
    first = records(long_queue)[0].queue_offset
    queue_file(long_queue, "Long", 0).unlink()
    path = queue_file(long_queue, "Long", 0, 200)
    count = first - 10
    assert 0 < count < 10
    overwrite(path, 0, PRE_BLANK * count)
    assert found(long_queue) == []
    overwrite(path, 0, bytes(20))
    assert found(long_queue) == ["error: Long/0/10: nothing was written here, but entries follow"]


def test_an_entry_beyond_the_end_of_the_log(root):
    end = log_end(root)
    write_entry(root, 9, ENTRY.pack(end, 100, 0))
    what = f"Orders/1/9: the entry points to {end}, but the log ends at {end}"
    assert found(root) == [f"error: {what}"]
    (root / "abort").touch()
    assert found(root)[1:] == [f"note: {what}"]


def test_an_entry_of_a_message_that_was_never_there(root):
    write_entry(root, 9, ENTRY.pack(100, 100, 0))
    assert found(root) == ["error: Orders/1/9: the entry points to 100, where there is no such message"]


def test_a_filler_at_the_end_of_a_queue(root):
    write_entry(root, 9, PRE_BLANK)
    assert found(root) == ["warning: Orders/1/9: a message was lost; a filler keeps its place"]


def test_something_behind_the_end_of_a_queue(root):
    overwrite(queue_file(root, "Orders", 0), 9 * ENTRY.size, b"\1")
    assert found(root) == ["warning: Orders/0/9: the entry is not zero, although the queue ends at 6"]


def test_a_queue_whose_messages_are_all_gone_from_the_log(tmp_path):
    lay_out_vectors(tmp_path)
    (tmp_path / "commitlog" / segment_name(0)).unlink()
    assert list(check_store(tmp_path)) == []
    write_entry(tmp_path, 1, ENTRY.pack(1250, 100, 0), "TestTopic", 0)
    (finding,) = check_store(tmp_path)
    assert str(finding) == "error: TestTopic/0/1: the entry points to 1250, where there is no such message"


def test_strangers_among_the_queues(root):
    (root / "consumequeue" / "Orders" / "1" / "x").touch()
    (root / "consumequeue" / "Orders" / "lost+found").mkdir()
    (root / "consumequeue" / "README").touch()
    assert found(root) == [
        "note: consumequeue/Orders/lost+found: is not a queue; left alone",
        "note: consumequeue/README: is unknown; left alone",
        "error: consumequeue/Orders/1/x: is not a segment; move it away, or brokers will not start",
    ]


def test_a_queue_file_that_cannot_be_read_is_reported_once(root, monkeypatch):
    real, bad = os.pread, queue_file(root).stat().st_ino

    def pread(fd: int, size: int, at: int) -> bytes:
        if os.fstat(fd).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    assert found(root) == [f"error: consumequeue/Orders/1/{segment_name(0)}: cannot be read: Input/output error"]
