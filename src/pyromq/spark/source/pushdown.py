"""Filter push-down of batch reads: which part of a WHERE clause a read applies itself, and what it leaves to Spark.

A filter is taken over only if it is applied completely: Spark does not check it again. Columns that name a queue choose
queues, `queueOffset` trims ranges, `tags` go to the broker (which compares hashes) and to the decoder (which compares
the text). `storeTimestamp` trims ranges, too, but a trimmed range may still hold other messages, so it is handed
back as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.message_queue import MessageQueue

    from .planning import QueueRange

_NEVER_NULL = ("topic", "brokername", "queueid", "queueoffset")
_PLACES = {"topic": "topics", "brokername": "brokers", "queueid": "queue_ids"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What all filters together ask for. None means any."""

    topics: frozenset[Any] | None = None
    brokers: frozenset[Any] | None = None
    queue_ids: frozenset[Any] | None = None
    first: int | None = None  # queue offsets, `end` exclusive
    end: int | None = None
    offsets: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    since: int | None = None  # store time in ms, `until` exclusive
    until: int | None = None

    def has_queue(self, queue: MessageQueue) -> bool:
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def trim(self, each: QueueRange) -> list[QueueRange]:
        """The rest of a range: one, none, or, for `queueOffset IN (…)`, several."""
        start = each.start if self.first is None else max(each.start, self.first)
        end = each.end if self.end is None else min(each.end, self.end)
        if self.offsets is None:
            return [replace(each, start=start, end=end)] if start < end else []
        inside = sorted(offset for offset in self.offsets if start <= offset < end)
        if not inside:
            return []
        cuts = [0, *(at + 1 for at, (left, right) in enumerate(pairwise(inside)) if right > left + 1), len(inside)]
        return [replace(each, start=inside[left], end=inside[right - 1] + 1) for left, right in pairwise(cuts)]


def push(filters: Iterable[spark.Filter], *, with_tags: bool = True) -> tuple[Pushed, list[spark.Filter]]:
    """What to read for these filters, joined by AND, and the filters that Spark must apply.

    `with_tags` is False if the broker already selects by something else.
    """
    pushed = Pushed()
    handed_back = []
    for each in filters:
        wider = _with(pushed, each, with_tags)
        if wider is None:
            handed_back.append(each)
            continue
        pushed, is_complete = wider
        if not is_complete:
            handed_back.append(each)
    if pushed.tags is not None:
        # Spark adds this to every comparison; a message that has one of some tags has tags.
        handed_back = [each for each in handed_back if _not_null(each) != "tags"]
    return pushed, handed_back


def within(pushed: Pushed, since: int | None, until: int | None) -> Pushed:
    """`pushed` and store times from `since` up to `until`, exclusive, in ms."""
    return _timed(pushed, since=since, until=until)


def _with(pushed: Pushed, each: spark.Filter, with_tags: bool) -> tuple[Pushed, bool] | None:
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if len(attribute) != 1:
        return None
    column = attribute[0].lower()
    if _not_null(each) in _NEVER_NULL:
        return pushed, True
    if isinstance(each, spark.EqualTo | spark.In):
        values = frozenset(each.value if isinstance(each, spark.In) else (each.value,)) - {None}
        return _among(pushed, column, values, with_tags)
    if isinstance(each, spark.GreaterThan | spark.GreaterThanOrEqual | spark.LessThan | spark.LessThanOrEqual):
        return _bounded(pushed, column, each)
    return None


def _among(pushed: Pushed, column: str, values: frozenset[Any], with_tags: bool) -> tuple[Pushed, bool] | None:
    if column in _PLACES:
        name = _PLACES[column]
        chosen: dict[str, Any] = {name: _both(getattr(pushed, name), values)}
        return replace(pushed, **chosen), True
    if column == "queueoffset":
        return replace(pushed, offsets=_both(pushed.offsets, values)), True
    if column == "tags" and with_tags and values and all(map(_can_be_asked_for, values)):
        return replace(pushed, tags=_both(pushed.tags, values)), True
    if column == "storetimestamp" and len(values) == 1:
        (value,) = values
        if isinstance(value, datetime):
            since, until = _ms(value), _ms(value) + 1
            return _timed(_timed(pushed, since=since), until=until), False
    return None


def _bounded(pushed: Pushed, column: str, each: Any) -> tuple[Pushed, bool] | None:
    if column == "queueoffset" and type(each.value) is int:
        past = isinstance(each, spark.GreaterThan | spark.LessThanOrEqual)
        limit = each.value + (1 if past else 0)
        if isinstance(each, spark.GreaterThan | spark.GreaterThanOrEqual):
            return replace(pushed, first=limit if pushed.first is None else max(pushed.first, limit)), True
        return replace(pushed, end=limit if pushed.end is None else min(pushed.end, limit)), True
    if column == "storetimestamp" and isinstance(each.value, datetime):
        # Stored times are whole milliseconds. A range may begin a little too early and end a little too late.
        if isinstance(each, spark.GreaterThan | spark.GreaterThanOrEqual):
            return _timed(pushed, since=_ms(each.value)), False
        return _timed(pushed, until=_ms(each.value) + 1), False
    return None


def _not_null(each: spark.Filter) -> str | None:
    """The column of an IS NOT NULL filter, or None."""
    return each.attribute[0].lower() if isinstance(each, spark.IsNotNull) and len(each.attribute) == 1 else None


def _timed(pushed: Pushed, since: int | None = None, until: int | None = None) -> Pushed:
    if since is not None:
        pushed = replace(pushed, since=since if pushed.since is None else max(pushed.since, since))
    if until is not None:
        pushed = replace(pushed, until=until if pushed.until is None else min(pushed.until, until))
    return pushed


def _both(known: frozenset[Any] | None, values: frozenset[Any]) -> frozenset[Any]:
    return values if known is None else known & values


def _can_be_asked_for(tag: Any) -> bool:
    """Whether a tag expression can contain this tag."""
    return isinstance(tag, str) and tag == tag.strip() and tag not in ("", "*") and "||" not in tag


def _ms(value: datetime) -> int:
    """Whole milliseconds, rounded down."""
    return int(value.timestamp() * 1_000_000) // 1000
