"""The index: entries as sequential insertion makes them, look-ups, roll-over, cutting back, damage and full disks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pyromq.errors import StoreError
from pyromq.protocol import properties
from pyromq.protocol.hashing import index_hash
from pyromq.store.disk import Disk
from pyromq.store.format import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from pyromq.store.index.index import IndexFiles, head
from pyromq.store.index.index_file import Geometry, IndexFile
from pyromq.store.index.keys import key_hashes
from pyromq.store.index.writer import check

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_700_000_000_000
FOREVER = 2**62

Record = tuple[str, bytes, int, int]  # topic, properties, offset, store time


class FailingDisk(Disk):
    """A disk that can be full, and counts what is synced."""

    def __init__(self) -> None:
        self.is_full = False
        self.synced = 0

    def write(self, fd, data, at):
        self._need_space()
        super().write(fd, data, at)

    def create(self, path, size, *, reserve=True):
        self._need_space()
        return super().create(path, size, reserve=reserve)

    def sync(self, fd):
        self.synced += 1
        super().sync(fd)

    def _need_space(self):
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass
class PlainFile:
    """What docs/spec/store.md 4.3 says, one key at a time."""

    slots: int
    entries: int
    begin_time: int = 0
    end_time: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used: int = 0
    table: dict[int, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.rows) + 1 >= self.entries

    def put(self, key_hash: int, offset: int, store_time: int) -> None:
        previous = self.table.get(key_hash % self.slots, 0)
        seconds = min(max(0, (store_time - self.begin_time) // 1000), 2**31 - 1) if self.begin_time > 0 else 0
        if not self.rows:
            self.begin_time, self.begin_offset = store_time, offset
        self.used += previous == 0
        self.rows.append((key_hash, offset, seconds, previous))
        self.table[key_hash % self.slots] = len(self.rows)
        self.end_time, self.end_offset = store_time, offset

    def content(self) -> bytes:
        header = INDEX_HEADER.pack(
            self.begin_time, self.end_time, self.begin_offset, self.end_offset, self.used, len(self.rows) + 1
        )
        slots = b"".join(INDEX_SLOT.pack(self.table.get(slot, 0)) for slot in range(self.slots))
        rows = b"".join(INDEX_ENTRY.pack(*row) for row in [(0, 0, 0, 0), *self.rows])
        return (header + slots + rows).ljust(Geometry(self.slots, self.entries).size, b"\0")


def keys_of(raw: bytes) -> list[str]:
    parsed = properties.parse(properties.decode(raw))
    unique = [parsed["UNIQ_KEY"]] if "UNIQ_KEY" in parsed else []
    return unique + [key for key in parsed.get("KEYS", "").split(" ") if key]


def plain_index(records: list[Record], slots: int, entries: int) -> list[PlainFile]:
    files: list[PlainFile] = []
    for topic, raw, offset, store_time in records:
        if files and offset < files[-1].end_offset:
            continue
        for key in keys_of(raw):
            if not files or files[-1].is_full:
                last = files[-1] if files else PlainFile(slots, entries)
                seed = (last.end_time, last.end_time, last.end_offset, last.end_offset)
                files.append(PlainFile(slots, entries, *seed))
            files[-1].put(index_hash(f"{topic}#{key}"), offset, store_time)
    return files


def record(number: int, *keys: str, topic: str = "orders", seconds: int = 0) -> Record:
    """A record of 100 bytes; the first key is its unique one."""
    unique, *others = keys
    raw = f"TAGS\x01a\x02KEYS\x01{' '.join(others)}\x02UNIQ_KEY\x01{unique}".encode()
    return topic, raw, number * 100, T0 + seconds * 1000


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def make_index(tmp_path, disk):
    """Makes an index in `index` below tmp_path; every one is flushed and checked at the end of the test."""
    made = []

    def make(slots: int = 5, entries: int = 8, clock=lambda: T0 / 1000, **loading) -> IndexFiles:
        index = IndexFiles(tmp_path / "index", slots, entries, disk, clock)
        index.load(**loading)
        made.append(index)
        return index

    yield make
    for index in made:
        index.close()


def fill(index: IndexFiles, *records: Record) -> None:
    for each in records:
        index.add(*each)
    index.drain()


# Keys

topic_names = st.sampled_from(["orders", "%RETRY%group", "中文", "T" * 127])
key_texts = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=80)
property_names = st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "UNIQ_KEY2", "KEYS2", "XKEYS", "", "中"])
items = st.tuples(property_names, st.one_of(key_texts, st.sampled_from(["", " ", "a b", " a  b ", "a" * 200])))
strings = st.lists(items, max_size=6).map(lambda pairs: "\x02".join(f"{n}\x01{v}" for n, v in pairs).encode())


@pytest.mark.slow
@given(st.lists(st.tuples(topic_names, st.one_of(strings, st.binary(max_size=60))), min_size=1, max_size=6))
@hypothesis_settings(max_examples=200)
def test_keys_and_hashes_are_those_of_parsed_properties(records):
    topics, raws = zip(*records, strict=True)
    hashes, numbers = key_hashes(topics, raws)
    expected = [
        (index_hash(f"{topic}#{key}"), number) for number, (topic, raw) in enumerate(records) for key in keys_of(raw)
    ]
    assert list(zip(hashes.tolist(), numbers.tolist(), strict=True)) == expected


@pytest.mark.parametrize("key", ["k" * 63, "k" * 64, "k" * 65, "k" * 32700, "ключ", "😀" * 40, "é" + "k" * 70])
def test_long_and_foreign_keys_hash_as_in_java(key):
    raw = b"UNIQ_KEY\x01" + key.encode()
    hashes, _ = key_hashes(["orders", "orders"], [raw, b"UNIQ_KEY\x01plain"])
    assert hashes.tolist() == [index_hash(f"orders#{key}"), index_hash("orders#plain")]


def test_a_record_may_have_more_keys_than_are_hashed_at_once():
    keys = [str(number % 7) for number in range(10_000)]
    hashes, numbers = key_hashes(["orders"], [b"KEYS\x01" + " ".join(keys).encode()])
    assert hashes.tolist() == [index_hash(f"orders#{key}") for key in keys]
    assert set(numbers.tolist()) == {0}


# Entries

short_keys = st.text("abc", min_size=1, max_size=2)
steps = st.tuples(
    st.lists(short_keys, min_size=1, max_size=4),
    st.integers(0, 2),  # how far the offset goes on
    st.integers(-3, 5),  # and the time, in half seconds
    st.booleans(),  # whether the batch ends here
)


@pytest.mark.slow
@given(st.lists(steps, max_size=25), st.integers(1, 7), st.integers(2, 9))
@hypothesis_settings(max_examples=100)
def test_files_are_those_of_one_key_after_the_other(tmp_path_factory, steps, slots, entries):
    folder = tmp_path_factory.mktemp("index")
    index = IndexFiles(folder, slots, entries, Disk(), lambda: T0 / 1000)
    records: list[Record] = []
    offset, store_time = 0, T0
    for keys, offset_step, time_step, ends_batch in steps:
        offset += offset_step * 100
        store_time += time_step * 500
        _, raw, _, _ = record(0, *keys)
        records.append(("orders", raw, offset, store_time))
        index.add(*records[-1])
        if ends_batch:
            index.drain()
    index.flush()
    assert contents(folder) == [file.content() for file in plain_index(records, slots, entries)]
    assert list(index.check()) == []
    index.close()


def test_an_offset_before_the_newest_entry_counts_as_indexed(make_index, tmp_path):
    index = make_index()
    fill(index, record(1, "a"), record(3, "b"))
    fill(index, record(2, "late"), record(3, "c"), record(2, "late"), record(4, "d"))
    assert index.find("orders", "late", 9, 0, FOREVER) == []
    assert index.find("orders", "c", 9, 0, FOREVER) == [300]
    assert index.last_update == (T0, 400)


def test_entries_are_made_when_enough_records_wait_for_them(make_index, tmp_path):
    index = make_index()
    for number in range(3):
        index.add(*record(number, "a"))
    index.drain(least=4)
    assert not (tmp_path / "index").exists()
    index.drain(least=3)
    assert len(contents(tmp_path / "index")) == 1


def test_records_without_keys_make_no_file(make_index, tmp_path):
    index = make_index()
    index.add("orders", b"TAGS\x01a", 100, T0)
    assert index.flush() == []
    assert not (tmp_path / "index").exists()
    assert index.last_update == (0, 0)
    assert index.find("orders", "a", 9, 0, FOREVER) == []


def test_more_entries_than_are_gathered_in_memory(make_index, tmp_path):
    index = make_index(slots=1000, entries=10_000)
    records = [record(number, f"u{number}", f"k{number % 10}") for number in range(4600)]
    for each in records:
        index.add(*each)
    assert index.find("orders", "k7", 3, 0, FOREVER) == [459700, 458700, 457700]
    assert index.find("orders", "u0", 3, 0, FOREVER) == [0]
    index.flush()
    assert contents(tmp_path / "index") == [plain_index(records, 1000, 10_000)[0].content()]


# Files


def test_a_file_is_named_for_the_local_time_of_its_creation(make_index, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        fill(make_index(clock=lambda: 1_700_000_000.123), record(1, "a"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["20231115061320123"]


@pytest.mark.parametrize("step", [0, -3600, 0.001])
def test_names_ascend_whatever_the_clock_does(make_index, tmp_path, step):
    times = iter([T0 / 1000 + step * number for number in range(10)])
    index = make_index(entries=3, clock=lambda: next(times))
    fill(index, *(record(number, f"key{number}") for number in range(8)))
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert [len(name) for name in names] == [17] * 4
    index.flush()
    begins = [INDEX_HEADER.unpack_from(content)[2] for content in contents(tmp_path / "index")]
    assert begins == [0, 200, 400, 600]


def test_a_file_is_sparse_until_it_is_used(make_index, tmp_path):
    fill(index := make_index(slots=5_000_000, entries=20_000_000), record(1, "a"))
    index.flush()
    (path,) = (tmp_path / "index").iterdir()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 1_000_000


def test_a_new_file_says_at_once_where_the_one_before_it_ended(make_index, tmp_path):
    fill(make_index(entries=3), *(record(number, f"key{number}", seconds=number) for number in range(3)))
    full, new = (INDEX_HEADER.unpack_from(content) for content in contents(tmp_path / "index"))
    end_time, end_offset = T0 + 1000, 100
    assert full == (T0, end_time, 0, end_offset, 2, 3)
    assert new == (end_time, end_time, end_offset, end_offset, 0, 1)


def test_a_file_with_room_is_continued_after_a_restart(make_index, tmp_path):
    records = [record(number, f"key{number % 3}", seconds=number) for number in range(12)]
    first = make_index(slots=3, entries=8)
    fill(first, *records[:5])
    first.flush()
    first.close()
    second = make_index(slots=3, entries=8)
    assert second.last_update == (T0 + 4000, 400)
    fill(second, *records[5:])
    second.flush()
    assert contents(tmp_path / "index") == [file.content() for file in plain_index(records, 3, 8)]
    assert second.find("orders", "key0", 9, 0, FOREVER) == [900, 600, 300, 0]


@pytest.mark.scenario("store 10")
def test_without_its_folder_the_index_starts_empty(make_index):
    index = make_index()
    fill(index, record(7, "new"))
    assert index.find("orders", "new", 9, 0, FOREVER) == [700]
    assert index.find("orders", "old", 9, 0, FOREVER) == []


def test_an_empty_file_of_another_broker_is_continued(make_index, tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114000000000").write_bytes(bytes(Geometry(5, 8).size))
    index = make_index()
    assert index.find("orders", "a", 9, 0, FOREVER) == []
    fill(index, record(1, "a"))
    index.flush()
    assert contents(tmp_path / "index") == [plain_index([record(1, "a")], 5, 8)[0].content()]


@pytest.mark.parametrize("name", ["20231114000000000.tmp", ".hidden", "2023", "notes"])
def test_a_stray_file_is_refused_with_its_path(make_index, tmp_path, name):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / name).write_bytes(bytes(Geometry(5, 8).size))
    with pytest.raises(StoreError, match=f"index/{name}"):
        make_index()


@pytest.mark.parametrize("size", [1, Geometry(5, 8).size - 1, Geometry(5, 8).size + 1])
def test_a_file_of_another_size_is_refused_with_its_path(make_index, tmp_path, size):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20231114000000000").write_bytes(bytes(size))
    with pytest.raises(StoreError, match=r"index/20231114000000000 has \d+ bytes .* maxHashSlotNum"):
        make_index()


def test_folders_are_passed_over_and_an_empty_last_file_is_removed(make_index, tmp_path):
    (tmp_path / "index" / "folder").mkdir(parents=True)
    empty = tmp_path / "index" / "20231114000000000"
    empty.touch()
    make_index()
    assert not empty.exists()


def test_expired_files_go_and_the_last_one_stays(make_index, tmp_path):
    index = make_index(entries=3)
    fill(index, *(record(number, f"key{number}") for number in range(5)))
    index.flush()
    assert index.expire(100) == []
    (expired,) = index.expire(101)
    expired.unlink()
    assert index.find("orders", "key0", 9, 0, FOREVER) == []
    assert index.find("orders", "key2", 9, 0, FOREVER) == [200]
    (expired,) = index.expire(10_000)
    expired.unlink()
    assert index.find("orders", "key4", 9, 0, FOREVER) == [400]
    assert len(contents(tmp_path / "index")) == 1


def test_destroying_removes_every_file(make_index, tmp_path):
    index = make_index(entries=3)
    fill(index, *(record(number, f"key{number}") for number in range(5)))
    index.destroy()
    assert list((tmp_path / "index").iterdir()) == []
    fill(index, record(1, "again"))
    assert index.find("orders", "again", 9, 0, FOREVER) == [100]


def test_a_flush_names_what_is_to_be_synced_once(make_index, tmp_path, disk):
    index = make_index(entries=3)
    fill(index, *(record(number, f"key{number}") for number in range(3)))
    assert index.flush() == sorted((tmp_path / "index").iterdir())
    assert index.flush() == []
    index.add(*record(4, "more"))
    assert index.flush(sync=True) == []
    assert disk.synced == 1
    assert index.flush() == []


def test_a_flush_writes_only_what_changed(make_index, disk, monkeypatch):
    index = make_index(slots=100_000, entries=1000)
    fill(index, *(record(number, f"key{number}") for number in range(3)))
    index.flush()
    written = []
    monkeypatch.setattr(disk, "write", lambda fd, data, at: written.append((at, len(data))))
    index.add(*record(4, "more"))
    index.flush()
    slot = index_hash("orders#more") % 100_000
    page = Geometry.slot_at(slot - slot % 1024)
    entry = Geometry(100_000, 1000).entry_at(4)
    assert written == [(entry, 20), (page, min(4096, Geometry.slot_at(100_000) - page)), (0, 40)]


# Looking up


def test_the_newest_come_first_across_files_up_to_a_number(make_index):
    index = make_index(entries=4)
    fill(index, *(record(number, "same", seconds=number) for number in range(10)))
    assert index.find("orders", "same", 64, 0, FOREVER) == [number * 100 for number in reversed(range(10))]
    assert index.find("orders", "same", 4, 0, FOREVER) == [900, 800, 700, 600]
    assert index.find("orders", "same", 0, 0, FOREVER) == []


def test_only_messages_of_the_asked_time_are_found(make_index):
    index = make_index(entries=4)
    fill(index, *(record(number, "same", seconds=number) for number in range(9)))
    # The first entry of a later file is told too late, by the time since the file before it: RocketMQ's own way.
    assert index.find("orders", "same", 64, T0 + 1000, T0 + 2000) == [200, 100]
    assert index.find("orders", "same", 64, T0 + 4000, T0 + 5000) == [500, 400, 300]
    assert index.find("orders", "same", 64, T0 + 9000, FOREVER) == []
    assert index.find("orders", "same", 64, 0, T0 - 1) == []


def test_a_chain_is_left_where_it_goes_back_before_the_asked_time(make_index):
    index = make_index(entries=4)
    times = [0, 1, 2, 100, 101, 160]
    fill(index, *(record(number, "same", seconds=seconds) for number, seconds in enumerate(times)))
    # The one of 100 s is told 98 s too late for the reason above, and lies behind the one of 101 s.
    assert index.find("orders", "same", 64, T0 + 150_000, FOREVER) == [500]


def test_another_topic_has_other_keys(make_index):
    index = make_index()
    fill(index, record(1, "same"), record(2, "same", topic="refunds"))
    assert index.find("refunds", "same", 9, 0, FOREVER) == [200]


def test_what_was_only_added_is_found(make_index):
    index = make_index()
    index.add(*record(1, "a", "b c"))
    assert index.find("orders", "c", 9, 0, FOREVER) == [100]


def written(topic: str, properties: bytes, offset: int, stored: int) -> list[bytes]:
    """A record in the pieces in which it is written to the log."""
    length = len(topic).to_bytes(1 if len(topic) < 128 else 2, "big")
    return [head(offset, stored), b"body", length + topic.encode(), len(properties).to_bytes(2, "big"), properties]


def test_what_was_written_is_indexed_as_what_is_added(make_index):
    index = make_index()
    long = "x" * 200
    index.add_written([])
    index.add_written(written(*record(1, "a")) + written(*record(2, "a", "b c", topic=long)))
    index.add(*record(3, "a"))
    index.add_written(written(*record(4, "a")))
    assert index.find("orders", "a", 9, 0, FOREVER) == [400, 300, 100]
    assert index.find(long, "c", 9, 0, FOREVER) == [200]


def test_numpy_waits_for_the_first_entry(tmp_path, make_index):
    fill(index := make_index(), record(1, "a"))
    index.flush()
    code = """
