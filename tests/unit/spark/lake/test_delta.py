"""Delta tables: rows and positions in one commit, whoever else commits and whatever becomes of the log."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import CommitProperties, Transaction
from tests.unit.spark.lake.lake_rows import NOON, add, messages, queue

from pyromq.errors import ConfigError
from pyromq.spark.lake import delta, tables
from pyromq.spark.lake.parquet_parts import failed, write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import Gap, LakeCommit, LakeConflict, LakeError, LakeTable, Move, TableNotFound
from pyromq.spark.schema import COLUMNS

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    return Storage.of(str(tmp_path / "lake"))


@pytest.fixture
def orders(lake: Storage) -> LakeTable:
    return tables.open_or_create(lake, "orders", "orders", "main")


def table(lake: Storage) -> DeltaTable:
    return DeltaTable(lake.path("orders"))


def offsets(lake: Storage) -> list[tuple[int, int]]:
    """What delta-rs alone reads."""
    found = table(lake).to_pyarrow_table(columns=["queueId", "queueOffset"])
    return sorted(zip(found["queueId"].to_pylist(), found["queueOffset"].to_pylist(), strict=True))


def test_a_new_table_is_empty(lake: Storage, orders: LakeTable) -> None:
    first = orders.snapshot()
    assert (first.version, first.positions) == (0, {})
    assert first.schema.names == [*COLUMNS, "dt"]
    assert orders.files(first) == []
    assert orders.gaps() == []
    assert (orders.topic, orders.cluster, orders.location) == ("orders", "main", lake.uri("orders"))
    assert tables.list_tables(lake) == ["orders"]
    assert tables.open_or_create(lake, "orders", "orders", "main").snapshot().version == 0


def test_rows_and_positions_are_one_commit(lake: Storage, orders: LakeTable) -> None:
    two = [messages(queue(0), 5, 15), messages(queue(1), 0, 3)]
    moves = [Move(queue(0), 5, 15), Move(queue(1), 0, 3), Move(queue(2), 0, 0)]
    done = orders.commit(LakeCommit(write_parts(lake, "orders", "1", two), moves))
    assert done.version == 1
    assert done.positions == {queue(0): 15, queue(1): 3, queue(2): 0}
    assert abs(done.time - datetime.now(UTC)) < timedelta(minutes=1)
    assert done.complete is None
    assert orders.snapshot() == done
    assert tables.open_table(lake, "orders").snapshot() == done
    (file,) = orders.files(done)
    assert (file.rows, file.partition) == (13, {"dt": "2026-01-31"})
    assert (file.minimum["queueOffset"], file.maximum["queueOffset"]) == (0, 14)
    assert file.minimum["storeTimestamp"] == NOON
    assert orders.files(done, since=NOON + timedelta(days=1)) == orders.files(done, until=NOON) == []
    assert orders.files(done, since=NOON, until=NOON + timedelta(seconds=1)) == [file]


@pytest.mark.scenario("spark 38")
def test_readers_that_do_not_know_us_read_the_same(lake: Storage, orders: LakeTable) -> None:
    """Table read by DuckDB/delta-rs without our code / equal rows."""
    add(orders, lake, "orders", queue(), 0, 10, stored=datetime(2026, 1, 31, 23, 59, 55, tzinfo=UTC))
    add(orders, lake, "orders", queue(1), 0, 5)
    expected = pa.Table.from_batches(
        [messages(queue(), 0, 10, stored=datetime(2026, 1, 31, 23, 59, 55, tzinfo=UTC)), messages(queue(1), 0, 5)]
    ).to_pylist()
    by_place = lambda row: (row["queueId"], row["queueOffset"])  # noqa: E731
    rows = table(lake).to_pyarrow_table().to_pylist()
    days = {(row["queueId"], row["queueOffset"]): str(row.pop("dt")) for row in rows}
    assert sorted(rows, key=by_place) == expected
    assert (days[0, 4], days[0, 5]) == ("2026-01-31", "2026-02-01")
    # DuckDB's own reader of Delta's log is an extension that it downloads; of the files it needs nothing.
    query = f"SELECT queueId, queueOffset, body, dt FROM read_parquet({table(lake).file_uris()}) ORDER BY ALL"
    assert duckdb.connect().execute(query).fetchall() == [
        (row["queueId"], row["queueOffset"], row["body"], date.fromisoformat(days[row["queueId"], row["queueOffset"]]))
        for row in expected
    ]


def test_a_commit_that_does_not_start_where_the_table_is(lake: Storage, orders: LakeTable) -> None:
    add(orders, lake, "orders", queue(), 0, 10)
    for start in (5, 11):
        with pytest.raises(LakeConflict, match="queue 0 of orders on broker-a is at 10"):
            add(orders, lake, "orders", queue(), start, 20)
    assert orders.snapshot().version == 1
    for wrong in ([Move(queue(), 10, 9)], [Move(queue(), 10, 11), Move(queue(), 11, 12)]):
        with pytest.raises(ValueError, match="queue 0"):
            orders.commit(LakeCommit([], wrong))


@pytest.mark.scenario("spark 33")
def test_somebody_commits_between_our_look_and_our_commit(
    lake: Storage, orders: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two archivers on one topic / run / one wins each commit, nothing doubled, the loser goes on."""
    other = tables.open_table(lake, "orders")
    write = delta.DeltaLakeTable._write

    def late(self: Any, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(delta.DeltaLakeTable, "_write", write)
        add(other, lake, "orders", queue(), 0, 7)
        return write(self, *arguments, **options)

    monkeypatch.setattr(delta.DeltaLakeTable, "_write", late)
    with pytest.raises(LakeConflict, match="somebody else committed first"):
        add(orders, lake, "orders", queue(), 0, 10)
    assert offsets(lake) == [(0, offset) for offset in range(7)]

    def another_queue(self: Any, *arguments: Any, **options: Any) -> Any:  # is nobody's conflict
        monkeypatch.setattr(delta.DeltaLakeTable, "_write", write)
        add(other, lake, "orders", queue(1), 0, 4)
        return write(self, *arguments, **options)

    monkeypatch.setattr(delta.DeltaLakeTable, "_write", another_queue)
    assert add(orders, lake, "orders", queue(), 7, 9).positions == {queue(): 9, queue(1): 4}
    assert orders.snapshot().positions == {queue(): 9, queue(1): 4}


@pytest.mark.scenario("spark 33")
def test_many_writers_at_once(lake: Storage, orders: LakeTable) -> None:
    """With threads that go on where the table is."""
    conflicts = []

    def archive() -> None:
        mine = tables.open_table(lake, "orders")
        while (at := mine.snapshot().positions.get(queue(), 0)) < 24:
            try:
                add(mine, lake, "orders", queue(), at, at + 3)
            except LakeConflict as exc:
                conflicts.append(exc)

    threads = [threading.Thread(target=archive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offsets(lake) == [(0, offset) for offset in range(24)]
    assert orders.snapshot().positions == {queue(): 24}


def test_two_make_the_same_table(lake: Storage) -> None:
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(tables.open_or_create(lake, "orders", "orders", "main")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.snapshot().version for each in made] == [0] * 4


def clean_up(lake: Storage) -> None:
    """What happens to a log after 30 days."""
    table(lake).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    for path in Path(lake.path("orders/_delta_log")).iterdir():
        os.utime(path, (1, 1))
    table(lake).cleanup_metadata()


def test_positions_survive_checkpoints_and_clean_up_of_the_log(lake: Storage, orders: LakeTable) -> None:
    gap = Gap(queue(1), 0, 5, NOON)
    orders.commit(LakeCommit([], [Move(queue(1), 0, 5)], [gap]))
    for at in range(0, 40, 2):
        add(orders, lake, "orders", queue(), at, at + 2)
    log = Path(lake.path("orders/_delta_log"))
    at = json.loads((log / "_last_checkpoint").read_text())["version"]
    assert at == 19
    clean_up(lake)
    assert min(path.stem for path in log.glob("*.json")) == f"{at:020d}"
    fresh = tables.open_table(lake, "orders")
    assert fresh.snapshot().positions == {queue(): 40, queue(1): 5}
    assert fresh.snapshot(version=20).positions == {queue(): 38, queue(1): 5}
    assert fresh.gaps() == [gap]
    assert [line.version for line in fresh.versions()] == [22, 21, 20, 19]
    for gone in (3, 23):
        with pytest.raises(TableNotFound, match=f"version {gone}"):
            fresh.snapshot(version=gone)
    # A reader that was there all the time sees no difference.
    assert orders.snapshot().positions == fresh.snapshot().positions
    for at in range(40, 44):
        add(fresh, lake, "orders", queue(), at, at + 1)
    table(lake).create_checkpoint()
    for path in log.glob("*.json"):
        path.unlink()
    assert orders.snapshot().positions == {queue(): 44, queue(1): 5}
    assert orders.snapshot().time > NOON


def test_checkpoints_of_other_writers(lake: Storage, orders: LakeTable) -> None:
    """Several parts, as Spark writes them for large tables, or a unique name."""
    for at in range(4):
        add(orders, lake, "orders", queue(at), 0, 2)
    log = Path(lake.path("orders/_delta_log"))
    table(lake).create_checkpoint()
    import pyarrow.parquet as pq

    whole = log / f"{4:020d}.checkpoint.parquet"
    rows = pq.read_table(whole)
    half = rows.num_rows // 2
    for part, piece in enumerate((rows.slice(0, half), rows.slice(half)), 1):
        pq.write_table(piece, log / f"{4:020d}.checkpoint.{part:010d}.{2:010d}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").write_text(json.dumps({"version": 4, "size": rows.num_rows, "parts": 2}))
    for path in log.glob("*.json"):
        path.unlink()
    assert tables.open_table(lake, "orders").snapshot().positions == {queue(at): 2 for at in range(4)}


def test_a_batch_of_a_stream_is_taken_once(lake: Storage, orders: LakeTable) -> None:
    def batch(number: int, start: int, end: int) -> LakeCommit:
        files = write_parts(lake, "orders", "1", [messages(queue(), start, end)])
        return LakeCommit(files, [Move(queue(), start, end)], batch=("query-1", number))

    assert orders.commit(batch(0, 0, 5)).version == 1
    assert orders.commit(batch(0, 0, 5)).version == 1
    assert orders.commit(batch(1, 5, 6)).version == 2
    assert orders.commit(batch(0, 0, 5)).version == 2
    assert offsets(lake) == [(0, offset) for offset in range(6)]


def test_a_table_knows_up_to_when_it_is_complete(lake: Storage, orders: LakeTable) -> None:
    assert orders.commit(LakeCommit([], [Move(queue(), 0, 0)], complete=NOON)).complete == NOON
    assert add(orders, lake, "orders", queue(), 0, 4).complete == NOON
    assert tables.open_table(lake, "orders").snapshot().complete == NOON
    assert orders.snapshot(version=0).complete is None


def test_decoded_columns_are_added(lake: Storage, orders: LakeTable) -> None:
    add(orders, lake, "orders", queue(), 0, 2)
    more = pa.schema([("total", pa.float64())])
    with_total = messages(queue(), 2, 4, schema=pa.schema([*messages().schema, *more]), total=2.5)
    files = write_parts(lake, "orders", "1", [with_total], more=more)
    done = orders.commit(LakeCommit(files, [Move(queue(), 2, 4)], columns=more))
    assert done.schema.names == [*COLUMNS, "dt", "total"]
    found = table(lake).to_pyarrow_table(columns=["queueOffset", "total"]).sort_by("queueOffset")
    assert found["total"].to_pylist() == [None, None, 2.5, 2.5]
    again = LakeCommit(write_parts(lake, "orders", "1", [messages(queue(), 4, 5)]), [Move(queue(), 4, 5)], columns=more)
    assert orders.commit(again).version == done.version + 1
    with pytest.raises(ConfigError, match=r"column total of .* is double, not string"):
        orders.commit(LakeCommit([], [], columns=pa.schema([("total", pa.string())])))


def test_time_travel(lake: Storage, orders: LakeTable) -> None:
    done = [add(orders, lake, "orders", queue(), at, at + 1) for at in range(3)]
    assert [each.version for each in done] == [1, 2, 3]
    assert orders.snapshot(version=2) == done[1]
    assert orders.snapshot(at=done[1].time) == done[1]
    assert orders.snapshot(at=datetime.now(UTC)) == done[2]
    with pytest.raises(TableNotFound, match="has no version that was there at 2020-01-01"):
        orders.snapshot(at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(TableNotFound, match="has no version 9; the newest is 3"):
        orders.snapshot(version=9)
    assert len(orders.files(done[0])) == 1
    lines = orders.versions()
    assert [(line.version, line.operation, line.rows, line.files) for line in lines] == [
        (3, "archive", 1, 1),
        (2, "archive", 1, 1),
        (1, "archive", 1, 1),
        (0, "create", 0, 0),
    ]
    assert orders.versions(limit=2) == lines[:2]


def test_files_are_replaced_only_if_nobody_else_did(lake: Storage, orders: LakeTable) -> None:
    for at in range(3):
        add(orders, lake, "orders", queue(), at, at + 1)
    before = orders.snapshot()
    old = orders.files(before)
    new = write_parts(lake, "orders", "c", [messages(queue(), 0, 3)])
    add(orders, lake, "orders", queue(), 3, 4)  # an archive that goes on is no conflict
    done = orders.replace(before, old, new)
    assert done.positions == {queue(): 4}
    assert offsets(lake) == [(0, offset) for offset in range(4)]
    with pytest.raises(LakeConflict, match="was replaced by somebody else"):
        orders.replace(before, old, write_parts(lake, "orders", "c", [messages(queue(), 0, 3)]))
    assert [line.operation for line in orders.versions(limit=1)] == ["compact"]


def test_somebody_replaces_files_at_the_same_time(
    lake: Storage, orders: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(3):
        add(orders, lake, "orders", queue(), at, at + 1)
    before = orders.snapshot()
    new = write_parts(lake, "orders", "c", [messages(queue(), 0, 3)])
    write = delta.DeltaLakeTable._write

    def late(self: Any, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(delta.DeltaLakeTable, "_write", write)
        table(lake).optimize.compact()  # a tool that knows nothing of us
        return write(self, *arguments, **options)

    monkeypatch.setattr(delta.DeltaLakeTable, "_write", late)
    with pytest.raises(LakeConflict):
        orders.replace(before, orders.files(before), new)
    assert offsets(lake) == [(0, offset) for offset in range(3)]
    assert orders.snapshot().positions == {queue(): 3}


def test_names_that_look_alike_and_other_clusters(lake: Storage, orders: LakeTable) -> None:
    tables.open_or_create(lake, "a_b", "a-b", "main")
    with pytest.raises(ConfigError, match="table a_b has the messages of topic a-b; give a_b an alias"):
        tables.open_or_create(lake, "a_b", "a_b", "main")
    with pytest.raises(ConfigError, match="in cluster main; give that of other an alias"):
        tables.open_or_create(lake, "orders", "orders", "other")
    assert tables.find_table(lake, "a-b").name == tables.find_table(lake, "a_b").name == "a_b"
    tables.open_or_create(lake, "pay", "payments", "main", hourly=True)
    assert tables.find_table(lake, "payments").name == "pay"
    assert tables.find_table(lake, "payments").hourly
    with pytest.raises(TableNotFound, match="has no table nothing"):
        tables.find_table(lake, "nothing")


def test_a_table_that_is_deleted(lake: Storage, orders: LakeTable) -> None:
    add(orders, lake, "orders", queue(), 0, 2)
    shutil.rmtree(lake.path("orders"))
    for ask in (orders.snapshot, orders.gaps, orders.versions, lambda: add(orders, lake, "orders", queue(), 2, 3)):
        with pytest.raises(TableNotFound, match="there is no table at file://"):
            ask()
    with pytest.raises(TableNotFound):
        tables.open_table(lake, "orders")


def test_what_others_do_to_a_table(lake: Storage, orders: LakeTable) -> None:
    add(orders, lake, "orders", queue(), 0, 4)
    foreign = table(lake)
    foreign.create_write_transaction(
        [],
        "append",
        foreign.schema(),
        ["dt"],
        commit_properties=CommitProperties(app_transactions=[Transaction("x", 7)]),
    )
    table(lake).delete("queueOffset = 1")
    assert orders.snapshot().positions == {queue(): 4}
    assert add(orders, lake, "orders", queue(), 4, 5).positions == {queue(): 5}
    assert offsets(lake) == [(0, 0), (0, 2), (0, 3), (0, 4)]
    table(lake).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(ConfigError, match="forgets positions: remove its property"):
        add(orders, lake, "orders", queue(), 5, 6)
    pa_table = pa.table({"x": [1]})
    from deltalake import write_deltalake

    write_deltalake(lake.path("foreign"), pa_table)
    with pytest.raises(LakeError, match="is a Delta table, but not an archive of a topic"):
        tables.open_table(lake, "foreign")


def test_a_damaged_log(lake: Storage, orders: LakeTable) -> None:
    add(orders, lake, "orders", queue(), 0, 4)
    newest = Path(lake.path("orders/_delta_log")) / f"{1:020d}.json"
    newest.write_bytes(newest.read_bytes()[:-30])
    with pytest.raises(LakeError, match=r"^the log of file://.*/orders is damaged: [^\n]*$"):
        tables.open_table(lake, "orders").snapshot()
    with pytest.raises(ConfigError, match=r"a lake has tables in the format delta.*, not 'avro'"):
        tables.open_table(lake, "orders", "avro")
    full = OSError("Generic LocalFileSystem error \x1b[31m↳\x1b[0m No space left on device (os error 28)")  # delta-rs's
    assert str(failed(lake, orders.location, full)) == f"the disk of {orders.location} is full"
