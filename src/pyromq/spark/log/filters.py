"""Filter push-down of log scans: which part of a WHERE clause a scan applies itself, and what it leaves to Spark.

Columns that name a queue, `queueOffset`, `physicalOffset` and `tags` are compared record by record, so those filters
are applied completely. `storeTimestamp`, `keys` and `msgId` only say where to look, and stay with Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark

from ..decode.selection import Selection, is_internal_topic
from ..source import pushdown
from ..source.pushdown import Pushed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..options import LogOptions

_BOUNDS = (spark.GreaterThan, spark.GreaterThanOrEqual, spark.LessThan, spark.LessThanOrEqual)
_NAMES = {"keys": "keys", "msgid": "msg_ids"}


@dataclass(frozen=True, slots=True)
class LogFilters:
    """What all filters together ask for. None means any."""

    pushed: Pushed = field(default_factory=Pushed)
    start: int | None = None  # physical offsets, `end` exclusive
    end: int | None = None
    keys: frozenset[str] | None = None
    msg_ids: frozenset[str] | None = None

    def within(self, low: int | None = None, high: int | None = None) -> LogFilters:
        """Narrowed to these physical offsets."""
        starts = [at for at in (self.start, low) if at is not None]
        ends = [at for at in (self.end, high) if at is not None]
        return replace(self, start=max(starts, default=None), end=min(ends, default=None))

    def selection(self, options: LogOptions) -> Selection:
        """The records that options and filters ask for together."""
        pushed = self.pushed
        topics = frozenset(options.topics) if options.topics else None
        if pushed.topics is not None:
            # A filter chooses among visible messages; only an option shows more.
            topics = frozenset(
                topic
                for topic in pushed.topics
                if (topic in topics if topics else options.include_internal or not is_internal_topic(topic))
            )
        since = [at for at in (options.starting_timestamp, pushed.since) if at is not None]
        until = [at for at in (options.ending_timestamp, pushed.until) if at is not None]
        return Selection(
            topics=topics,
            tags=pushed.tags,
            internal=options.include_internal,
            since=max(since, default=None),
            until=min(until, default=None),
            queue_ids=pushed.queue_ids,
            first_offset=pushed.first,
            end_offset=pushed.end,
            offsets=pushed.offsets,
        )


def push(filters: Iterable[spark.Filter], options: LogOptions) -> tuple[LogFilters, list[spark.Filter]]:
    """What to read for these filters, joined by AND, and the filters that Spark must apply."""
    own = LogFilters()
    others, handed_back = [], []
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        column = attribute[0].lower() if len(attribute) == 1 else ""
        if column == "physicaloffset":
            own, is_complete = _placed(own, each)
            if not is_complete:
                handed_back.append(each)
        elif column in _NAMES:
            own = _named(own, _NAMES[column], each)
            handed_back.append(each)
        elif column == "brokername" and options.broker_name is None:
            handed_back.append(each)  # this column may be null, the others never are
        else:
            others.append(each)
    pushed, rest = pushdown.push(others)
    return replace(own, pushed=pushed), handed_back + rest


def _placed(own: LogFilters, each: Any) -> tuple[LogFilters, bool]:
    if isinstance(each, spark.IsNotNull):
        return own, True
    if isinstance(each, spark.EqualTo | spark.In):
        values = [value for value in (each.value if isinstance(each, spark.In) else (each.value,)) if value is not None]
        if not values:
            return own, False
        return own.within(min(values), max(values) + 1), len(values) == 1
    if isinstance(each, _BOUNDS):
        past = isinstance(each, spark.GreaterThan | spark.LessThanOrEqual)
        limit = each.value + (1 if past else 0)
        is_lower = isinstance(each, spark.GreaterThan | spark.GreaterThanOrEqual)
        return (own.within(low=limit) if is_lower else own.within(high=limit)), True
    return own, False


def _named(own: LogFilters, name: str, each: Any) -> LogFilters:
    if not isinstance(each, spark.EqualTo | spark.In):
        return own
    values = frozenset(each.value if isinstance(each, spark.In) else (each.value,)) - {None}
    known = getattr(own, name)
    chosen: dict[str, Any] = {name: values if known is None else known & values}
    return replace(own, **chosen)
