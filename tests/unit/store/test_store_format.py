"""File names and layouts: what belongs into a store, and what keeps one from opening."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.store.kit import files_of, put, small

from pyromq.errors import StoreError
from pyromq.store import MessageStore
from pyromq.store.format import (
    BATCH_ENTRY,
    CONSUME_QUEUE_EXT,
    ENTRY,
    EXT_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    PRE_BLANK,
    index_size,
    queue_folders,
    refuse_foreign_store,
    segment_files,
    segment_name,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_sizes_are_those_of_rocketmq():
    assert (ENTRY.size, EXT_UNIT.size, BATCH_ENTRY.size) == (20, 20, 46)
    assert (INDEX_HEADER.size, INDEX_ENTRY.size) == (40, 20)
    assert index_size(5_000_000, 20_000_000) == 420_000_040


def test_a_segment_is_named_for_its_first_byte():
    assert segment_name(0) == "0" * 20
    assert segment_name(1_073_741_824) == "00000000001073741824"


@pytest.mark.scenario("store T8")
def test_the_filler_is_that_of_rocketmq():
    assert PRE_BLANK.hex() == "00000000000000007fffffff0000000000000000"


def test_segments_are_listed_in_order(tmp_path):
    for start in (200, 0, 100):
        (tmp_path / segment_name(start)).write_bytes(bytes(100))
    (tmp_path / "folder").mkdir()
    assert [file.start for file in segment_files(tmp_path, 100)] == [0, 100, 200]
    assert segment_files(tmp_path / "nowhere", 100) == []


@pytest.mark.scenario("store 27")
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("stray.txt", 100),
        (".hidden", 0),
        ("00000000000000000100.tmp", 100),
        ("100", 100),
        ("0000000000000000010٠", 100),
        (segment_name(100), 99),
        (segment_name(100), 101),
        (segment_name(150), 100),
    ],
)
def test_what_does_not_belong_among_segments_is_named(tmp_path, name, size):
    (tmp_path / segment_name(0)).write_bytes(bytes(100))
    (tmp_path / segment_name(300)).write_bytes(bytes(100))
    (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(StoreError) as refused:
        segment_files(tmp_path, 100)
    assert str(tmp_path / name) in str(refused.value)


def test_an_empty_file_is_passed_over_at_the_end_only(tmp_path):
    (tmp_path / segment_name(0)).write_bytes(bytes(100))
    (tmp_path / segment_name(100)).touch()
    removed: list[Path] = []
    assert [file.start for file in segment_files(tmp_path, 100)] == [0]
    assert [file.start for file in segment_files(tmp_path, 100, remove_empty=removed.append)] == [0]
    assert removed == [tmp_path / segment_name(100)]
    (tmp_path / segment_name(200)).write_bytes(bytes(100))
    with pytest.raises(StoreError, match="has 0 bytes"):
        segment_files(tmp_path, 100)


@pytest.mark.scenario("store 27")
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
@pytest.mark.parametrize(("name", "size"), [("notes", 3), (segment_name(4000), 77)])
def test_a_store_with_a_stray_file_is_refused_and_left_alone(stores, store, folder, name, size):
    put(store, b"a")
    stores.close(store)
    stray = stores.root / folder / name
    stray.write_bytes(bytes(size))
    before = files_of(stores.root)
    with pytest.raises(StoreError) as refused:
        MessageStore(store.config, clock=stores.clock).open()
    assert str(stray) in str(refused.value)
    assert files_of(stores.root) == before
    stray.unlink()
    again = stores.start(store.config)
    put(again, b"b")


@pytest.mark.parametrize(
    "changes",
    [{"commit_log_file_size": 8192}, {"consume_queue_file_size": 400}, {"hash_slots": 21}, {"index_entries": 101}],
)
def test_a_store_does_not_open_with_other_sizes(stores, store, changes):
    put(store, b"a", keys="k")
    stores.close(store)
    with pytest.raises(StoreError, match="changed"):
        MessageStore(small(stores.root, **changes), clock=stores.clock).open()


def test_the_size_of_queue_files_is_rounded_up_to_whole_entries(stores):
    store = stores.open(consume_queue_file_size=195)
    put(store, b"a")
    stores.close(store)
    assert (stores.root / "consumequeue/T/0" / segment_name(0)).stat().st_size == 200


def test_queues_are_folders_whose_names_are_numbers(tmp_path):
    for name in ("A/0", "A/11", "B/2", "B/x", "B/-1", "B/٣", "C"):
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    (tmp_path / "consumequeue" / "file").touch()
    (tmp_path / "consumequeue" / "A" / "7").touch()
    assert [(topic, queue_id) for topic, queue_id, _ in queue_folders(tmp_path)] == [("A", 0), ("A", 11), ("B", 2)]
    assert list(queue_folders(tmp_path, CONSUME_QUEUE_EXT)) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("consumequeue/CURRENT", "RocksDB"),
        ("dledger-n0/data", "DLedger"),
        ("batchconsumequeue/Batches/0/" + segment_name(0), "queue of batches (topic Batches)"),
    ],
)
def test_a_store_of_another_kind_is_refused_with_a_sentence(tmp_path, path, said):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    with pytest.raises(StoreError) as refused:
        MessageStore(small(tmp_path)).open()
    assert said in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_folders_that_only_could_hold_a_foreign_store_are_no_reason_to_refuse(tmp_path):
    (tmp_path / "rocksdbstore").mkdir()
    (tmp_path / "rocksdbstore" / "CURRENT").touch()
    (tmp_path / "batchconsumequeue" / "T" / "0").mkdir(parents=True)
    refuse_foreign_store(tmp_path)


@pytest.mark.scenario("store 4")
def test_unknown_files_are_left_as_they_are(stores):
    files = {
        "abort.bak": b"",
        "timerwheel": bytes(640),
        "timerlog/00000000000000000000": bytes(520),
        "config/timercheck": b"\1" * 4096,
        "config/topicQueueMapping.json": b"{}",
        "compaction/x/y": b"z",
        "rocksdbstore/CURRENT": b"MANIFEST",
        "epochFileCheckpoint": b"1-0",
    }
    for name, content in files.items():
        (stores.root / name).parent.mkdir(parents=True, exist_ok=True)
        (stores.root / name).write_bytes(content)
    store = stores.open()
    put(store, b"a")
    stores.close(stores.crash(store))
    stores.close(store)
    assert {name: (stores.root / name).read_bytes() for name in files} == files