import sys
from pathlib import Path
from pyromq.store.disk import Disk
from pyromq.store.index.index import IndexFiles
index = IndexFiles(Path(sys.argv[1]), 5, 8, Disk(), lambda: 0.0)
index.load()
assert index.find("orders", "a", 9, 0, 2**62) == [100]
index.cut_back(101)
assert index.expire(0) == index.flush() == []
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "index")], check=True)


# Cutting back


@pytest.mark.slow
@given(st.lists(steps, max_size=20), st.integers(0, 25), st.booleans())
@hypothesis_settings(max_examples=60)
def test_cut_back_files_are_as_if_the_rest_had_never_come(tmp_path_factory, steps, cut, crashed):
    folder = tmp_path_factory.mktemp("index")
    index = IndexFiles(folder, 3, 6, Disk(), lambda: T0 / 1000)
    records: list[Record] = []
    for number, (keys, *_) in enumerate(steps):
        records.append(record(number, *keys, seconds=number))
        index.add(*records[-1])
    index.flush()
    index.close()
    index.load(crashed=crashed)
    index.cut_back(cut * 100)
    assert list(index.check()) == []
    kept = plain_index([each for each in records if each[2] < cut * 100], 3, 6)
    assert [content[40:] for content in contents(folder)] == [file.content()[40:] for file in kept]
    for content, file in zip(contents(folder), kept, strict=True):
        header = INDEX_HEADER.unpack_from(content)
        expected = INDEX_HEADER.unpack_from(file.content())
        assert (header[0], *header[2:]) == (expected[0], *expected[2:])
        assert expected[1] <= header[1] <= expected[1] + 999 or len(file.rows) == 1

    for each in records:
        index.add(*each)
    index.flush()
    assert list(index.check()) == []
    for each in records:
        for key in keys_of(each[1]):
            assert each[2] in index.find("orders", key, 100, 0, FOREVER)
    index.close()


