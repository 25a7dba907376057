"""Care of a table: few large files instead of many small ones, and none that nobody needs.

An archive commits every few minutes, so a day has hundreds of files. Once a day is over, `compact` merges them: files
of 256 to 512 MB, at most two per GB and one more. It goes on beside an archive, readers and other compactions. Rows
and positions stay; a commit takes some files out and puts one in, if they are all still there. Readers of an
older version find their files until `vacuum` removes what no version of the last days needs.
"""

from __future__ import annotations

import math
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

from .layout import DAY, folder
from .merge import Merge
from .table import LakeConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import date

    from pyspark.sql import SparkSession

    from .table import DataFile, LakeTable, Snapshot

TARGET = 256 << 20  # bytes of a file
KEPT = timedelta(days=7)
_GB = 1 << 30
_TRIES = 50  # commits beside those of others
_ROUNDS = 3


def allowed_files(size: int) -> int:
    """How many files a closed day of `size` bytes may have."""
    return 2 * size // _GB + 1


@dataclass(slots=True)
class Compaction:
    """What a compaction did, or would do."""

    partitions: int = 0  # that had too many files
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    given_up: int = 0  # groups of files that somebody else replaced meanwhile
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """One group of files is merged, or the commit was somebody else's."""

    done: int  # bytes so far
    total: int
    partition: str


@dataclass(slots=True)
class Care:
    """Compacts a table. `run` does the merging: here, or in tasks of Spark."""

    table: LakeTable
    run: Callable[[Sequence[Merge]], Iterator[tuple[int, DataFile]]] = field(default_factory=lambda: merge_here)
    target: int = TARGET

    def plan(self, today: date, since: date | None = None, until: date | None = None) -> list[tuple[DataFile, ...]]:
        """The groups of files to merge: of days before `today` that have too many."""
        return self._plan(self.table.snapshot(), today, since, until)

    def _plan(
        self, snapshot: Snapshot, today: date, since: date | None, until: date | None
    ) -> list[tuple[DataFile, ...]]:
        closed = [
            file
            for file in self.table.files(snapshot)
            if file.partition[DAY] < today.isoformat()
            and (since is None or file.partition[DAY] >= since.isoformat())
            and (until is None or file.partition[DAY] < until.isoformat())
        ]
        closed.sort(key=lambda file: (folder(file.partition), file.path))
        groups = []
        for _, files in groupby(closed, key=lambda file: folder(file.partition)):
            groups += group_files(list(files), self.target)
        return groups

    def compact(
        self,
        today: date | None = None,
        *,
        since: date | None = None,
        until: date | None = None,
        progress: Callable[[CompactionStep], None] = lambda step: None,
    ) -> Compaction:
        """Merge files until no closed day has too many. Raises LakeError."""
        today = today or datetime.now(UTC).date()
        started = time.monotonic()
        done = Compaction()
        touched: set[str] = set()
        for _ in range(_ROUNDS):  # merged files are smaller than their parts, and a smaller day may have fewer
            snapshot = self.table.snapshot()
            groups = self._plan(snapshot, today, since, until)
            if not groups:
                break
            given_up = done.given_up
            self._merge_all(snapshot, groups, done, progress)
            touched |= {folder(group[0].partition) for group in groups}
            if done.given_up > given_up:
                break
        done.partitions = len(touched)
        done.seconds = time.monotonic() - started
        return done

    def _merge_all(
        self,
        snapshot: Snapshot,
        groups: Sequence[tuple[DataFile, ...]],
        done: Compaction,
        progress: Callable[[CompactionStep], None],
    ) -> None:
        total = sum(file.size for group in groups for file in group)
        finished = 0
        table = self.table
        merges = [Merge(table.storage, table.name, group, snapshot.schema, table.whole) for group in groups]
        for index, made in self.run(merges):
            group = groups[index]
            if self._replace(snapshot, group, made):
                done.files_before += len(group)
                done.files_after += 1
                done.rows += made.rows
                done.bytes_before += sum(file.size for file in group)
                done.bytes_after += made.size
            else:
                done.given_up += 1
            finished += sum(file.size for file in group)
            progress(CompactionStep(finished, total, folder(made.partition)))

    def _replace(self, snapshot: Snapshot, group: Sequence[DataFile], made: DataFile) -> bool:
        """Commit beside others: again if they only added, not at all if they replaced the same files."""
        for attempt in range(_TRIES):
            try:
                self.table.replace(snapshot, group, [made])
            except LakeConflict:
                newest = self.table.snapshot()
                if not {file.path for file in group} <= {file.path for file in self.table.files(newest)}:
                    break
                time.sleep(random.uniform(0, min(1.0, 0.01 * 2**attempt)))
            else:
                return True
        with suppress(OSError):
            storage = self.table.storage
            storage.filesystem().delete_file(storage.path(f"{self.table.name}/{made.path}"))
        return False


