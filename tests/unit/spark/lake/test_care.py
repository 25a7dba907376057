"""Compaction and vacuum: fewer files, the same rows, the same positions, whoever else is at work."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.spark.lake.lake_rows import NOON, add, messages, queue

from pyromq.errors import ConfigError
from pyromq.spark.lake import care, merge, tables
from pyromq.spark.lake.care import Care, allowed_files, group_files
from pyromq.spark.lake.parquet_parts import is_ordered, write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import DataFile, LakeCommit, LakeConflict, LakeError, LakeTable, Move, TableNotFound

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = pytest.mark.slow

TOMORROW = date(2026, 2, 1)
GB = 1 << 30


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    (tmp_path / "lake").mkdir()
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    return Storage.of(str(tmp_path / "lake"), catalog if request.param == "iceberg" else {})


@pytest.fixture
def orders(lake: Storage) -> LakeTable:
    return tables.open_or_create(lake, "orders", "orders", "main")


def archive(table: LakeTable, start: int, end: int, number: int = 0, **how: Any) -> Any:
    return add(table, table.storage, table.name, queue(number), start, end, whole=table.whole, **how)


def rows(table: LakeTable, **at: Any) -> pa.Table:
    """The rows of a version, read from its files."""
    import pyarrow as pa

    snapshot = table.snapshot(**at)
    found = [read(table, file) for file in table.files(snapshot)]
    keys = [("brokerName", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")]
    return pa.concat_tables(found).sort_by(keys)


def read(table: LakeTable, file: DataFile) -> pa.Table:
    return pq.ParquetFile(table.storage.path(f"{table.name}/{file.path}")).read()


def checksum(table: pa.Table) -> str:
    return hashlib.sha256(b"".join(table["body"].to_pylist())).hexdigest()


def test_a_closed_day_becomes_one_file_with_the_same_rows(orders: LakeTable) -> None:
    chance = random.Random(5)
    at = dict.fromkeys(range(3), 0)
    for step in range(30):
        batches, moves = [], []
        for number in range(3):
            end = at[number] + chance.randrange(0, 6)
            batches.append(messages(queue(number), at[number], end, stored=NOON + timedelta(minutes=step)))
            moves.append(Move(queue(number), at[number], end))
            at[number] = end
        files = write_parts(orders.storage, "orders", "t", [b for b in batches if b.num_rows], whole=orders.whole)
        orders.commit(LakeCommit(files, moves))
    archive(orders, at[0], at[0] + 5, stored=NOON + timedelta(days=1))
    before, positions = rows(orders), orders.snapshot().positions
    steps: list[care.CompactionStep] = []
    done = Care(orders).compact(TOMORROW, progress=steps.append)
    assert (done.partitions, done.files_after, done.given_up) == (1, 1, 0)
    assert done.files_before == done.partitions * 30
    assert (steps[-1].done, steps[-1].total) == (done.bytes_before, done.bytes_before)
    assert rows(orders) == before
    assert orders.snapshot().positions == positions
    merged, today = sorted(orders.files(orders.snapshot()), key=lambda file: file.path)
    assert is_ordered(read(orders, merged))
    assert merged.rows + today.rows == before.num_rows
    assert merged.maximum["queueOffset"] == max(at.values()) - 1
    assert [line.operation for line in orders.versions(2)] == ["compact", "archive"]
    assert Care(orders).compact(TOMORROW).files_before == 0
    # An older version is what it was.
    assert len(orders.files(orders.snapshot(version=10))) == 10


def test_more_files_than_are_read_at_once(orders: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "AT_ONCE", 3)
    monkeypatch.setattr(merge, "_MEMORY", 1000)
    monkeypatch.setattr(merge, "_GROUP", 3000)
    batches = [messages(queue(0), at, at + 5, size=300) for at in range(0, 55, 5)]
    for number, batch in enumerate(batches):
        files = write_parts(orders.storage, "orders", "t", [batch], whole=orders.whole)
        orders.commit(LakeCommit(files, [Move(queue(), number * 5, number * 5 + 5)]))
    before = rows(orders)
    assert Care(orders).compact(TOMORROW).files_before == 11
    (file,) = orders.files(orders.snapshot())
    assert is_ordered(read(orders, file))
    assert rows(orders) == before


def test_columns_that_were_added_are_null_in_what_was_there_before(orders: LakeTable) -> None:
    import pyarrow as pa

    more = pa.schema([("total", pa.float64())])
    archive(orders, 0, 2)
    batch = messages(queue(), 2, 4, schema=pa.schema([*messages().schema, *more]), total=2.5)
    files = write_parts(orders.storage, "orders", "t", [batch], more=more, whole=orders.whole)
    orders.commit(LakeCommit(files, [Move(queue(), 2, 4)], columns=more))
    assert Care(orders).compact(TOMORROW).files_after == 1
    assert rows(orders)["total"].to_pylist() == [None, None, 2.5, 2.5]


def file(name: str, size: int, at: int = 0) -> DataFile:
    return DataFile(name, 1, size, {"dt": "2026-01-31"}, {"storeTimestamp": NOON + timedelta(seconds=at)})


@pytest.mark.parametrize(
    "sizes", [[1000] * 300, [GB // 10] * 100, [5 * GB, *([GB // 100] * 400)], [GB // 3] * 40, [0, 0]]
)
def test_no_closed_day_has_more_than_two_files_per_gb_and_one(sizes: list[int]) -> None:
    files = [file(f"{number:04d}", size, number) for number, size in enumerate(sizes)]
    groups = group_files(files)
    merged = {each.path for group in groups for each in group}
    left = len(files) - len(merged) + len(groups)
    assert left <= allowed_files(sum(sizes))
    assert all(group == tuple(sorted(group, key=lambda each: each.path)) for group in groups)
    largest = max((sum(each.size for each in group) for group in groups), default=0)
    assert largest <= max(1.5 * 512 * (1 << 20), 1.2 * max(sizes))


def test_few_files_are_left_alone() -> None:
    assert group_files([file("a", GB), file("b", GB), file("c", 5)]) == []
    assert group_files([]) == []


def test_files_that_others_replace_meanwhile_are_left_to_them(orders: LakeTable) -> None:
    for at in range(4):
        archive(orders, at, at + 1)

    def slow(merges: Any) -> Any:
        done = list(care.merge_here(merges))
        Care(tables.open_table(orders.storage, "orders")).compact(TOMORROW)
        yield from done

    done = Care(orders, slow).compact(TOMORROW)
    assert (done.given_up, done.files_after) == (1, 0)
    assert rows(orders)["queueOffset"].to_pylist() == [0, 1, 2, 3]
    files = [path for path in Path(orders.storage.path("orders")).rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(files) == 5  # four, and the one of the other; ours is gone


@pytest.mark.scenario("spark 36")
def test_readers_archive_compaction_and_vacuum_at_once(orders: LakeTable) -> None:
    """Compaction and vacuum during reads and archiving: counts and checksums stay equal, positions too."""
    archive(orders, 0, 20)
    failures: list[BaseException] = []
    over = threading.Event()

    def forever(work: Any) -> threading.Thread:
        def run() -> None:
            mine = tables.open_table(orders.storage, "orders")
            try:
                while not over.is_set():
                    work(mine)
            except BaseException as exc:
                failures.append(exc)
                over.set()

        return threading.Thread(target=run)

    def check(mine: LakeTable) -> None:
        snapshot = mine.snapshot()
        found = rows(mine, version=snapshot.version)
        assert found["queueOffset"].to_pylist() == list(range(snapshot.positions[queue()]))
        assert checksum(found) == checksum(messages(queue(), 0, found.num_rows))

    def keep(mine: LakeTable) -> None:
        Care(mine).compact(TOMORROW)
        care.vacuum(mine)

    threads = [forever(check), forever(keep)]
    for thread in threads:
        thread.start()
    writer = tables.open_table(orders.storage, "orders")
    conflicts = 0
    while (at := writer.snapshot().positions[queue()]) < 150 and not over.is_set():
        try:
            archive(writer, at, at + 5)
        except LakeConflict:
            conflicts += 1
    over.set()
    for thread in threads:
        thread.join()
    assert not failures
    check(orders)
    Care(orders).compact(TOMORROW)
    check(orders)
    assert len(orders.files(orders.snapshot())) == 1
    assert orders.snapshot().positions == {queue(): 150}


def test_vacuum_removes_what_nobody_needs(orders: LakeTable) -> None:
    for at in range(4):
        archive(orders, at, at + 1)
    old = orders.snapshot()
    lost = write_parts(orders.storage, "orders", "lost", [messages(end=3)], whole=orders.whole)
    fresh = write_parts(orders.storage, "orders", "fresh", [messages(end=3)], whole=orders.whole)
    Care(orders).compact(TOMORROW)
    with pytest.raises(ConfigError, match="vacuum keeps 7 days"):
        care.vacuum(orders, timedelta(days=6))
    for path in Path(orders.storage.path("orders")).rglob("*.parquet"):
        if fresh[0].path not in str(path) and "_delta_log" not in path.parts:
            os.utime(path, (1, 1))
    would = care.vacuum(orders, dry_run=True)
    assert would == [lost[0].path]
    assert care.vacuum(orders) == would
    assert len(orders.files(old)) == 4  # removed less than seven days ago
    assert rows(orders)["queueOffset"].to_pylist() == [0, 1, 2, 3]
    assert fresh[0].path in care.vacuum(orders, timedelta(0), force=True)
    assert not list(Path(orders.storage.path("orders")).rglob("part-t-*"))
    with pytest.raises(TableNotFound, match=r"version 4 .*|no version 4"):
        orders.files(old)
    assert rows(orders)["queueOffset"].to_pylist() == [0, 1, 2, 3]
    assert orders.snapshot().positions == {queue(): 4}


def test_a_file_that_somebody_deleted_is_named(orders: LakeTable) -> None:
    for at in range(4):
        archive(orders, at, at + 1)
    Path(orders.storage.path(f"orders/{orders.files(orders.snapshot())[0].path}")).unlink()
    with pytest.raises(LakeError, match="lacks a file"):
        Care(orders).compact(TOMORROW)
    assert not list(Path(orders.storage.path("orders")).rglob("part-compact-*"))


def test_what_a_day_has(orders: LakeTable) -> None:
    archive(orders, 0, 4)
    archive(orders, 4, 6, stored=NOON + timedelta(days=1))
    found = care.days(orders.files(orders.snapshot()))
    assert [(day.partition, day.files, day.rows, day.allowed) for day in found] == [
        ("dt=2026-01-31", 1, 4, 1),
        ("dt=2026-02-01", 1, 2, 1),
    ]


def test_a_table_that_was_compacted_by_others_too(tmp_path: Path) -> None:
    lake = Storage.of(str(tmp_path))
    orders = tables.open_or_create(lake, "orders", "orders", "main")
    for at in range(5):
        archive(orders, at, at + 1, stored=datetime(2026, 1, 31, tzinfo=UTC) + timedelta(minutes=at))
    DeltaTable(lake.path("orders")).optimize.compact()
    archive(orders, 5, 6)
    assert Care(orders).compact(TOMORROW).files_before == 2
    assert DeltaTable(lake.path("orders")).to_pyarrow_table().num_rows == 6
    assert orders.snapshot().positions == {queue(): 6}
