"""The writers of the format `rocketmq_lake`: tasks write files, the driver commits them once all of them are there.

A streaming query commits with its id and the number of the batch, and a table that has seen the batch takes nothing
again. Rows that still have their queue and offset also move the table's positions: a message that the table already
has, from this query or from any other, is then refused instead of doubled, and `startingOffsets=lake` goes on after it.

A column that the table lacks is added to it. Where a column has another type than the table's, values are converted,
and rows whose values cannot be are bad rows, as bodies that cannot be decoded are.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyromq.errors import ConfigError, InvalidMessage
from pyromq.protocol.message_queue import MessageQueue

from ..schema import ARROW_SCHEMA
from ..shipping import Shipped
from . import fitting
from .column_types import from_spark, plain
from .decoding import BAD_ROWS, REASON, BodyDecoder, added, bad_row_table, decoding
from .layout import DAY, HOUR, is_partition
from .parquet_parts import PartWriter
from .planning import table_of
from .table import LakeCommit, LakeConflict, LakeError, Move, TableNotFound
from .tables import format_of, open_or_create, open_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from .decoding import Decoding
    from .options import LakeOptions
    from .storage import Storage
    from .table import DataFile, LakeTable

logger = logging.getLogger(__name__)

_QUEUE = ("topic", "brokerName", "queueId", "queueOffset")
_REASONS = pa.schema([pa.field(REASON, pa.string())])
_OWN = {each.name.lower(): each for each in ARROW_SCHEMA}


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All that a task and the commit need to know."""

    options: LakeOptions
    storage: Storage
    # The columns of the rows, as the table has them or will have them, and those besides a message's.
    columns: pa.Schema
    more: pa.Schema
    decoding: Decoding | None
    topic: str
    cluster: str
    hourly: bool = False
    whole: bool = False

    @property
    def table(self) -> str:
        return self.options.place[1]