def test_new_messages_behind_a_cut_log_are_indexed(make_index):
    index = make_index()
    fill(index, *(record(number, f"old{number}") for number in range(6)))
    index.flush()
    index.cut_back(300)
    fill(index, record(3, "new"))
    assert index.find("orders", "new", 9, 0, FOREVER) == [300]
    assert index.find("orders", "old3", 9, 0, FOREVER) == []
    assert index.find("orders", "old2", 9, 0, FOREVER) == [200]


def test_cutting_back_what_is_not_there_changes_nothing(make_index, tmp_path):
    index = make_index(entries=3)
    fill(index, *(record(number, f"key{number}") for number in range(5)))
    index.flush()
    before = contents(tmp_path / "index")
    index.cut_back(401)
    assert contents(tmp_path / "index") == before


def torn(file: Path, start: int, stop: int) -> None:
    """The bytes from `start` to `stop` never reached the disk."""
    data = bytearray(file.read_bytes())
    data[start:stop] = bytes(len(data[start:stop]))
    file.write_bytes(data)


def test_after_a_crash_a_file_keeps_only_what_makes_sense(make_index, tmp_path):
    first = make_index(slots=5, entries=50)
    fill(first, *(record(number, f"key{number}") for number in range(1, 31)))
    first.flush()
    first.close()
    (file,) = (tmp_path / "index").iterdir()
    geometry = Geometry(5, 50)
    torn(file, geometry.entry_at(20), geometry.entry_at(23) + 7)
    torn(file, geometry.slot_at(1), geometry.slot_at(4))
    index = make_index(slots=5, entries=50, crashed=True)
    index.cut_back(FOREVER)
    assert list(index.check()) == []
    assert index.last_update == (T0, 1900)
    assert index.find("orders", "key19", 9, 0, FOREVER) == [1900]


