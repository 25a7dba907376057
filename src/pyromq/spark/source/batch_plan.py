"""Plans a batch read: which task pulls what."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from ..blocking_client import Link
from . import offset_range
from .broker_metadata import BrokerMetadata
from .offsets import place
from .planning import FIRST_GUESS, QueueRange, plan
from .pulls import PullPart, report_loss
from .sql_check import check_sql
from .stream_reader import addresses_of, sampled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SourceOptions
    from .pushdown import Pushed


def tasks(options: SourceOptions, pushed: Pushed) -> list[Any]:
    """The tasks of a read, PullParts and LakeParts, once all servers have answered. What a filter excludes is not read.

    Raises OffsetOutOfRange for a start that does not exist (any more), unless `failOnDataLoss` is false.
    """
    if options.lake_history:
        return _with_history(options, pushed)
    with Link(options) as link:
        return [*link.run(_tasks(BrokerMetadata(link, options), options, pushed))]


def _with_history(options: SourceOptions, pushed: Pushed) -> list[Any]:
    """What the lake has, and what brokers have beyond it; only the lake if that is all there can be."""
    from ..lake.history import History, check_all_there
    from .pushdown import within

    history = History(options)
    # Both come down to the same, except that Spark looks again at what it has handed down.
    exact = (_moment(options.starting_timestamp), _moment(options.ending_timestamp))
    pushed = within(pushed, options.starting_timestamp, options.ending_timestamp)
    options = replace(options, starting_timestamp=None, ending_timestamp=None)
    since, until = _moment(pushed.since), _moment(pushed.until)
    live: list[PullPart] = []
    topics: Collection[str] = options.subscribe
    if until is None or not history.is_complete(topics, until):
        with Link(options) as link:
            metadata = BrokerMetadata(link, options)
            sight = link.run(metadata.look_hard())
            topics = {queue.topic for queue in sight.queues}
            positions = history.positions(topics)
            check_all_there(positions, sight.bounds.keys(), fail=options.fail_on_data_loss)
            live = link.run(_tasks(metadata, options, pushed, positions))
    past = [
        trimmed
        for queue, position in history.positions(topics).items()
        if pushed.has_queue(queue) and _is_assigned(options, queue)
        for trimmed in pushed.trim(QueueRange(queue, 0, position))
    ]
    return [*history.parts(past, since=since, until=until, exact=exact), *live]


def _is_assigned(options: SourceOptions, queue: MessageQueue) -> bool:
    return options.assign is None or queue in options.assign


def _moment(millis: int | None) -> datetime | None:
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)


async def _tasks(
    metadata: BrokerMetadata, options: SourceOptions, pushed: Pushed, archived: Mapping[MessageQueue, int] | None = None
) -> list[PullPart]:
    sight = metadata.last if archived is not None else await metadata.look_hard()
    bounds = sight.bounds
    if not sight.queues and options.subscribe_pattern is not None:
        raise ConfigError(f"subscribePattern {options.subscribe_pattern.pattern} matches no topic of {options.namesrv}")
    if options.sql is not None:
        await check_sql(metadata.link, metadata.group, options.sql, bounds)
    starts = await offset_range.starts(metadata, options, bounds, default="earliest")
    positions = {queue: offset for queue, offset in (archived or {}).items() if queue in bounds}
    starts |= positions
    ends = await offset_range.ends(metadata, options, bounds)
    chosen = {queue: both for queue, both in bounds.items() if pushed.has_queue(queue)}
    if pushed.since is not None:
        since = await metadata.at_times(dict.fromkeys(_filled(chosen), pushed.since), bounds)
        starts |= {queue: max(starts[queue], offset) for queue, offset in since.items()}
        starts |= offset_range.not_before(positions, since, bounds)
    if pushed.until is not None:
        until = await metadata.at_times(dict.fromkeys(_filled(chosen), pushed.until), bounds)
        ends |= {queue: min(ends[queue], offset) for queue, offset in until.items()}
    ranges = [
        trimmed
        for queue, (minimum, maximum) in chosen.items()
        for whole in _there(QueueRange(queue, starts[queue], ends[queue]), minimum, maximum, options.fail_on_data_loss)
        for trimmed in pushed.trim(whole)
    ]
    means = await sampled(metadata, {each.queue: (each.start, each.end) for each in ranges})
    planned = plan(
        ranges,
        lambda queue: means.get(queue, FIRST_GUESS),
        partition_bytes=options.partition_bytes,
        max_records=options.max_records_per_partition,
        min_partitions=options.min_partitions,
        parallelism=options.parallelism,
    )
    addresses = addresses_of(metadata.link, bounds)
    patience = options.offsets_num_retries * options.offsets_retry_interval_ms / 1000
    return [PullPart(task, addresses, pushed.tags, patience) for task in planned]


def _filled(bounds: dict[MessageQueue, tuple[int, int]]) -> list[MessageQueue]:
    return [queue for queue, (minimum, maximum) in bounds.items() if minimum < maximum]


def _there(each: QueueRange, minimum: int, maximum: int, fail: bool) -> list[QueueRange]:
    """The existing part of a range; what was asked for and is missing counts as lost."""
    if each.start > maximum:
        report_loss(f"{place(each.queue)}: offset {each.start} was wanted, but the queue ends at {maximum}", None, fail)
        return []
    if each.start >= each.end:
        return []
    if each.start < minimum:
        what = f"{place(each.queue)}: offset {each.start} was wanted, but the first is {minimum}"
        report_loss(what, min(minimum, each.end) - each.start, fail)
        each = replace(each, start=minimum)
    if each.end > maximum:
        what = f"{place(each.queue)}: offsets up to {each.end} were wanted, but the queue ends at {maximum}"
        report_loss(what, each.end - max(maximum, each.start), fail)
        each = replace(each, end=maximum)
    return [each] if each.start < each.end else []
