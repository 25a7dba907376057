"""Iceberg tables keep the same promises as Delta tables, in a SQLite catalog."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from tests.unit.spark.lake.lake_rows import NOON, add, messages, queue

from pyromq.errors import ConfigError
from pyromq.spark.lake import iceberg, moves, tables
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import Gap, LakeCommit, LakeConflict, LakeError, LakeTable, Move, TableNotFound
from pyromq.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    (tmp_path / "lake").mkdir()
    return Storage.of(
        str(tmp_path / "lake"), {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    )


@pytest.fixture
def orders(lake: Storage) -> LakeTable:
    return tables.open_or_create(lake, "orders", "orders", "main")


def archive(table: LakeTable, lake: Storage, start: int, end: int, number: int = 0, **how: Any) -> Any:
    return add(table, lake, "orders", queue(number), start, end, whole=True, **how)


def foreign(lake: Storage) -> Table:
    """The table without our code."""
    properties = {key.removeprefix("catalog."): value for key, value in lake.options.items()}
    return load_catalog("lake", **properties).load_table("rocketmq.orders")


def offsets(lake: Storage) -> list[tuple[int, int]]:
    """What pyiceberg's own scan reads."""
    found = foreign(lake).scan(selected_fields=("queueId", "queueOffset")).to_arrow()
    return sorted(zip(found["queueId"].to_pylist(), found["queueOffset"].to_pylist(), strict=True))


@pytest.mark.scenario("spark 38")
def test_rows_and_positions_are_one_commit(lake: Storage, orders: LakeTable) -> None:
    """Iceberg mode with SQLite catalog, read by pyiceberg's own scan."""
    empty = orders.snapshot()
    assert (empty.version, empty.positions, orders.files(empty)) == (0, {}, [])
    assert empty.schema.names == [*COLUMNS, "dt"]
    late = datetime(2026, 1, 31, 23, 59, 55, tzinfo=UTC)
    done = archive(orders, lake, 0, 10, stored=late)
    assert (done.version, done.positions) == (1, {queue(): 10})
    assert abs(done.time - datetime.now(UTC)) < timedelta(minutes=1)
    assert tables.open_table(lake, "orders").snapshot() == done
    first, second = sorted(orders.files(done), key=lambda file: file.path)
    assert (first.rows, first.partition, second.partition) == (5, {"dt": "2026-01-31"}, {"dt": "2026-02-01"})
    assert (first.minimum["queueOffset"], first.maximum["queueOffset"]) == (0, 4)
    assert (first.minimum["storeTimestamp"], first.minimum["brokerName"]) == (late, "broker-a")
    assert orders.files(done, until=late + timedelta(seconds=5)) == [first]
    assert orders.files(done, since=late + timedelta(seconds=5)) == [second]
    rows = foreign(lake).scan().to_arrow().sort_by("queueOffset").to_pylist()
    assert [str(row.pop("dt")) for row in rows] == ["2026-01-31"] * 5 + ["2026-02-01"] * 5
    assert rows == messages(queue(), 0, 10, stored=late).to_pylist()
    assert orders.commit(LakeCommit([], [Move(queue(1), 7, 7)], complete=NOON)).positions == {queue(): 10, queue(1): 7}
    assert orders.snapshot().complete == NOON


def test_a_commit_that_does_not_start_where_the_table_is(lake: Storage, orders: LakeTable) -> None:
    archive(orders, lake, 0, 10)
    for start in (5, 11):
        with pytest.raises(LakeConflict, match="queue 0 of orders on broker-a is at 10"):
            archive(orders, lake, start, 20)


@pytest.mark.parametrize("retries", ["0", None])
@pytest.mark.scenario("spark 33")
def test_somebody_commits_between_our_look_and_our_commit(
    lake: Storage, orders: LakeTable, monkeypatch: pytest.MonkeyPatch, retries: str | None
) -> None:
    """One wins each commit, nothing doubled, the loser goes on.

    Also on a table whose property somebody removed, so that pyiceberg would try again by itself.
    """
    if retries is None:
        with foreign(lake).transaction() as transaction:
            transaction.remove_properties("commit.retry.num-retries")
    other = tables.open_table(lake, "orders")
    check = moves.check_moves

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(iceberg, "check_moves", check)
        check(*arguments)
        archive(other, lake, 0, 7)

    monkeypatch.setattr(iceberg, "check_moves", late)
    with pytest.raises(LakeConflict, match="somebody else committed first"):
        archive(orders, lake, 0, 10)
    assert offsets(lake) == [(0, offset) for offset in range(7)]
    assert archive(orders, lake, 7, 9).positions == {queue(): 9}


def test_two_writers_at_once(lake: Storage, orders: LakeTable) -> None:
    def run() -> None:
        mine = tables.open_table(lake, "orders")
        while (at := mine.snapshot().positions.get(queue(), 0)) < 12:
            try:
                archive(mine, lake, at, at + 3)
            except LakeConflict:
                continue

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offsets(lake) == [(0, offset) for offset in range(12)]
    assert orders.snapshot().positions == {queue(): 12}