def test_after_a_crash_a_file_that_the_checkpoint_knows_is_trusted(make_index, tmp_path):
    first = make_index()
    fill(first, *(record(number, f"key{number}", seconds=number) for number in range(1, 4)))
    first.flush()
    first.close()
    before = contents(tmp_path / "index")
    index = make_index(crashed=True, checkpoint_time=T0 + 3000)
    index.cut_back(301)
    assert contents(tmp_path / "index") == before
    assert index.find("orders", "key3", 9, 0, FOREVER) == [300]


def test_a_file_of_which_nothing_is_left_is_deleted(make_index, tmp_path):
    first = make_index()
    fill(first, record(5, "a"))
    first.flush()
    first.close()
    index = make_index(crashed=True)
    index.cut_back(500)
    assert contents(tmp_path / "index") == []
    assert index.last_update == (0, 0)


@pytest.mark.parametrize("next_entry", [-1, 9, 2**31 - 1])
def test_a_damaged_header_is_made_anew(make_index, tmp_path, next_entry):
    first = make_index()
    fill(first, record(1, "a"), record(2, "b"))
    first.flush()
    first.close()
    (file,) = (tmp_path / "index").iterdir()
    sound = file.read_bytes()
    file.write_bytes(sound[:36] + next_entry.to_bytes(4, "big", signed=True) + sound[40:])
    index = make_index()
    assert file.read_bytes() == sound
    assert index.find("orders", "b", 9, 0, FOREVER) == [200]


