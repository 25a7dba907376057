"""What the tasks of an archive do: read messages, decode them if asked to, write Parquet, and report what they wrote.

Spark schedules them, repeats them, and carries their reports to the driver. The messages themselves go from the broker
to the file inside one Python process and never enter the JVM, which makes it about three times as fast as a DataFrame.

A report has the runs of offsets that were found, so that the driver can tell what is missing without trusting
anybody's count. Files of attempts that failed, or whose reports were lost, stay behind and are removed by `vacuum`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ..schema import ARROW_SCHEMA
from ..source.planning import QueueRange
from ..source.pulls import PullPart
from .decoding import REASON, BodyDecoder, Decoding, bad_row_table
from .parquet_parts import PartWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from pyromq.protocol.message_queue import MessageQueue

    from ..log.plan import QueuePart
    from ..options import LogOptions, SourceOptions
    from .storage import Storage
    from .table import DataFile

_RESULT = "report binary"
_REASON = pa.schema([pa.field(REASON, pa.string())])


@dataclass(frozen=True, slots=True)
class StorePart:
    """A stretch of a broker's log: the messages of these queues in it, read from the store's files."""

    part: QueuePart
    topic: str
    options: LogOptions


Part: TypeAlias = PullPart | StorePart


@dataclass(frozen=True, slots=True)
class Job:
    """All that the tasks of a step need. Travels with their code, so no plan and no page of Spark shows it."""

    storage: Storage
    table: str
    options: SourceOptions
    parts: tuple[Part, ...]
    hourly: bool = False
    whole: bool = False  # files have the columns of their partition, too
    decoding: Decoding | None = None
    # Bad rows before these offsets are in their table already, from a step that died after it had told that table.
    bad_from: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """What a task wrote and found."""

    files: list[DataFile] = field(default_factory=list)
    bad_files: list[DataFile] = field(default_factory=list)
    runs: list[QueueRange] = field(default_factory=list)
    rows: int = 0
    bad_rows: int = 0


def run(spark: SparkSession, job: Job) -> list[Report]:
    """Run the tasks of a step and return their reports. Errors are Spark's."""
    count = len(job.parts)
    if not count:
        return []
    # One number per task, and nothing else goes through Spark on the way in.
    frame = spark.range(0, count, 1, count).mapInArrow(shipped(partial(_reports, job)), _RESULT)
    return [pickle.loads(row.report) for row in frame.collect()]


def shipped(work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Callable[[Any], Any]:
    """`work` in a form that says what is missing on an executor without our package."""
    payload = pickle.dumps(work)

    def opened(batches: Any) -> Any:
        import pickle
        import socket
        import sys

        try:
            inside = pickle.loads(payload)
        except ModuleNotFoundError as exc:
            said = f"{socket.gethostname()}: {sys.executable} has no module {exc.name!r}, which PyroMQ needs there"
            raise RuntimeError(f"{said}; pyromq.spark.doctor(spark) checks all executors") from None
        yield from inside(batches)

    return opened


def _reports(job: Job, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            report = pickle.dumps(work(job, job.parts[number], _attempt()))
            yield pa.RecordBatch.from_pydict({"report": pa.array([report], pa.binary())})


def _attempt() -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    return "0" if task is None else f"{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}"


def work(job: Job, part: Part, attempt: str) -> Report:
    """One task."""
    batches = _pulled(job, part) if isinstance(part, PullPart) else _scanned(part)
    return write(job, batches, attempt)


def write(job: Job, batches: Iterable[pa.RecordBatch], attempt: str) -> Report:
    """Write the messages in `batches`, each of which has those of one queue, and those that cannot be decoded apart."""
    options: dict[str, Any] = {"hourly": job.hourly, "whole": job.whole}
    more = None if job.decoding is None else job.decoding.columns
    decoder = None if job.decoding is None else BodyDecoder(job.decoding)
    runs = Runs()
    rows = bad_rows = 0
    with (
        PartWriter(job.storage, job.table, attempt, more=more, **options) as good,
        PartWriter(job.storage, bad_row_table(job.table), attempt, more=_REASON, **options) as bad,
    ):
        for batch in batches:
            runs.add(batch)
            if decoder is None:
                good.write(batch)
                rows += batch.num_rows
                continue
            fine, rejected = decoder.split(batch)
            good.write(fine)
            rows += fine.num_rows
            if rejected is not None and job.decoding is not None and job.decoding.on_error == "dlq":
                rejected = _not_there_yet(rejected, job.bad_from)
                bad.write(rejected)
                bad_rows += rejected.num_rows
        return Report(good.close(), bad.close(), runs.found, rows, bad_rows)


def _not_there_yet(rejected: pa.RecordBatch, since: Mapping[MessageQueue, int]) -> pa.RecordBatch:
    first = since.get(queue_of(rejected), 0)
    offsets = rejected.column("queueOffset").to_numpy()
    return rejected if not len(offsets) or offsets[0] >= first else rejected.filter(pa.array(offsets >= first))


def _pulled(job: Job, part: PullPart) -> Iterator[pa.RecordBatch]:
    from ..source.pulls import read

    # What is gone is not an error here: the driver notices what is missing, and records it.
    return read(part, replace(job.options, fail_on_data_loss=False), ARROW_SCHEMA)


def _scanned(each: StorePart) -> Iterator[pa.RecordBatch]:
    """The messages of a stretch of the log queue by queue, since that is the order of a file.

    The stretch is as long as a file of the lake, so its pages are still in memory when the next queue is read.
    """
    from ..log.reader import read

    for one in sorted(each.part.queues, key=lambda found: found.queue.queue_id):
        yield from read(replace(each.part, queues=(one,)), each.options, ARROW_SCHEMA)


class Runs:
    """The runs of offsets that were found, queue by queue."""

    def __init__(self) -> None:
        self.found: list[QueueRange] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Note the messages of a batch, which are those of one queue in the order of their offsets."""
        if not batch.num_rows:
            return
        queue = queue_of(batch)
        offsets = batch.column("queueOffset").to_numpy()
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        for start, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(offsets)], strict=True):
            first, last = int(offsets[start]), int(offsets[end - 1]) + 1
            before = self.found[-1] if self.found else None
            if before is not None and before.queue == queue and before.end == first:
                self.found[-1] = QueueRange(queue, before.start, last)
            else:
                self.found.append(QueueRange(queue, first, last))


def queue_of(batch: pa.RecordBatch) -> MessageQueue:
    """The queue of a batch that has messages of one."""
    from pyromq.protocol.message_queue import MessageQueue

    topic, broker, number = (batch.column(name)[0].as_py() for name in ("topic", "brokerName", "queueId"))
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def total(reports: Sequence[Report]) -> Report:
    """What all tasks did together."""
    return Report(
        [file for each in reports for file in each.files],
        [file for each in reports for file in each.bad_files],
        [found for each in reports for found in each.runs],
        sum(each.rows for each in reports),
        sum(each.bad_rows for each in reports),
    )