def group_files(files: Sequence[DataFile], target: int = TARGET) -> list[tuple[DataFile, ...]]:
    """Which files of one partition to merge with one another: none, if it has few enough.

    Neighbours in time go together, so that a file still has one stretch of it. A file that is large enough already ends
    up alone, and stays.
    """
    size = sum(file.size for file in files)
    allowed = allowed_files(size)
    if len(files) <= allowed:
        return []
    count = min(allowed, math.ceil(size / target)) or 1
    share = size / count
    groups: dict[int, list[DataFile]] = {}
    at = 0.0
    for file in sorted(files, key=lambda file: (_first(file), file.path)):
        groups.setdefault(min(int((at + file.size / 2) / share), count - 1) if share else 0, []).append(file)
        at += file.size
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _first(file: DataFile) -> float:
    stored = file.minimum.get("storeTimestamp")
    return stored.timestamp() if isinstance(stored, datetime) else 0.0


def merge_here(merges: Sequence[Merge]) -> Iterator[tuple[int, DataFile]]:
    """One after the other, in this process."""
    for index, merge in enumerate(merges):
        yield index, merge.run()


def merge_with(spark: SparkSession) -> Callable[[Sequence[Merge]], Iterator[tuple[int, DataFile]]]:
    """In tasks of Spark, for days that are too large for one process. Executors reach the storage themselves."""

    def run(merges: Sequence[Merge]) -> Iterator[tuple[int, DataFile]]:
        import pickle

        from .table import DataFile as Made

        rows = [(index, pickle.dumps(merge)) for index, merge in enumerate(merges)]
        tasks = spark.createDataFrame(rows, "index int, merge binary").repartition(len(rows), "index")
        made = tasks.mapInArrow(_merge_batches, "index int, file string")
        for row in made.toLocalIterator():
            yield row["index"], Made.from_json(row["file"])

    return run


def _merge_batches(batches: Iterable[object]) -> Iterator[object]:
    import pickle

    import pyarrow as pa

    for batch in batches:
        for index, merge in zip(batch["index"].to_pylist(), batch["merge"].to_pylist(), strict=True):  # type: ignore[index]
            file = pickle.loads(merge).run().to_json()
            yield pa.RecordBatch.from_pydict({"index": pa.array([index], pa.int32()), "file": [file]})


def vacuum(table: LakeTable, older_than: timedelta = KEPT, *, force: bool = False, dry_run: bool = False) -> list[str]:
    """Remove files that no version needs that was the newest within `older_than`, and those of tasks that died.

    Less than seven days needs `force`: a reader that is still at an older version would lose its files, and so would
    an archive whose tasks take longer than that to their commit.
    """
    if older_than < KEPT and not force:
        raise ConfigError(f"vacuum keeps {KEPT.days} days; less may take files from readers and from a running archive")
    if older_than < timedelta(0):
        raise ConfigError("vacuum cannot remove files that are not there yet")
    return table.vacuum(older_than, dry_run)


@dataclass(frozen=True, slots=True)
class DayFiles:
    """What a day has, and whether it has too many files."""

    partition: str
    files: int
    rows: int
    bytes: int
    allowed: int


def days(files: Iterable[DataFile]) -> list[DayFiles]:
    """The files of a version, by partition."""
    ordered = sorted(files, key=lambda file: folder(file.partition))
    found = []
    for partition, group in groupby(ordered, key=lambda file: folder(file.partition)):
        of_day = list(group)
        size = sum(file.size for file in of_day)
        rows = sum(file.rows for file in of_day)
        found.append(DayFiles(partition, len(of_day), rows, size, allowed_files(size)))
    return found