# Damage


def patch_entry(file: Path, number: int, **fields: int) -> None:
    data = bytearray(file.read_bytes())
    at = Geometry(1, 50).entry_at(number)
    entry = dict(zip(("hash", "offset", "seconds", "previous"), INDEX_ENTRY.unpack_from(data, at), strict=True))
    INDEX_ENTRY.pack_into(data, at, *(entry | fields).values())
    file.write_bytes(data)


@pytest.fixture
def chain(make_index, tmp_path):
    """The path of an index file in which eight entries of one key form one chain."""
    index = make_index(slots=1, entries=50)
    fill(index, *(record(number, "same", seconds=number) for number in range(1, 9)))
    index.flush()
    index.close()
    (file,) = (tmp_path / "index").iterdir()
    return file


@pytest.mark.parametrize("previous", [5, 6, 49, 50, 2**31 - 1, -1, -(2**31)])
def test_a_chain_that_leads_astray_ends_there(make_index, chain, previous):
    patch_entry(chain, 5, previous=previous)
    index = make_index(slots=1, entries=50)
    assert index.find("orders", "same", 64, 0, FOREVER) == [800, 700, 600, 500]
    assert list(check(IndexFile.load(chain, Geometry(1, 50)))) != []


def test_a_negative_time_ends_the_chain(make_index, chain):
    patch_entry(chain, 5, seconds=-1)
    assert make_index(slots=1, entries=50).find("orders", "same", 64, 0, FOREVER) == [800, 700, 600]


