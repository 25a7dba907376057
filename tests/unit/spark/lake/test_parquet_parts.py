"""Files that tasks write."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.spark.lake.lake_rows import NOON, messages, queue

from pyromq.errors import ConfigError
from pyromq.spark.lake.parquet_parts import PartWriter, is_ordered, write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import DataFile, LakeError
from pyromq.spark.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    return Storage.of(str(tmp_path))


def rows_of(lake: Storage, files: Iterable[DataFile]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for file in files:
        table = pq.ParquetFile(lake.path(f"orders/{file.path}")).read()
        assert is_ordered(table)
        assert table.num_rows == file.rows
        assert Path(lake.path(f"orders/{file.path}")).stat().st_size == file.size
        found += zip(*(table[name].to_pylist() for name in ("brokerName", "queueId", "queueOffset")), strict=True)
    return found


def test_a_file_per_day_with_what_readers_skip_by(lake: Storage) -> None:
    late = datetime(2026, 1, 31, 23, 59, 55, tzinfo=UTC)
    files = write_parts(lake, "orders", "7-0", [messages(queue(1), 100, 110, stored=late)])
    assert [file.partition for file in files] == [{"dt": "2026-01-31"}, {"dt": "2026-02-01"}]
    first = files[0]
    assert first.path.startswith("dt=2026-01-31/part-7-0-")
    assert first.rows == 5
    assert (first.minimum["queueOffset"], first.maximum["queueOffset"]) == (100, 104)
    assert first.minimum["storeTimestamp"] == late
    assert first.maximum["storeTimestamp"] == late + timedelta(seconds=4)
    assert first.nulls["brokerName"] == 0
    assert DataFile.from_json(first.to_json()) == first
    table = pq.ParquetFile(lake.path(f"orders/{first.path}")).read()
    assert table.to_pylist() == messages(queue(1), 100, 105, stored=late).to_pylist()
    assert pq.ParquetFile(lake.path(f"orders/{first.path}")).metadata.row_group(0).column(0).compression == "ZSTD"


def test_queues_in_order_make_one_file_however_many_days_they_cross(lake: Storage) -> None:
    batches = [
        messages(queue(number), start, start + 50, stored=NOON + timedelta(hours=start), apart=timedelta(hours=1))
        for number in range(3)
        for start in range(0, 200, 50)
    ]
    files = write_parts(lake, "orders", "1", batches, group=2000, buffer=8000)
    assert len(files) == len({file.partition["dt"] for file in files}) == 9
    assert sorted(rows_of(lake, files)) == [("broker-a", number, at) for number in range(3) for at in range(200)]


def test_rows_in_any_order_are_ordered_in_every_file(lake: Storage) -> None:
    chance = random.Random(19)
    batches = [
        messages(queue(number, broker), start, start + 7, stored=NOON + timedelta(hours=start))
        for broker in ("broker-a", "broker-b")
        for number in range(4)
        for start in range(0, 70, 7)
    ]
    chance.shuffle(batches)
    mixed = pa.Table.from_batches(batches).combine_chunks()
    mixed = mixed.take(pa.array(chance.sample(range(mixed.num_rows), mixed.num_rows)))
    for how in ({}, {"group": 3000, "buffer": 9000}):
        files = write_parts(lake, "orders", "1", mixed.to_batches(max_chunksize=50), **how)
        assert sorted(rows_of(lake, files)) == sorted(
            (broker, number, at) for broker in ("broker-a", "broker-b") for number in range(4) for at in range(70)
        )


def test_a_file_ends_at_a_size(lake: Storage) -> None:
    batches = [messages(queue(), start, start + 10, size=5000) for start in range(0, 100, 10)]
    files = write_parts(lake, "orders", "1", batches, roll=1000, group=1000)
    assert len(files) == 10
    assert len(rows_of(lake, files)) == 100


def test_hours_where_asked_for(lake: Storage) -> None:
    batch = messages(end=3, apart=timedelta(hours=1))
    files = write_parts(lake, "orders", "1", [batch], hourly=True, whole=True)
    assert [file.path.rpartition("/")[0] for file in files] == [f"dt=2026-01-31/hour={hour}" for hour in (12, 13, 14)]
    assert pq.ParquetFile(lake.path(f"orders/{files[1].path}")).read()["hour"].to_pylist() == [13]
    assert pq.ParquetFile(lake.path(f"orders/{files[1].path}")).schema_arrow.field("dt").type == pa.date32()


def test_a_clock_that_was_far_off_has_a_day_too(lake: Storage) -> None:
    batch = messages(end=3).to_pylist()
    times = pa.array([None, -5, 2**62], pa.timestamp("us", tz="UTC"))
    table = pa.RecordBatch.from_pylist(batch, schema=ARROW_SCHEMA)
    at = ARROW_SCHEMA.get_field_index("storeTimestamp")
    files = write_parts(lake, "orders", "1", [table.set_column(at, ARROW_SCHEMA.field(at), times)])
    assert [file.partition["dt"] for file in files] == ["1970-01-01", "9999-12-31"]
    assert [DataFile.from_json(file.to_json()).rows for file in files] == [2, 1]


def test_decoded_columns_stand_behind_those_of_a_message(lake: Storage) -> None:
    more = pa.schema([("total", pa.float64())])
    with PartWriter(lake, "orders", "1", more=more) as writer:
        writer.write(messages(end=2))
        writer.write(messages(start=2, end=4, schema=writer.schema, total=1.5))
        with pytest.raises(ConfigError, match="column total is string, but the table's is double"):
            writer.write(messages(start=4, end=5, schema=pa.schema([*ARROW_SCHEMA, ("total", pa.string())])))
        (file,) = writer.close()
    assert pq.ParquetFile(lake.path(f"orders/{file.path}")).read()["total"].to_pylist() == [None, None, 1.5, 1.5]


def test_a_failed_task_leaves_nothing(lake: Storage) -> None:
    wrong = pa.RecordBatch.from_pylist([{"body": "text"}])
    with pytest.raises(ConfigError, match="column body is string"):
        write_parts(lake, "orders", "1", [messages(end=10), messages(start=10, end=20), wrong], group=100, roll=100)
    assert not list(Path(lake.root).rglob("*.parquet"))


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("a file")
    with pytest.raises(LakeError, match="orders"):
        write_parts(Storage.of(str(tmp_path)), "orders", "1", [messages()])


def test_a_full_disk_is_named(lake: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0))
    folder = Path(lake.path("orders/dt=2026-01-31"))
    folder.mkdir(parents=True)
    (folder / "part-1-000000000000-0000.parquet").symlink_to("/dev/full")  # takes a write as a full disk does
    with pytest.raises(LakeError, match=r"^the disk of file://.* is full$"):
        write_parts(lake, "orders", "1", [messages()])
    assert not list(folder.iterdir())