@dataclass(frozen=True, slots=True)
class TaskFiles(WriterCommitMessage):
    """What a task wrote."""

    files: list[DataFile] = field(default_factory=list)
    bad_files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    bad_rows: int = 0
    # The least and the largest offset of each queue among the rows.
    offsets: Mapping[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    query: str | None = None
    topics: frozenset[str] = frozenset()


def plan(options: LakeOptions, storage: Storage, schema: StructType, *, overwrite: bool) -> WritePlan:
    """Check all that can be checked before there are rows."""
    if overwrite:
        raise ConfigError("a table of the lake only grows: use mode('append') or INSERT INTO, and outputMode('append')")
    if options.version_as_of is not None or options.timestamp_as_of is not None:
        raise ConfigError("versionAsOf and timestampAsOf are for reading")
    try:
        table: LakeTable | None = table_of(options, storage)
    except TableNotFound:
        table = None
    have = {} if table is None else {each.name.lower(): each for each in table.snapshot().schema}
    given = [each for each in from_spark(schema) if not is_partition(each.name)]
    if len(given) < len(schema.fields):
        raise ConfigError(f"columns {DAY} and {HOUR} are the table's own: leave them out")
    columns = []
    for each in given:
        known = _OWN.get(each.name.lower(), have.get(each.name.lower(), each))
        columns.append(pa.field(known.name, plain(known.type) if known.name not in ARROW_SCHEMA.names else known.type))
    how = decoding(options)
    if how is not None:
        if "body" not in (each.name for each in columns):
            raise ConfigError("decode needs a column body")
        how = how if table is None else how.within(table.snapshot().schema)
    more = [each for each in columns if each.name not in ARROW_SCHEMA.names]
    return WritePlan(
        options,
        storage,
        pa.schema(columns),
        pa.schema([*more, *([] if how is None else how.columns)]),
        how,
        "" if table is None else table.topic,
        "" if table is None else table.cluster,
        hourly=table is not None and table.hourly,
        whole=format_of(storage, options.table_format) == "iceberg" if table is None else table.whole,
    )


class LakeWriter(Shipped, DataSourceArrowWriter):
    """A batch write: one commit, or none."""

    def __init__(self, made: WritePlan) -> None:
        self._plan = made

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._plan, messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _report_failure(messages)


class LakeStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """The writes of a streaming query: made again for every micro-batch."""

    def __init__(self, made: WritePlan) -> None:
        self._plan = made

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit(self._plan, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report_failure(messages)


# In a task


def write(made: WritePlan, batches: Iterator[pa.RecordBatch]) -> TaskFiles:
    """Write all rows to files."""
    from pyspark import TaskContext

    task = TaskContext.get()
    attempt = "0" if task is None else f"{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}"
    query = None if task is None else task.getLocalProperty("sql.streaming.queryId")
    options: dict[str, Any] = {"hourly": made.hourly, "whole": made.whole}
    decoder = None if made.decoding is None else BodyDecoder(made.decoding)
    offsets = _Offsets()
    rows = bad_rows = 0
    with (
        PartWriter(made.storage, made.table, attempt, more=made.more, **options) as good,
        PartWriter(made.storage, bad_row_table(made.table), attempt, more=_REASONS, **options) as bad,
    ):
        for batch in batches:
            if not batch.num_rows:
                continue
            offsets.add(batch)
            fine, rejected = _fitted(batch, made)
            parts = [rejected]
            if decoder is not None and fine.num_rows:
                fine, undecoded = decoder.split(fine)
                parts.append(undecoded)
            good.write(_timed(fine))
            rows += fine.num_rows
            for part in parts:
                if part is not None and made.options.on_error == "dlq":
                    bad.write(_timed(_as_message(part)))
                    bad_rows += part.num_rows
        return TaskFiles(good.close(), bad.close(), rows, bad_rows, offsets.found, query, offsets.topics)


def _fitted(batch: pa.RecordBatch, made: WritePlan) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The rows with the table's types, and those whose values do not fit, with reasons."""
    columns: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for wanted in made.columns:
        found = batch.column(batch.schema.names.index(_named_alike(batch, wanted.name)))
        values, wrong = fitting.cast(found, wanted)
        columns.append(values)
        for number, why in wrong.items():
            reasons.setdefault(number, why)
    fine = pa.RecordBatch.from_arrays(columns, schema=made.columns)
    if not reasons:
        return fine, None
    if made.options.on_error == "fail":
        raise InvalidMessage(f"{reasons[min(reasons)]}; onError=dlq or skip goes on")
    is_bad = pa.array([number in reasons for number in range(batch.num_rows)])
    bad = fine.filter(is_bad)
    why = pa.array([reasons[number] for number in sorted(reasons)], pa.string())
    bad = pa.RecordBatch.from_arrays([*bad.columns, why], schema=bad.schema.append(pa.field(REASON, pa.string())))
    return fine.filter(pa.compute.invert(is_bad)), bad


def _named_alike(batch: pa.RecordBatch, name: str) -> str:
    names: list[str] = batch.schema.names
    return next(each for each in names if each.lower() == name.lower())


def _as_message(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that the table of bad rows has."""
    names = [each for each in batch.schema.names if each in BAD_ROWS.names]
    return batch.select(names)


def _timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that never were messages belong to the day on which they are written."""
    if "storeTimestamp" in batch.schema.names:
        return batch
    stamp = ARROW_SCHEMA.field("storeTimestamp")
    now = pa.repeat(pa.scalar(datetime.now(UTC), stamp.type), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, now], schema=batch.schema.append(stamp))


class _Offsets:
    """The least and the largest offset of each queue."""

    def __init__(self) -> None:
        self.found: dict[MessageQueue, tuple[int, int]] = {}
        self.topics: frozenset[str] = frozenset()

    def add(self, batch: pa.RecordBatch) -> None:
        if "topic" in batch.schema.names:
            topics = batch.column("topic").unique().to_pylist()
            self.topics |= {topic for topic in topics if topic is not None}
        if not {*_QUEUE} <= {*batch.schema.names} or any(batch.column(name).null_count for name in _QUEUE):
            return
        table = pa.Table.from_batches([batch.select(list(_QUEUE))])
        grouped = table.group_by(list(_QUEUE[:3])).aggregate([("queueOffset", "min"), ("queueOffset", "max")])
        for row in grouped.to_pylist():
            queue = MessageQueue(topic=row["topic"], broker_name=row["brokerName"], queue_id=int(row["queueId"]))
            self.found[queue] = _both(self.found.get(queue), (row["queueOffset_min"], row["queueOffset_max"]))


def _both(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


# On the driver


def commit(made: WritePlan, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Make the files of all tasks part of the table, at once."""
    done = [each for each in messages if isinstance(each, TaskFiles)]
    files = [file for each in done for file in each.files]
    bad_files = [file for each in done for file in each.bad_files]
    if not files and not bad_files:
        return
    query = next((each.query for each in done if each.query), None)
    batch = None if batch_id is None or query is None else (query, batch_id)
    table = _created(made, done, made.table)
    snapshot = table.snapshot()
    moves = _moves(done, snapshot.positions) if made.options.with_positions else []
    if bad_files:
        # First the bad rows: if this dies in between, the batch comes again, and that table knows it.
        apart = _created(made, done, bad_row_table(made.table))
        apart.commit(LakeCommit(bad_files, (), batch=batch, columns=added(apart.snapshot().schema, list(_REASONS))))
    try:
        table.commit(LakeCommit(files, moves, batch=batch, columns=added(snapshot.schema, list(made.more))))
    except LakeConflict as exc:
        raise LakeError(
            f"{exc}: some of these messages are in the table already; a query that starts with "
            "startingOffsets=lake goes on after them, and positions=false writes them again"
        ) from exc
    rows, bad = sum(each.rows for each in done), sum(each.bad_rows for each in done)
    logger.info("%s: %d rows in %d files, %d bad rows", table.location, rows, len(files), bad)


def _created(made: WritePlan, done: Sequence[TaskFiles], name: str) -> LakeTable:
    """The table `name`, made if need be for the topic that its rows are of."""
    options = made.options
    try:
        return open_table(made.storage, name, options.table_format)
    except TableNotFound:
        pass
    topics = {topic for each in done for topic in each.topics}
    topic = made.topic or options.topic or (topics.pop() if len(topics) == 1 else made.table)
    return open_or_create(made.storage, name, topic, made.cluster or options.cluster, kind=options.table_format)


def _moves(done: Sequence[TaskFiles], positions: Mapping[MessageQueue, int]) -> list[Move]:
    """How the rows move the queues: from where the table is to behind their last message.

    Where their first message is before that, the move starts with it, and no table takes such a move: either this very
    batch is in it already, or the message is.
    """
    offsets: dict[MessageQueue, tuple[int, int]] = {}
    for each in done:
        for queue, both in each.offsets.items():
            offsets[queue] = _both(offsets.get(queue), both)
    return [
        Move(queue, min(first, positions.get(queue, first)), last + 1)
        for queue, (first, last) in sorted(offsets.items())
    ]


def _report_failure(messages: Sequence[WriterCommitMessage | None]) -> None:
    done = sum(each is not None for each in messages)
    logger.warning("nothing is committed: %d of %d tasks had ended", done, len(messages))
