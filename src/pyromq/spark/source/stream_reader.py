"""The driver's side of a streaming read: how far the next micro-batch goes.

Spark's behaviour shapes this module (docs/spec/spark.md 1.3). It asks for the initial offset more than once and
believes the last answer, so a batch carries its own start inside its end. It commits a batch only with the next one, so
progress is reported when it asks for more. It asks without a pause, so when nothing is new, we wait.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyromq.errors import OffsetOutOfRange, PyroMQError, RouteNotFound, TopicNotFound

from ..blocking_client import Link, Reach
from ..plain_errors import plainly, plainly_each
from ..refused import is_refused
from ..shipping import Shipped
from . import offset_range
from .broker_metadata import BrokerMetadata, Sight
from .group_progress import GroupProgress
from .held_pulls import Arrivals
from .offsets import StreamOffset, place, ranges, without
from .planning import FIRST_GUESS, QueueRange, admit, plan
from .pulls import PullPart, read, report_loss
from .sql_check import check_sql
from .time_alignment import align

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from pyromq.protocol.message_queue import MessageQueue

    from ..lake.history import History
    from ..options import SourceOptions

logger = logging.getLogger(__name__)

# Estimates matter only above this many bytes in a queue; below, a batch is small in any case.
_WORTH_A_SAMPLE = 4 << 20


class RocketMQStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query; a copy without connections reads in the tasks."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None

    @property
    def planner(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        return self.planner.initial().to_json()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = StreamOffset.from_json(start)
        after = self.planner.latest(before, limit)
        return start if after == before else after.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:
        seen = self.planner.seen()
        return StreamOffset(seen).to_json() if seen else None

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.pin()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [*self.planner.tasks(StreamOffset.from_json(start), StreamOffset.from_json(end))]

    @plainly_each
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._options, self._schema)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None


class StreamPlanner:
    """Decides where micro-batches end, from the offsets that brokers report."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._link = Link(options)
        self._history: History | None = None
        self._metadata = BrokerMetadata(self._link, options)
        if options.lake_history:
            from ..lake.history import History, HistoryMetadata

            self._history = History(options)
            self._metadata = HistoryMetadata(self._link, options, self._history)
        self._arrivals = Arrivals(self._link, self._metadata.group)
        self._progress = GroupProgress(self._link, options.consumer_group) if options.consumer_group else None
        self._is_checked = options.group_shared or self._progress is None
        self._is_sql_checked = False
        self._initial: StreamOffset | None = None
        self._target: dict[MessageQueue, int] | None = None
        self._gone_since: dict[MessageQueue, float] = {}
        self._batch_at = time.monotonic()

    def close(self) -> None:
        self._link.close()

    def initial(self) -> StreamOffset:
        """Where a new query starts: determined once, however often Spark asks."""
        if self._initial is None:
            self._initial = self._link.run(self._find_initial())
        return self._initial

    def latest(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """The end of the batch that begins at `start`, which has been processed; `start` if there is nothing to do."""
        return self._link.run(self._latest(start, limit))

    def seen(self) -> dict[MessageQueue, int]:
        """The last maximum offsets seen."""
        return {queue: maximum for queue, (_, maximum) in self._metadata.last.bounds.items()}

    def pin(self) -> None:
        """Read up to the current end and no further."""
        sight = self._link.run(self._metadata.look_hard())
        self._target = {queue: maximum for queue, (_, maximum) in sight.bounds.items()}

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[Any]:
        """The batch from `start` to `end` as tasks: PullParts, and LakeParts for what lies in the lake."""
        found = ranges(start, end)
        if self._history is None:
            return [*self._link.run(self._tasks(found))]
        ends = self._history.positions({queue.topic for queue in found})
        past = [
            QueueRange(queue, first, min(last, ends.get(queue, 0)))
            for queue, (first, last) in found.items()
            if first < ends.get(queue, 0)
        ]
        rest = {queue: (max(first, ends.get(queue, 0)), last) for queue, (first, last) in found.items()}
        live = {queue: both for queue, both in rest.items() if both[0] < both[1]}
        return [*self._history.parts(past), *self._link.run(self._tasks(live))]

    # Inside

    async def _find_initial(self) -> StreamOffset:
        sight = await self._metadata.look_hard()
        pattern = self._options.subscribe_pattern
        if pattern is not None and not sight.queues:
            logger.warning("subscribePattern %s matches no topic yet; waiting for one", pattern.pattern)
        default = "latest" if self._history is None else "earliest"
        starts = await offset_range.starts(self._metadata, self._options, sight.bounds, default=default)
        if self._history is not None and default == (self._options.starting_offsets or default):
            starts = {**self._history.only_here(sight), **starts}
        return StreamOffset.first(starts)

    async def _latest(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        sight = await self._metadata.look()
        if not self._is_checked and self._progress is not None:
            await self._progress.check_alone({queue.broker_name for queue in sight.queues})
            self._is_checked = True
        if not self._is_sql_checked and self._options.sql is not None and sight.bounds:
            await check_sql(self._link, self._metadata.group, self._options.sql, sight.bounds)
            self._is_sql_checked = True
        if self._progress is not None:
            await self._progress.report(start.ends)
        if self._target is None and not self._is_worth_a_batch(start, sight):
            sight = await self._wait(start)
        given, start = start, self._checked(start, sight)
        ends, starts = self._ends(start, sight)
        ends |= self._in_lake(start, sight)
        before = {queue: start.ends.get(queue, starts.get(queue, 0)) for queue in ends}
        if self._target is None and not self._is_worth_a_batch(start, sight):
            ends, before, starts = {}, {}, {}
        if not isinstance(limit, ReadAllAvailable):
            ends = await self._admitted(before, ends, limit)
        end = start.advance(ends, starts)
        if end.ends == given.ends and not given.initial:
            # Not `end`: Spark compares offsets by their text. And never part of `given`, whose starts are
            # those of the previous batch.
            return given
        self._batch_at = time.monotonic()
        return end

    async def _wait(self, start: StreamOffset) -> Sight:
        """Nothing is new: wait a while for messages."""
        deadline = time.monotonic() + self._options.offsets_wait_ms / 1000
        sight = self._metadata.last
        while (left := deadline - time.monotonic()) > 0:
            came = await self._arrivals.wait(self.seen(), min(left, max(self._metadata.due_in, 0.01)))
            sight = await self._metadata.look(afresh=came)
            if self._is_worth_a_batch(start, sight):
                break
        return sight

    def _checked(self, start: StreamOffset, sight: Sight) -> StreamOffset:
        """`start` without queues that no longer exist. Raises for lost messages with `failOnDataLoss`."""
        options = self._options
        for queue, offset in start.ends.items():
            if queue in sight.bounds:
                self._gone_since.pop(queue, None)
                self._check_bounds(queue, offset, *sight.bounds[queue])
        missing = [queue for queue in start.ends if queue not in sight.bounds]
        deleted = [queue for queue in missing if queue.topic in sight.absent and queue.broker_name in sight.brokers]
        if deleted:
            if options.fail_on_data_loss:
                error = TopicNotFound(
                    f"topic {deleted[0].topic} was deleted; failOnDataLoss=false continues without it"
                )
                error.topic = deleted[0].topic
                raise error
            logger.warning("topic %s was deleted; continuing without it", deleted[0].topic)
            start = without(start, deleted)
        for queue in missing:
            if queue not in deleted:
                self._check_gone(queue, sight)
        return start

    def _check_bounds(self, queue: MessageQueue, offset: int, minimum: int, maximum: int) -> None:
        fail = self._options.fail_on_data_loss
        if offset < minimum and fail:
            # Without it the task starts at the minimum, and logs the loss.
            what = f"{place(queue)}: offset {offset} was wanted, but the first is {minimum}"
            report_loss(what, minimum - offset, fail)
        if offset > maximum:
            what = f"{place(queue)}: offset {offset} was wanted, but the queue ends at {maximum}"
            if fail:
                raise OffsetOutOfRange(
                    f"{what}; the topic was recreated, or a lagging replica took over; "
                    "failOnDataLoss=false continues at its end"
                )
            logger.warning("%s; continuing there", what)

    def _check_gone(self, queue: MessageQueue, sight: Sight) -> None:
        """For a while, an unreachable broker counts as an outage, not as a loss."""
        now = time.monotonic()
        since = self._gone_since.setdefault(queue, now)
        if since == now:
            reason = sight.failures.get(queue.broker_name)
            logger.warning("%s is unreachable: %s; keeping its offset", place(queue), reason or "no route has it")
        patience = 0.0 if self._target is not None else self._options.broker_gone_timeout
        if self._options.fail_on_data_loss and now - since >= patience:
            raise RouteNotFound(
                f"{place(queue)} has been unreachable for {now - since:.0f} s; "
                "failOnDataLoss=false continues without it"
            ) from sight.failures.get(queue.broker_name)

    def _ends(self, start: StreamOffset, sight: Sight) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
        """The ends of the queues, and where queues new since `start` begin."""
        ends = {queue: maximum for queue, (_, maximum) in sight.bounds.items()}
        if self._target is not None:
            ends = {queue: self._target[queue] for queue in ends if queue in self._target}
        return ends, {queue: sight.bounds[queue][0] for queue in ends if queue not in start.ends}

    def _in_lake(self, start: StreamOffset, sight: Sight) -> dict[MessageQueue, int]:
        """How far the lake has queues whose broker is away."""
        if self._history is None:
            return {}
        away = [queue for queue in start.ends if queue not in sight.bounds]
        archived = self._history.positions({queue.topic for queue in away})
        return {queue: archived[queue] for queue in away if archived.get(queue, 0) > start.ends[queue]}

    def _is_worth_a_batch(self, start: StreamOffset, sight: Sight) -> bool:
        """Whether there are new messages, and at least the minimum if one is set."""
        if self._in_lake(start, sight):
            return True
        if not any(start.ends.get(queue) != maximum for queue, (_, maximum) in sight.bounds.items()):
            return False
        least = self._options.min_offsets_per_trigger
        if least is None or time.monotonic() - self._batch_at >= self._options.max_trigger_delay:
            return True
        bounds = sight.bounds.items()
        return sum(max(0, maximum - start.ends.get(queue, minimum)) for queue, (minimum, maximum) in bounds) >= least

    async def _admitted(
        self, before: dict[MessageQueue, int], ends: dict[MessageQueue, int], limit: ReadLimit
    ) -> dict[MessageQueue, int]:
        """`ends` cut down to what this batch may take: by Spark's limit and our own, which Spark cannot combine."""
        options = self._options
        rows = [options.max_offsets_per_trigger, limit.max_rows if isinstance(limit, ReadMaxRows) else None]
        sizes = [options.max_bytes_per_trigger, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None]
        most_rows = min((each for each in rows if each is not None), default=None)
        most_bytes = min((each for each in sizes if each is not None), default=None)
        # A recreated queue ends before it begins; its end is taken as it is.
        taken = {queue: max(before[queue], end) for queue, end in ends.items()}
        if most_rows is not None:
            taken = await self._aligned(before, taken, most_rows, lambda queue: 1.0)
        if most_bytes is not None:
            behind = {queue: before[queue] for queue, end in taken.items() if end > before[queue]}
            means = await self._metadata.mean_sizes(behind)
            taken = await self._aligned(before, taken, most_bytes, lambda queue: means.get(queue, FIRST_GUESS))
        return {queue: min(end, taken[queue]) for queue, end in ends.items()}

    async def _aligned(
        self,
        before: dict[MessageQueue, int],
        ends: dict[MessageQueue, int],
        limit: float,
        cost: Callable[[MessageQueue], float],
    ) -> dict[MessageQueue, int]:
        try:
            return await align(before, ends, limit, self._metadata, cost)
        except PyroMQError as exc:
            if is_refused(exc):
                raise
            logger.info("cannot align queues by time: %s; taking as much of each", exc)
            return admit(before, ends, limit, cost)

    async def _tasks(self, found: dict[MessageQueue, tuple[int, int]]) -> list[PullPart]:
        options = self._options
        means = await sampled(self._metadata, found)
        tasks = plan(
            [QueueRange(queue, *both) for queue, both in found.items()],
            lambda queue: means.get(queue, FIRST_GUESS),
            partition_bytes=options.partition_bytes,
            max_records=options.max_records_per_partition,
            min_partitions=options.min_partitions,
            parallelism=options.parallelism,
        )
        if tasks and not self._metadata.last.queues:
            await self._metadata.look()
        addresses = addresses_of(self._link, found)
        return [PullPart(task, addresses, patience=options.broker_gone_timeout) for task in tasks]


def read_part(part: Any, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a task, wherever they are."""
    if isinstance(part, PullPart):
        return read(part, options, schema)
    if options.lake_history:
        from ..lake import history

        if isinstance(part, history.LakePart):
            return history.read(part, options, schema)
    return iter(())  # Spark reads one empty partition if there is none


def addresses_of(link: Reach, queues: Mapping[MessageQueue, Any]) -> dict[str, dict[int, str]]:
    """The known addresses of the brokers that have these queues."""
    found: dict[str, dict[int, str]] = {}
    for topic in {queue.topic for queue in queues}:
        found.update(link.broker_addresses(topic))
    return found


async def sampled(metadata: BrokerMetadata, found: Mapping[MessageQueue, tuple[int, int]]) -> dict[MessageQueue, float]:
    """The mean message sizes of queues with much to read."""
    large = {queue: start for queue, (start, end) in found.items() if (end - start) * FIRST_GUESS > _WORTH_A_SAMPLE}
    return await metadata.mean_sizes(large)