@pytest.mark.parametrize("slot", [9, 50, -1, 2**31 - 1])
def test_a_slot_without_an_entry_finds_nothing_and_starts_anew(make_index, chain, slot):
    data = bytearray(chain.read_bytes())
    INDEX_SLOT.pack_into(data, Geometry.slot_at(0), slot)
    chain.write_bytes(data)
    index = make_index(slots=1, entries=50)
    assert index.find("orders", "same", 64, 0, FOREVER) == []
    fill(index, record(9, "same"), record(10, "same"))
    assert index.find("orders", "same", 64, 0, FOREVER) == [1000, 900]


def test_slots_that_point_behind_the_last_entry_are_cleared_on_disk(make_index, tmp_path):
    index = make_index(slots=3000, entries=50)
    fill(index, record(1, "a"), record(2, "b"))
    index.flush()
    index.close()
    (file,) = (tmp_path / "index").iterdir()
    data = bytearray(file.read_bytes())
    for slot in (0, 1500, 2999):
        INDEX_SLOT.pack_into(data, Geometry.slot_at(slot), 3)
    file.write_bytes(data)
    index = make_index(slots=3000, entries=50)
    fill(index, record(3, "c"))
    index.flush()
    assert list(index.check()) == []
    assert index.find("orders", "c", 64, 0, FOREVER) == [300]


