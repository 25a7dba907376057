"""The writers of the format `rocketmq`: planned on the driver, run in tasks, reported back to the driver.

A task returns when all its rows are acknowledged, so what Spark counts as written is stored. What happens when
tasks are repeated depends on `guarantee`: see identity.py and read_back.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyromq.client.producer.send_result import STATUS_BY_CODE
from pyromq.errors import ConfigError, broker_error

from ..blocking_client import Link
from ..plain_errors import plainly
from ..shipping import Shipped
from . import identity as task_identity
from .columns import sink_columns
from .messages import BadRow, OutRow, RowsOut
from .pace import Pace
from .sends import Counts, Sends
from .topics import check_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..options import SinkOptions
    from .columns import SinkColumns
    from .identity import Identity
    from .topics import Queues

logger = logging.getLogger(__name__)

_CODES = {status.value: code for code, status in STATUS_BY_CODE.items()}
_LOGGED = 3  # skipped rows per task to name in the log


@dataclass(frozen=True, slots=True)
class TaskReport(WriterCommitMessage):
    """What a task did. Sent rows include dead letters."""

    sent: int = 0
    bytes: int = 0
    skipped: int = 0
    dead_letters: int = 0
    already_stored: int = 0
    unconfirmed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """All that a task needs to know. Sent to executors; does not contain keys that `credentials` looks up."""

    options: SinkOptions
    columns: SinkColumns
    queues: dict[str, Queues]
    streams: bool


def plan(schema: StructType, options: SinkOptions, *, streams: bool, afresh: bool = True) -> SinkPlan:
    """Check everything that can be known before there are rows. Only `afresh` asks name servers."""
    columns = sink_columns(schema, options)
    queues = check_topics(options, streams=streams) if afresh else {}
    return SinkPlan(options, columns, queues, streams)


class RocketMQWriter(Shipped, DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, made: SinkPlan) -> None:
        self._plan = made

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _report("batch", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _report_failure("batch", messages)


class RocketMQStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """The writes of a streaming query: created again for the plan and the end of every micro-batch."""

    def __init__(self, made: SinkPlan) -> None:
        self._plan = made

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report_failure(f"batch {batchId}", messages)


# In a task


def write(made: SinkPlan, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Send all rows, and return when all are acknowledged."""
    options = made.options
    if options.is_effectively_once:
        task_identity.refuse_speculation()
    identity = task_identity.of_task(options.job_id, streams=made.streams)
    with Link(options) as link:
        return link.run(_write(link, made, identity, batches))


async def _write(
    link: Link, made: SinkPlan, identity: Identity | None, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    options = made.options
    rows = RowsOut(made.columns, options, identity, link.namespace.name)
    bad_rows = BadRows(options, rows)
    sends = Sends(link, options, identity, made.queues, bad_rows.instead, streams=made.streams)
    pace = None if options.rows_per_second is None else Pace(options.rows_per_second)
    try:
        # In a thread, so that answers are read while Spark works on the next rows, however long that takes.
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            for row in rows.of(batch):
                if pace is not None and (wait := pace.wait(time.monotonic())) > 0:
                    await sends.send_open()
                    await asyncio.sleep(wait)
                if isinstance(row, OutRow):
                    if not sends.take(row):
                        await sends.add(row)
                elif (instead := bad_rows.instead(row)) is not None:
                    await sends.send_dead_letter(instead)
                else:
                    sends.counts.skipped += 1
        await sends.finish()
    finally:
        await sends.give_up()
    return _task_report(sends.counts, options)


class BadRows:
    """Handles rows that cannot be sent: `onBadRow`."""

    def __init__(self, options: SinkOptions, rows: RowsOut) -> None:
        self._does_fail = options.on_bad_row == "fail"
        self._topic = options.dead_letter_topic
        self._rows = rows
        self._count = 0

    def instead(self, bad: BadRow) -> OutRow | None:
        """The message to send instead, or None to continue without. Raises InvalidMessage with onBadRow=fail."""
        if self._does_fail:
            raise bad.error()
        self._count += 1
        if self._count <= _LOGGED:
            what = "skipped" if self._topic is None else f"sent to {self._topic}"
            logger.warning("%s: %s; %s", bad.label(), bad.reason, what)
        return None if self._topic is None else self._rows.dead_letter(bad, self._topic)


def _task_report(counts: Counts, options: SinkOptions) -> TaskReport:
    if counts.unconfirmed and options.is_effectively_once:
        # The next attempt reads what is there, which is more reliable than an unclear answer.
        status, count = counts.unconfirmed.most_common(1)[0]
        raise broker_error(_CODES[status], f"{count} rows are stored, but not confirmed; the next attempt will check")
    return TaskReport(
        counts.sent,
        counts.bytes,
        counts.skipped,
        counts.dead_letters,
        counts.already_stored,
        dict(counts.unconfirmed),
    )


# On the driver


def _report(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    reports = [each for each in messages if isinstance(each, TaskReport)]
    sent, skipped, dead, already = (
        sum(getattr(each, name) for each in reports) for name in ("sent", "skipped", "dead_letters", "already_stored")
    )
    logger.info("%s: %d rows sent by %d tasks, %d were stored already", what, sent, len(reports), already)
    if skipped or dead:
        logger.warning("%s: %d bad rows skipped, %d sent as dead letters", what, skipped, dead)
    unconfirmed: Counter[str] = Counter()
    for each in reports:
        unconfirmed.update(each.unconfirmed)
    for status, count in sorted(unconfirmed.items()):
        logger.warning("%s: %d rows are stored, but their brokers say %s", what, count, status)


def _report_failure(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = sum(each is not None for each in messages)
    logger.warning("%s failed: %d of %d tasks had ended; what was sent stays sent", what, done, len(messages))


def refuse_overwrite(overwrite: bool) -> None:
    """A topic only grows."""
    if overwrite:
        raise ConfigError(
            "a topic cannot be overwritten, messages can only be appended: "
            "use mode('append') or INSERT INTO, and for a stream outputMode('append') or ('update')"
        )
