"""What tests of the archive share: tables read back by others' code, and a lake to archive into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from pyromq.spark.lake.archive import ArchiveSummary, archive

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


def query(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB reads of a Delta table's files, which delta-rs lists; none of our code is in between."""
    from deltalake import DeltaTable

    if not (folder / "_delta_log").exists():
        return []
    files = DeltaTable(folder).file_uris()
    with duckdb.connect() as database:
        if not files:
            return []
        read = f"read_parquet({files!r}, hive_partitioning = true, union_by_name = true)"
        database.execute(f"CREATE VIEW rows AS SELECT * FROM {read}")
        return database.execute(sql).fetchall()


def offsets(folder: Path) -> dict[tuple[str, int], list[int]]:
    """The offsets of each queue in a table, in order, as often as they are there."""
    found: dict[tuple[str, int], list[int]] = {}
    for broker, number, offset in query(folder, "SELECT brokerName, queueId, queueOffset FROM rows ORDER BY ALL"):
        found.setdefault((broker, number), []).append(offset)
    return found


def are_dense(found: Mapping[tuple[str, int], list[int]], wanted: Collection[int] | None = None) -> bool:
    """Whether each queue has every offset from 0 on, once; and whether these are the queues, if given."""
    numbers = {number for _, number in found}
    is_whole = all(each == list(range(len(each))) for each in found.values())
    return is_whole and (wanted is None or numbers == {*wanted})


def iceberg_offsets(catalog: Mapping[str, str], name: str) -> dict[tuple[str, int], list[int]]:
    """The same of an Iceberg table, as pyiceberg's own scan has it."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = load_catalog("lake", **catalog).load_table(f"rocketmq.{name}")
    except NoSuchTableError:
        return {}
    rows = table.scan(selected_fields=("brokerName", "queueId", "queueOffset")).to_arrow().to_pylist()
    found: dict[tuple[str, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: row["queueOffset"]):
        found.setdefault((row["brokerName"], row["queueId"]), []).append(row["queueOffset"])
    return found


class Lake:
    """A lake in a folder, and the archive into it of one Spark and one cluster."""

    def __init__(self, spark: Any, namesrv: str, folder: Path) -> None:
        self.spark = spark
        self.namesrv = namesrv
        self.folder = folder

    def table(self, topic: str) -> Path:
        return self.folder / topic.replace("-", "_")

    def archive(self, *topics: str, **options: Any) -> ArchiveSummary:
        given: dict[str, Any] = {"namesrv": self.namesrv, "root": str(self.folder), "once": True, **options}
        return archive(self.spark, topics, **given)