def test_a_file_that_shrinks_under_our_hands_is_an_error_with_its_path(make_index, chain):
    index = make_index(slots=1, entries=50)
    os.truncate(chain, 60)
    with pytest.raises(StoreError, match=f"{chain} ends before byte"):
        index.find("orders", "same", 64, 0, FOREVER)
    chain.unlink()
    with pytest.raises(StoreError, match=f"cannot read {chain}"):
        index.find("orders", "same", 64, 0, FOREVER)


@pytest.mark.parametrize(
    ("at", "value", "finding"),
    [
        (16, 99, "begins at offset 100, but its header says 99"),
        (24, 900, "ends at offset 800, but its header says 900"),
        (32, 7 << 32 | 9, "1 slots are in use, but its header says 7"),
        (32, 1 << 32 | 99, "header is damaged"),
        (32, 1 << 32 | 10, "entry 9 is damaged"),
        (32, 1 << 32 | 8, "ends at offset 700, but its header says 800"),
    ],
)
def test_the_checker_finds_a_wrong_header(chain, at, value, finding):
    data = bytearray(chain.read_bytes())
    data[at : at + 8] = value.to_bytes(8, "big")
    chain.write_bytes(data)
    assert finding in "\n".join(check(IndexFile.load(chain, Geometry(1, 50))))


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"previous": 2}, "1 entries are chained wrongly, the first is 4"),
        ({"offset": 299}, "entry 4 is damaged or out of order"),
        ({"offset": 501}, "entry 5 is damaged or out of order"),
        ({"hash": -5}, "entry 4 is damaged or out of order"),
    ],
)
def test_the_checker_finds_a_wrong_entry(chain, fields, finding):
    patch_entry(chain, 4, **fields)
    assert finding in "\n".join(check(IndexFile.load(chain, Geometry(1, 50))))


