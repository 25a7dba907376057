"""Compaction of a day's small files: ours, which keeps the order of rows, next to `OPTIMIZE` of delta-rs alone."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark import options as known
from pyromq.spark.lake.care import Care
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import LakeCommit, Move
from pyromq.spark.lake.tables import open_or_create, open_table
from pyromq.spark.log.plan import plan
from pyromq.spark.log.reader import read
from pyromq.spark.schema import ARROW_SCHEMA

from .spark_kit import Results, best, fill, folder, is_quick, rate, rounds

if TYPE_CHECKING:
    from pathlib import Path

COUNTS = {1024: 240_000, 128: 960_000}
FILES = 100  # of a day, as an archive leaves them that commits every few minutes
NAME = "topic_0"


def main(seconds: float) -> None:
    results = Results("compaction of a day, in one process")
    with folder() as scratch:
        for body, count in COUNTS.items():
            count = count // 8 if is_quick(seconds) else count
            made = scratch / f"lake-{body}"
            _fill(made, scratch / f"store-{body}", count, body)
            _contest(made, scratch, count, f"{body} B", results, rounds(seconds))
            shutil.rmtree(made)
    results.show()


def _fill(lake: Path, store: Path, count: int, body: int) -> None:
    [topic] = fill(store, count, body, queues=1)
    storage = Storage.of(str(lake))
    table = open_or_create(storage, NAME, topic, "DefaultCluster")
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    options = known.parse(known.LogOptions, {"path": str(store), "topics": topic, "brokerName": "broker-a"})
    rows = pa.Table.from_batches([batch for part in plan(options) for batch in read(part, options, ARROW_SCHEMA)])
    # Of a day that is over.
    stored = pa.repeat(pa.scalar(datetime.now(UTC) - timedelta(days=2), pa.timestamp("us", "UTC")), count)
    at = rows.schema.get_field_index("storeTimestamp")
    rows = rows.set_column(at, rows.schema.field(at), stored)
    for number in range(FILES):
        start, end = count * number // FILES, count * (number + 1) // FILES
        files = write_parts(storage, NAME, str(number), rows.slice(start, end - start).combine_chunks().to_batches())
        table.commit(LakeCommit(files, [Move(queue, start, end)]))
    shutil.rmtree(store)


def _contest(made: Path, scratch: Path, count: int, what: str, results: Results, times: int) -> None:
    from deltalake import DeltaTable

    def ours() -> float:
        copied = Storage.of(_copy(made, scratch / "ours"))
        begin = datetime.now(UTC)
        done = Care(open_table(copied, NAME)).compact()
        took = (datetime.now(UTC) - begin).total_seconds()
        assert (done.rows, done.files_before, done.given_up) == (count, FILES, 0)
        return took

    def theirs() -> float:
        copied = _copy(made, scratch / "theirs")
        begin = datetime.now(UTC)
        done = DeltaTable(f"{copied}/{NAME}").optimize.compact()
        took = (datetime.now(UTC) - begin).total_seconds()
        assert done["numFilesRemoved"] == FILES
        return took

    took = best({"ours": ours, "theirs": theirs}, times)
    sides = rate(count, took["ours"]), rate(count, took["theirs"])
    results.at_least(
        f"{what}, {FILES} files: compact / OPTIMIZE of delta-rs", *sides, took["theirs"] / took["ours"], None
    )


def _copy(made: Path, to: Path) -> str:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(made, to)
    return str(to)
