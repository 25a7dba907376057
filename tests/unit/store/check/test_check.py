"""The check as a whole: a sound store has nothing to say, nothing is changed, and it always ends."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.store.check.kit import (
    GEOMETRY,
    LOG,
    STORE_TIME_AT,
    SYS_FLAG_AT,
    T0,
    Clock,
    config,
    fill,
    flip,
    flip_log,
    found,
    in_queue,
    lay_out_vectors,
    log_file,
    message,
    opened,
    overwrite,
    queue_file,
    records,
    write_entry,
)

from pyromq.errors import StoreError
from pyromq.protocol.record import MessageRecord, encode_record
from pyromq.store import StoreConfig
from pyromq.store.check.files import fitted
from pyromq.store.check.store_check import Severity, StoreCheck, check_store
from pyromq.store.format import ENTRY, EXT_BASE, EXT_UNIT, segment_name

if TYPE_CHECKING:
    from pyromq.store.scan import ScannedRecord


def test_a_sound_store_has_nothing_to_say(root):
    assert len(list((root / "commitlog").iterdir())) == 3
    assert len(records(root)) == 24
    assert found(root) == []


def test_sizes_are_taken_from_the_files_if_nobody_tells_them(root):
    assert list(check_store(root)) == []
    guessed = fitted(StoreConfig(root=str(root)))
    assert (guessed.commit_log_file_size, guessed.consume_queue_file_size) == (LOG, 200)
    assert (guessed.hash_slots, guessed.index_entries) == GEOMETRY


def test_a_store_without_messages_is_sound(tmp_path):
    opened(tmp_path).close()
    assert found(tmp_path) == []


@pytest.mark.parametrize("is_told", [True, False], ids=["sizes told", "sizes taken from the files"])
def test_the_store_of_the_vectors_is_sound(tmp_path, is_told):
    lay_out_vectors(tmp_path)
    told = StoreConfig(commit_log_file_size=1200, consume_queue_file_size=200, hash_slots=4, index_entries=6)
    check = StoreCheck(tmp_path, told if is_told else None)
    assert list(check.run()) == []
    assert (check.records, check.queues, check.bytes) == (9, 5, 1305)
    assert (check.log_files, check.queue_files, check.index_files) == (2, 5, 1)


def test_files_of_newer_brokers_are_known(root):
    for name in ("timerwheel", "abort.bak", "epochFileCheckpoint", "config/timercheck", "config/broker.properties"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x")
    for name in ("timerlog", "compaction", "rocksdbstore"):
        (root / name).mkdir()
    assert found(root) == []


def test_a_crash_leaves_notes_only_and_recovery_none_of_them(tmp_path):
    store = opened(tmp_path / "store")
    fill(store)
    copy = shutil.copytree(store.root, tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    store.close()
    notes = list(check_store(copy, config(copy)))
    assert {finding.severity for finding in notes} == {Severity.NOTE}
    assert str(notes[0]) == f"note: {copy}/abort: the last stop was a crash; the next start recovers the store"
    assert any("has no entry" in finding.what for finding in notes)

    opened(copy).close()
    assert found(copy) == []


def test_a_store_that_was_cleaned_up_is_sound(tmp_path):
    # Files are as old as their last change, and that has the time of the machine.
    store = opened(tmp_path, Clock(time.time()), reserved_hours=0)
    for _ in range(3):
        fill(store)
    store._upkeep.finish(store._mark())  # what is not on disk is not deleted
    store.clean_now()
    store.clean()
    store.close()
    assert int(min(path.name for path in (tmp_path / "commitlog").iterdir())) > 0
    assert found(tmp_path) == []


def test_a_log_in_several_folders_is_one_log(tmp_path):
    paths = f"{tmp_path}/a,{tmp_path}/b"
    store = opened(tmp_path / "store", commit_log_paths=paths)
    fill(store)
    store.close()
    assert found(tmp_path / "store", commit_log_paths=paths) == []
    (tmp_path / "b" / segment_name(LOG)).unlink()
    (finding,) = check_store(tmp_path / "store", config(tmp_path, commit_log_paths=paths))
    assert finding.where == f"{tmp_path}/a/{segment_name(2 * LOG)}"
    assert finding.what == f"begins at {2 * LOG}, but the file before it ends at {LOG}"


def test_a_deleted_topic_leaves_its_messages_in_the_log(tmp_path):
    store = opened(tmp_path)
    fill(store)
    store.queues.delete_topic("Plain")
    store.close()
    assert found(tmp_path) == []


def test_a_topic_that_no_broker_knows_was_deleted(root):
    shutil.rmtree(root / "consumequeue" / "Plain")
    (root / "queueends.json").unlink(missing_ok=True)
    assert len(found(root)) == 2
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders":{"topicName":"Orders"}}}')
    assert found(root) == []


def test_a_topic_that_was_made_anew_is_a_note(tmp_path):
    store = opened(tmp_path)
    fill(store)
    store.queues.delete_topic("Orders")
    for _ in range(2):
        store.put([(store.queue("Orders", 1), [message()])])
    store.close()
    assert found(tmp_path) == [
        "note: Orders/1: was deleted and created again: 9 older messages of the log have no entry",
    ]


def test_the_tags_code_of_a_delayed_message_is_its_time(root):
    (what,) = found(root, delay_levels="1s 2s 3s")
    assert what.startswith("error: SCHEDULE_TOPIC_XXXX/2/0: the entry has size ")
    assert what.endswith("; was messageDelayLevel changed?")


def test_delay_levels_that_nobody_told_are_learnt(tmp_path):
    store = opened(tmp_path, delay_levels="1s 2s 3s")
    for _ in range(3):
        store.put([(store.queue("SCHEDULE_TOPIC_XXXX", 2), [message("DELAY=3")])])
    store.close()
    assert found(tmp_path, delay_levels="1s 2s 3s") == []
    note = "note: SCHEDULE_TOPIC_XXXX/2: the delay of this level is -7 s off the default, as messageDelayLevel says"
    assert [str(finding) for finding in check_store(tmp_path)] == [note]
    flip(queue_file(tmp_path, "SCHEDULE_TOPIC_XXXX", 2), 2 * ENTRY.size - 1)
    assert [str(finding).split(": ")[1] for finding in check_store(tmp_path)][1:] == ["SCHEDULE_TOPIC_XXXX/2/1"]


def test_an_entry_may_keep_its_tags_code_in_the_ext_files(root):
    first = in_queue(root)[0]
    folder = root / "consumequeue_ext" / "Orders" / "1"
    folder.mkdir(parents=True)
    tags_code = ENTRY.unpack_from(queue_file(root).read_bytes())[2]
    unit = EXT_UNIT.pack(EXT_UNIT.size + 8, tags_code, T0, 8)
    (folder / segment_name(0)).write_bytes(bytes(28) + unit.ljust(100, b"\0"))
    write_entry(root, 0, ENTRY.pack(first.physical_offset, first.size, EXT_BASE + 28))
    assert list(check_store(root)) == []
    write_entry(root, 0, ENTRY.pack(first.physical_offset, first.size, EXT_BASE + 56))
    (finding,) = check_store(root)
    assert (finding.where, "tags code" in finding.what) == ("Orders/1/0", True)


def test_a_message_may_be_in_light_queues_too(tmp_path):
    store = opened(tmp_path)
    names = "INNER_MULTI_DISPATCH=%LMQ%a,Other;INNER_MULTI_QUEUE_OFFSET=0,0"
    (result,) = store.put([(store.queue("Orders", 1), [message(names)])])
    store.close()
    assert found(tmp_path) == []
    entry = ENTRY.pack(result.physical_offset, result.size, 0)
    for queue in ("%LMQ%a/0", "Other/1"):
        (tmp_path / "consumequeue" / queue).mkdir(parents=True)
        (tmp_path / "consumequeue" / queue / segment_name(0)).write_bytes(entry.ljust(200, b"\0"))
    assert found(tmp_path) == []
    write_entry(tmp_path, 0, ENTRY.pack(result.physical_offset, result.size, 7), "%LMQ%a", 0)
    assert [text.split(": ")[1] for text in found(tmp_path)] == ["%LMQ%a/0/0"]


def test_a_store_that_is_in_use_by_this_process_stays_locked(tmp_path):
    store = opened(tmp_path)
    store.put([(store.queue("Orders", 0), [message()])])
    texts = found(tmp_path)
    assert texts[0] == "note: lock: the store is in use by this process; it may change while it is being checked"
    with pytest.raises(StoreError, match="in use"):
        opened(tmp_path)
    program = f"import fcntl; fcntl.lockf(open({str(tmp_path / 'lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode != 0
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a lock")
def test_a_store_that_is_in_use_by_another_process(root):
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", program, str(root / "lock")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert found(root) == [
            f"note: lock: the store is in use by process {other.pid}; it may change while it is being checked"
        ]
        assert other.stdin is not None
        other.stdin.close()
    assert found(root) == []


def test_nothing_is_changed(root):
    def state() -> dict[Path, tuple[float, bytes]]:
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}

    flip_log(root, 300)
    write_entry(root, 4, bytes(20))
    before = state()
    assert found(root) != []
    assert state() == before


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.touch()])
def test_what_is_no_store(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises(StoreError, match=r"is not a folder|is not a store"):
        check_store(tmp_path / "x")


def test_a_store_of_another_kind_is_refused(root):
    (root / "consumequeue" / "CURRENT").touch()
    with pytest.raises(StoreError, match="RocksDB"):
        check_store(root)


def test_a_quick_check_looks_at_the_ends_only(tmp_path):
    store = opened(tmp_path)
    for number in range(25):
        store.put([(store.queue("Early", number % 2), [message()])])
    for _ in range(3):
        fill(store)
    store.close()
    all_records = records(tmp_path)
    check = StoreCheck(tmp_path, config(tmp_path), quick=True)
    assert list(check.run()) == []
    assert check.log_files == 2
    assert 0 < check.records < len(all_records) / 2

    flip_log(tmp_path, all_records[0].physical_offset + 90)
    assert list(check_store(tmp_path, config(tmp_path), quick=True)) == []
    flip_log(tmp_path, all_records[-1].physical_offset + 90)
    end = log_end_of(all_records)
    overwrite(queue_file(tmp_path, "Six", 0), 3 * ENTRY.size, ENTRY.pack(end + 5, 100, 0))
    assert [str(finding).split(": ", 2)[2] for finding in check_store(tmp_path, config(tmp_path), quick=True)] == [
        f"record at {all_records[-1].physical_offset}: body does not match its CRC",
        f"the entry points to {end + 5}, but the log ends at {end}",
    ]


def log_end_of(all_records: list[ScannedRecord]) -> int:
    return all_records[-1].physical_offset + all_records[-1].size


def test_progress_goes_up_to_the_end(root):
    told: list[tuple[int, int]] = []
    assert list(check_store(root, config(root), lambda done, total: told.append((done, total)))) == []
    assert told == sorted(told)
    assert told[-1] == (3 * LOG, 3 * LOG)
    assert len(told) >= 3


def test_records_may_be_larger_than_what_is_read_at_once(tmp_path):
    large = 8 << 20
    store = opened(tmp_path, commit_log_file_size=large, max_message_size=large)
    for size in (3 << 20, 100, 2 << 20, 1 << 20, 1000):
        store.put([(store.queue("Orders", 0), [message("KEYS=k", bytes(size))])])
    store.close()
    changes = {"commit_log_file_size": large, "max_message_size": large}
    assert found(tmp_path, **changes) == []
    overwrite(tmp_path / "commitlog" / segment_name(0), 1000, b"\1")
    assert found(tmp_path, **changes) == [f"error: {log_file(0)}: record at 0: body does not match its CRC"]
    # The next record is found however far it is.
    overwrite(tmp_path / "commitlog" / segment_name(0), 4, b"\1")
    (text,) = found(tmp_path, **changes)
    assert text.endswith("unknown magic 0x01a320a7; the next one begins at 3145831")


def test_a_size_that_a_record_only_claims_is_not_read(tmp_path, monkeypatch):
    """A sparse file may seem to hold a record of a gigabyte."""
    head = bytearray(encode_record(MessageRecord("T", b"x")))
    struct.pack_into(">i", head, 0, 1 << 29)
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / segment_name(0)
    path.write_bytes(head)
    os.truncate(path, 1 << 30)
    largest = 0
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    texts = [finding.what for finding in check_store(tmp_path)]
    assert texts == [
        "record at 0: record of 536870912 bytes, larger than any message; no other record follows in this file"
    ]
    assert largest <= 1 << 20


def every_byte(root: Path) -> list[tuple[Path, int]]:
    return [(path, path.stat().st_size) for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]


@pytest.mark.slow
@hypothesis_settings(max_examples=60)
@given(st.data())
def test_whatever_is_damaged_the_check_ends(sound, tmp_path_factory, data):
    root = Path(shutil.copytree(sound, tmp_path_factory.mktemp("fuzz") / "store"))
    files = every_byte(root)
    for _ in range(data.draw(st.integers(1, 4))):
        path, size = data.draw(st.sampled_from(files))
        at = data.draw(st.integers(0, size - 1))
        kind = data.draw(st.sampled_from(["flip", "random", "zero", "cut"]))
        if kind == "cut":
            os.truncate(path, at)
        elif at < path.stat().st_size:
            piece = (
                data.draw(st.binary(min_size=1, max_size=30))
                if kind == "random"
                else bytes(data.draw(st.integers(1, 300)))
            )
            overwrite(path, at, bytes([path.read_bytes()[at] ^ 0xFF]) if kind == "flip" else piece)
    list(check_store(root, config(root)))
    list(check_store(root))
    list(check_store(root, config(root), quick=True))
    shutil.rmtree(root.parent)


@pytest.mark.slow
def test_every_byte_of_a_record_counts_that_anything_depends_on(root):
    """What nothing depends on are the flag, the hosts and the time of birth, the retries and the half message."""
    record = in_queue(root)[3]
    path = root / log_file(record.physical_offset)
    sound = path.read_bytes()
    start = record.physical_offset % LOG
    unseen = []
    for at in range(record.size):
        flip(path, start + at, 0x40)
        if not found(root):
            unseen.append(at)
        path.write_bytes(sound)
    free = {*range(16, 20), *range(40, 56), *range(64, 84)}
    # Of SYSFLAG only the bits for the kind of the message and of its hosts; of its time what is more than a second.
    assert set(unseen) <= free | {*range(SYS_FLAG_AT, SYS_FLAG_AT + 4)} | {STORE_TIME_AT + 7}
