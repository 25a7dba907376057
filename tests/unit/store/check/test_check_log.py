"""Damage in the commit log is found at its place, once."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.golden import test_store_vectors as vectors
from tests.unit.store.check.kit import (
    BODY_AT,
    BODY_SIZE_AT,
    LOG,
    MAGIC_AT,
    PHYSICAL_AT,
    SIZE_AT,
    STORE_TIME_AT,
    SYS_FLAG_AT,
    flip,
    flip_log,
    found,
    in_queue,
    lay_out_vectors,
    log_end,
    log_file,
    records,
    write_log,
)

from pyromq.protocol.record import encode_blank
from pyromq.store import StoreConfig
from pyromq.store.check import log as check_log
from pyromq.store.check.store_check import Severity, check_store
from pyromq.store.format import segment_name

if TYPE_CHECKING:
    from pathlib import Path


def test_a_body_that_changed(root):
    record = in_queue(root)[2]
    flip_log(root, record.physical_offset + 90)
    assert found(root) == [
        f"error: {log_file(record.physical_offset)}: record at {record.physical_offset}: body does not match its CRC"
    ]


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (MAGIC_AT, "00112233", "unknown magic 0x00112233"),
        (SIZE_AT, "ffffffff", "record of -1 bytes, {left} left in the file"),
        (SIZE_AT, "7fffffff", "record of 2147483647 bytes, {left} left in the file"),
        (SIZE_AT, "0000005d", "body of 140 bytes in a record of 93"),
        (SIZE_AT, "00000000", "record of 0 bytes, {left} left in the file"),
        (PHYSICAL_AT, "00000000000000ff", "record belongs to 255"),
        (BODY_SIZE_AT, "7fffffff", "body of 2147483647 bytes in a record of {size}"),
        (BODY_SIZE_AT, "ffffffff", "body of -1 bytes in a record of {size}"),
        (BODY_SIZE_AT, "00000001", "topic and properties do not end a record of {size} bytes"),
        (SYS_FLAG_AT, "00000030", None),
    ],
)
def test_a_head_that_changed_costs_one_record(root, at, data, reason):
    record, after = next(pair for pair in pairwise(records(root)) if pair[0].queue_offset == 5)
    offset = record.physical_offset
    write_log(root, offset + at, bytes.fromhex(data))
    (text,) = found(root)
    start, _, end = text.partition("; ")
    left = LOG - offset % LOG
    if reason is not None:
        reason = reason.format(size=record.size, left=left)
        assert start == f"error: {log_file(offset)}: record at {offset}: {reason}"
    assert end == f"the next one begins at {after.physical_offset}"


@pytest.mark.parametrize(("change", "behind"), [(-5000, 0), (+5000, 1)])
def test_store_times_that_go_back(root, change, behind):
    number, record = next((n, r) for n, r in enumerate(records(root)) if r.topic == "Plain")
    write_log(root, record.physical_offset + STORE_TIME_AT, struct.pack(">q", record.store_timestamp + change))
    times = [one.store_timestamp for one in records(root)]
    at = number + behind
    offset = records(root)[at].physical_offset
    assert found(root) == [
        f"warning: {log_file(offset)}: record at {offset}: stored at {times[at]}, the one before it at {times[at - 1]}"
    ]


def blank_at(root: Path) -> int:
    """Where the first file ends in a blank record."""
    last = [record for record in records(root) if record.physical_offset < LOG][-1]
    return last.physical_offset + last.size


def test_a_blank_record_of_another_size(root):
    at = blank_at(root)
    write_log(root, at, encode_blank(LOG - at + 1))
    assert found(root) == [
        f"error: {log_file(0)}: blank record at {at}: says {LOG - at + 1} bytes where {LOG - at} are left"
    ]


def test_a_file_that_breaks_off_without_a_blank_record(root):
    at = blank_at(root)
    write_log(root, at, bytes(8))
    assert found(root) == [f"error: {log_file(LOG)}: continues the log, which broke off at {at} without a blank record"]


def test_something_else_where_a_blank_record_belongs(root):
    at = blank_at(root)
    write_log(root, at, b"nonsense")
    assert found(root) == [
        f"error: {log_file(0)}: record at {at}: unknown magic 0x656e7365; no other record follows in this file"
    ]


def test_a_file_that_is_filled_to_the_last_byte(tmp_path):
    lay_out_vectors(tmp_path)
    path = tmp_path / "commitlog" / segment_name(0)
    path.write_bytes(path.read_bytes()[:1049])
    path.rename(tmp_path / "commitlog" / "x")
    (tmp_path / "commitlog" / segment_name(1200)).unlink()
    (tmp_path / "commitlog" / "x").rename(path)
    shutil.rmtree(tmp_path / "consumequeue" / "TestTopic" / "3")
    told = StoreConfig(commit_log_file_size=1049, consume_queue_file_size=200, hash_slots=4, index_entries=6)
    texts = [str(finding) for finding in check_store(tmp_path, told)]
    assert f"error: {path}: the file ends 0 bytes after the last record" in texts


def test_zeros_in_the_middle_of_the_log(root):
    lost, also_lost, after = records(root)[4:7]
    start, end = lost.physical_offset, after.physical_offset
    write_log(root, start, bytes(end - start))
    assert also_lost.physical_offset + also_lost.size == end
    assert found(root) == [f"error: {log_file(start)}: {end - start} zero bytes at {start} where a record should be"]


def test_zeros_up_to_the_end_of_a_file(root):
    start = records(root)[3].physical_offset
    write_log(root, start, bytes(LOG - start))
    assert found(root) == [
        f"error: {log_file(LOG)}: continues the log, which broke off at {start} without a blank record"
    ]


@pytest.mark.parametrize("distance", [9, 100])
def test_garbage_behind_the_end_of_the_log(root, distance):
    end = log_end(root)
    write_log(root, end + distance, b"\x01")
    what = f"bytes after the end of the log are not zero: it ends at {end}, they begin at {end + distance}"
    assert found(root) == [f"warning: {log_file(end)}: {what}"]


def test_garbage_right_behind_the_last_record(root):
    end = log_end(root)
    write_log(root, end, b"garbage!")
    assert found(root) == [
        f"error: {log_file(end)}: record at {end}: unknown magic 0x61676521; no other record follows in this file"
    ]


def test_the_last_record_is_torn(root):
    last = records(root)[-1]
    write_log(root, last.physical_offset + 60, bytes(last.size - 60))
    (text,) = found(root)
    assert text.startswith(f"error: {log_file(last.physical_offset)}: record at {last.physical_offset}: ")
    (root / "abort").touch()
    assert [text.split(":")[0] for text in found(root)] == ["note", "note"]


def test_damage_with_messages_behind_it_is_an_error_after_a_crash_too(root):
    flip_log(root, records(root)[-2].physical_offset + 90)
    (root / "abort").touch()
    assert [text.split(":")[0] for text in found(root)] == ["note", "error"]


def test_an_old_record_that_came_back_to_life(root):
    """A record of the right form, at the wrong place: RocketMQ would serve it."""
    end = log_end(root)
    old = records(root)[0]
    data = (root / log_file(0)).read_bytes()[: old.size]
    assert end % LOG + old.size < LOG
    write_log(root, end, data)
    assert found(root) == [
        f"error: {log_file(end)}: record at {end}: record belongs to 0; no other record follows in this file"
    ]


def test_a_file_made_in_advance(root):
    path = root / log_file(3 * LOG)
    path.write_bytes(bytes(LOG))
    what = f"{log_file(3 * LOG)}: holds nothing; the log ends at {log_end(root)}, in a file before it"
    assert found(root) == [f"warning: {what}"]
    (root / "abort").touch()
    assert found(root)[1:] == [f"note: {what}"]


def test_a_file_that_is_missing(root):
    (root / log_file(LOG)).unlink()
    assert found(root) == [f"error: {log_file(2 * LOG)}: begins at {2 * LOG}, but the file before it ends at {LOG}"]


def test_a_file_that_was_cut(root):
    os.truncate(root / log_file(LOG), 700)
    assert found(root) == [f"error: {log_file(LOG)}: has 700 bytes where segments have {LOG}"]


def test_a_file_that_is_too_long(root):
    os.truncate(root / log_file(LOG), LOG + 1)
    assert found(root) == [f"error: {log_file(LOG)}: has {LOG + 1} bytes where segments have {LOG}"]


@pytest.mark.parametrize("name", ["x.tmp", "123", segment_name(0) + ".bak"])
def test_a_stray_file_in_the_log(root, name):
    (root / "commitlog" / name).touch()
    assert found(root) == [f"error: commitlog/{name}: is not a segment; move it away, or brokers will not start"]


def test_a_file_between_two_segments(root):
    (root / "commitlog" / segment_name(100)).write_bytes(bytes(LOG))
    assert found(root) == [
        f"error: {log_file(0)[:-20]}{segment_name(100)}: does not begin at a multiple of {LOG}, the size of segments"
    ]


def test_a_folder_in_the_log(root):
    (root / "commitlog" / "old").mkdir()
    assert found(root) == ["warning: commitlog/old: is a folder among segments; RocketMQ 4.9 does not start with it"]


def test_no_log_at_all(root):
    shutil.rmtree(root / "commitlog")
    texts = found(root)
    assert texts[0] == "error: commitlog: is missing"
    assert "error: Plain/1/0: the entry points to" in "\n".join(texts)


def test_a_record_with_a_crc_of_its_own(tmp_path):
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / segment_name(0)
    path.write_bytes(vectors.T13_BYTES.ljust(1200, b"\0"))
    (tmp_path / "consumequeue" / "TestTopic").mkdir(parents=True)
    assert [finding for finding in check_store(tmp_path) if finding.severity is not Severity.NOTE] == []
    flip(path, 45)  # in the time when it was born, which nothing else protects
    (finding,) = (finding for finding in check_store(tmp_path) if finding.severity is not Severity.NOTE)
    assert finding.what == "record at 0: does not match the CRC in its properties"


def test_a_disk_that_cannot_read(root, monkeypatch):
    real, bad = os.pread, (root / log_file(LOG)).stat().st_ino

    def pread(fd: int, size: int, at: int) -> bytes:
        if os.fstat(fd).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    assert found(root) == [f"error: {log_file(LOG)}: cannot be read from {LOG} on: Input/output error"]


@pytest.mark.parametrize("window", [40, 100, 333])
@pytest.mark.parametrize(
    "damage",
    [
        lambda root, at: None,
        lambda root, at: flip_log(root, at + BODY_AT + 2),
        lambda root, at: flip_log(root, at + MAGIC_AT),
        lambda root, at: write_log(root, at, bytes(500)),
        lambda root, at: write_log(root, at, b"\xda\xa3\x20\xa7" * 125),
        lambda root, at: write_log(root, at, b"\xcb\xd4\x31\x94\xda\xa3\x20\xa7" * 60),
        lambda root, at: write_log(root, at, b"x" * (LOG - at % LOG)),
        lambda root, at: write_log(root, log_end(root) + 200, b"\xda\xa3\x20\xab" * 20),
    ],
)
def test_what_is_read_at_once_does_not_matter(root, monkeypatch, damage, window):
    damage(root, in_queue(root)[2].physical_offset)
    expected = found(root)
    monkeypatch.setattr(check_log, "_WINDOW", window)
    assert found(root) == expected