def test_the_checker_finds_files_out_of_order(make_index, tmp_path):
    index = make_index(entries=3)
    fill(index, *(record(number, f"key{number}") for number in range(1, 5)))
    index.flush()
    index.close()
    first, second = sorted((tmp_path / "index").iterdir())
    first.rename(second.with_name("20990101000000000"))
    index.load()
    assert "the file before it ends at 400" in "\n".join(index.check())


# Full disks


def test_a_full_disk_loses_no_key(make_index, disk, tmp_path):
    index = make_index(entries=4)
    records = [record(number, f"a{number}", f"b{number}") for number in range(9)]
    fill(index, *records[:1])
    disk.is_full = True
    for each in records[1:]:
        index.add(*each)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            index.drain()
    # What has an entry is found; the first file is full and could not be written yet.
    assert index.find("orders", "a0", 9, 0, FOREVER) == [0]
    disk.is_full = False
    index.flush()
    assert contents(tmp_path / "index") == [file.content() for file in plain_index(records, 5, 4)]


def test_a_flush_to_a_full_disk_can_be_repeated(make_index, disk, tmp_path):
    index = make_index()
    fill(index, record(1, "a"))
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        index.flush()
    disk.is_full = False
    assert index.flush() == list((tmp_path / "index").iterdir())
    assert contents(tmp_path / "index") == [plain_index([record(1, "a")], 5, 8)[0].content()]


def test_a_first_file_that_cannot_be_made_is_made_later(make_index, disk, tmp_path):
    index = make_index()
    disk.is_full = True
    index.add(*record(1, "a"))
    with pytest.raises(OSError, match="No space left"):
        index.drain()
    assert index.find("orders", "a", 9, 0, FOREVER) == []
    disk.is_full = False
    index.drain()
    assert index.find("orders", "a", 9, 0, FOREVER) == [100]


def test_a_file_whose_name_cannot_be_synced_is_taken_back(make_index, disk, tmp_path, monkeypatch):
    def fail(folder):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    index = make_index()
    index.add(*record(1, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_folder", fail)
        with pytest.raises(OSError, match="Input/output"):
            index.drain()
    assert list((tmp_path / "index").iterdir()) == []
    index.drain()
    assert index.find("orders", "a", 9, 0, FOREVER) == [100]


def test_names_of_files_are_in_the_order_of_their_messages(make_index, tmp_path):
    index = make_index(entries=3)
    fill(index, *(record(number, f"key{number}") for number in range(9)))
    index.flush()
    headers = [INDEX_HEADER.unpack_from(content) for content in contents(tmp_path / "index")]
    assert all(left[3] <= right[2] for left, right in pairwise(headers))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(16, Geometry(3, 12).size - 1), st.binary(min_size=1, max_size=24)), max_size=5))
@hypothesis_settings(max_examples=150)
def test_whatever_a_crash_left_can_be_read_and_is_whole_after_cutting_back(tmp_path_factory, patches):
    # All but the two times of the header, of which nothing can tell whether they are true.
    folder = tmp_path_factory.mktemp("index")
    index = IndexFiles(folder, 3, 12, Disk(), lambda: T0 / 1000)
    fill(index, *(record(number, f"key{number}", "same", seconds=number) for number in range(1, 5)))
    index.flush()
    index.close()
    (file,) = folder.iterdir()
    data = bytearray(file.read_bytes())
    for at, patch in patches:
        data[at : at + len(patch)] = patch[: len(data) - at]
    file.write_bytes(data)

    index.load()
    assert len(index.find("orders", "same", 64, 0, FOREVER)) <= 11
    list(index.check())
    index.close()
    index.load(crashed=True, checkpoint_time=-1)
    index.cut_back(450)
    assert list(index.check()) == []
    fill(index, record(5, "new"))
    assert index.find("orders", "new", 64, 0, FOREVER)[:1] == [500]
    index.flush()
    assert list(index.check()) == []
    index.close()