def test_positions_survive_what_others_do(lake: Storage, orders: LakeTable) -> None:
    gap = Gap(queue(1), 0, 5, NOON)
    orders.commit(LakeCommit([], [Move(queue(1), 0, 5)], [gap]))
    archive(orders, lake, 0, 4)
    foreign(lake).delete("queueOffset = 1")
    assert orders.snapshot().positions == {queue(): 4, queue(1): 5}
    assert orders.gaps() == [gap]
    table = foreign(lake)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert len(foreign(lake).snapshots()) == 1
    assert orders.snapshot().positions == {queue(): 4, queue(1): 5}
    assert orders.gaps() == [gap]
    archive(orders, lake, 4, 5)
    assert offsets(lake) == [(0, 0), (0, 2), (0, 3), (0, 4)]


def test_a_batch_of_a_stream_is_taken_once(lake: Storage, orders: LakeTable) -> None:
    def batch(number: int, start: int, end: int) -> LakeCommit:
        files = write_parts(lake, "orders", "1", [messages(queue(), start, end)], whole=True)
        return LakeCommit(files, [Move(queue(), start, end)], batch=("query-1", number))

    assert [orders.commit(each).version for each in (batch(0, 0, 5), batch(0, 0, 5), batch(1, 5, 6))] == [1, 1, 2]
    assert offsets(lake) == [(0, offset) for offset in range(6)]


def test_decoded_columns_are_added(lake: Storage, orders: LakeTable) -> None:
    archive(orders, lake, 0, 2)
    more = pa.schema([("total", pa.float64()), ("note", pa.string())])
    with_total = messages(queue(), 2, 4, schema=pa.schema([*messages().schema, *more]), total=2.5, note="n")
    files = write_parts(lake, "orders", "1", [with_total], more=more, whole=True)
    done = orders.commit(LakeCommit(files, [Move(queue(), 2, 4)], columns=more))
    assert done.schema.field("note").type == pa.string()
    found = foreign(lake).scan(selected_fields=("queueOffset", "total", "note")).to_arrow().sort_by("queueOffset")
    assert found["total"].to_pylist() == [None, None, 2.5, 2.5]
    with pytest.raises(ConfigError, match=r"column total of .* is double, not string"):
        orders.commit(LakeCommit([], [], columns=pa.schema([("total", pa.string())])))


def test_time_travel_and_replaced_files(lake: Storage, orders: LakeTable) -> None:
    done = [archive(orders, lake, at, at + 1) for at in range(3)]
    assert [each.version for each in done] == [1, 2, 3]
    assert orders.snapshot(version=2) == orders.snapshot(at=done[1].time) == done[1]
    wrong: list[dict[str, Any]] = [{"version": 9}, {"at": datetime(2020, 1, 1, tzinfo=UTC)}]
    for ask in wrong:
        with pytest.raises(TableNotFound, match="has no version"):
            orders.snapshot(**ask)
    old = orders.files(done[2])
    new = write_parts(lake, "orders", "c", [messages(queue(), 0, 3)], whole=True)
    archive(orders, lake, 3, 4)
    after = orders.replace(done[2], old, new)
    assert after.positions == {queue(): 4}
    assert offsets(lake) == [(0, offset) for offset in range(4)]
    with pytest.raises(LakeConflict, match="was replaced by somebody else"):
        orders.replace(done[2], old, new)
    assert [(line.version, line.operation, line.rows, line.files, line.removed) for line in orders.versions(2)] == [
        (5, "compact", 3, 1, 3),
        (4, "archive", 1, 1, 0),
    ]
    assert len(orders.files(done[0])) == 1


def test_what_is_not_there_or_not_ours(lake: Storage, orders: LakeTable) -> None:
    assert tables.list_tables(lake) == ["orders"]
    with pytest.raises(TableNotFound, match=r"there is no table rocketmq\.none"):
        tables.open_table(lake, "none")
    with pytest.raises(ConfigError, match="Iceberg tables need a catalog"):
        tables.open_table(Storage.of(lake.root), "orders", "iceberg")
    properties = {key.removeprefix("catalog."): value for key, value in lake.options.items()}
    catalog = load_catalog("lake", **properties)
    catalog.create_table("rocketmq.other", pa.schema([("x", pa.int32())]), f"file://{lake.root}/other")
    with pytest.raises(LakeError, match="not an archive of a topic"):
        tables.open_table(lake, "other")
    catalog.drop_table("rocketmq.orders")
    with pytest.raises(TableNotFound, match="any more"):
        orders.snapshot()
    broken = Storage.of(lake.root, {"catalog.type": "sql", "catalog.uri": "sqlite:////proc/none/catalog.db"})
    with pytest.raises(LakeError, match=r"^rocketmq[^\n]*unable to open database"):
        tables.list_tables(broken)
