"""A table of the lake as a stream: what was archived since, batch by batch.

A batch is defined by the positions of the queues, which is what versions of a table differ in, and not by files:
compaction rewrites files and changes no position, so a stream never sees a message twice because of it, and can go on
after the versions and files that it began with were vacuumed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from pyromq.errors import ConfigError

from ..plain_errors import plainly, plainly_each
from ..shipping import Shipped
from ..source.offsets import StreamOffset, ranges
from ..source.planning import admit
from .planning import arrow_schema, table_of
from .reading import FilePart, FileReader, Wanted, of_ranges, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from pyromq.protocol.message_queue import MessageQueue

    from .options import LakeOptions
    from .storage import Storage
    from .table import LakeTable, Snapshot


class LakeStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query; a copy without the table reads in the tasks."""

    def __init__(self, options: LakeOptions, storage: Storage, schema: StructType) -> None:
        if options.version_as_of is not None or options.timestamp_as_of is not None:
            raise ConfigError("a stream goes on with the table: versionAsOf and timestampAsOf are for batch reads")
        if options.between != (None, None) or options.starting_offsets or options.ending_offsets:
            raise ConfigError("a stream starts at startingVersion: times and offsets are for batch reads")
        self._options = options
        self._storage = storage
        self._schema: pa.Schema = arrow_schema(schema)
        self._table: LakeTable | None = None
        self._seen: tuple[float, Snapshot] | None = None
        self._initial: StreamOffset | None = None
        self._target: dict[MessageQueue, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None, "_seen": None, "_initial": None, "_target": None}

    @property
    def _opened(self) -> LakeTable:
        if self._table is None:
            self._table = table_of(self._options, self._storage)
        return self._table

    def _positions(self, *, afresh: bool = False) -> dict[MessageQueue, int]:
        now = time.monotonic()
        if self._seen is None or afresh or now >= self._seen[0] + self._options.refresh_ms / 1000:
            self._seen = (now, self._opened.snapshot())
        snapshot = self._seen[1]
        if not snapshot.positions and self._opened.files(snapshot):
            raise ConfigError(
                f"{self._opened.location} has no positions of queues, which tell what is new in it; read it in batch"
            )
        return dict(snapshot.positions)

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            start = self._options.starting_version
            if start == "earliest":
                starts = dict.fromkeys(self._positions(), 0)
            elif start == "latest":
                starts = self._positions(afresh=True)
            else:
                starts = dict(self._opened.snapshot(int(start)).positions)
            self._initial = StreamOffset.first(starts)
        return self._initial.to_json()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = StreamOffset.from_json(start)
        ends = self._positions() if self._target is None else self._target
        new = {queue: 0 for queue in ends if queue not in before.ends}
        ends = {queue: max(end, before.ends.get(queue, 0)) for queue, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = admit({**new, **before.ends}, ends, limit.max_rows)
        after = before.advance(ends, new)
        if after.ends == before.ends and not before.initial:
            return start
        return after.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._seen is None else StreamOffset(dict(self._seen[1].positions)).to_json()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._positions(afresh=True)

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found = ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
        if not found:
            return []
        table = self._opened
        # The newest version has all that any before it had, in files that exist.
        files = of_ranges(table.files(table.snapshot()), found)
        return [*parts(files, self._options.partition_bytes, found)]

    @plainly_each
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FilePart):
            return iter(())
        return FileReader(self._storage, self._options.place[1], self._schema, Wanted()).read(partition)
