"""Plans a batch read: which task pulls what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..blocking_client import Link
from . import offset_range
from .broker_metadata import BrokerMetadata
from .offsets import place
from .planning import FIRST_GUESS, QueueRange, plan
from .pulls import PullPart, report_loss
from .sql_check import check_sql
from .stream_reader import addresses_of, sampled

if TYPE_CHECKING:
    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SourceOptions
    from .pushdown import Pushed


def tasks(options: SourceOptions, pushed: Pushed) -> list[PullPart]:
    """The tasks of a read, once all servers have answered. What a filter excludes is not read.

    Raises OffsetOutOfRange for a start that does not exist (any more), unless `failOnDataLoss` is false.
    """
    with Link(options) as link:
        return link.run(_tasks(BrokerMetadata(link, options), options, pushed))


async def _tasks(metadata: BrokerMetadata, options: SourceOptions, pushed: Pushed) -> list[PullPart]:
    sight = await metadata.look_hard()
    bounds = sight.bounds
    if options.sql is not None:
        await check_sql(metadata.link, metadata.group, options.sql, bounds)
    starts = await offset_range.starts(metadata, options, bounds, default="earliest")
    ends = await offset_range.ends(metadata, options, bounds)
    chosen = {queue: both for queue, both in bounds.items() if pushed.has_queue(queue)}
    if pushed.since is not None:
        since = await metadata.at_times(dict.fromkeys(_filled(chosen), pushed.since), bounds)
        starts |= {queue: max(starts[queue], offset) for queue, offset in since.items()}
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
