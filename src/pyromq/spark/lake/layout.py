"""How a table of the lake is laid out: its name, its columns, its folders, and what it calls a queue.

    <root>/<name>/dt=2026-01-31/part-<attempt>-<unique>-0000.parquet        and hour=13 below dt, where asked for

`dt` is the UTC day of `storeTimestamp`. Days are what people ask for and what compaction closes; a queue is no folder,
since a thousand queues would make a thousand small files of every step. Rows inside a file are ordered by broker,
queue and offset.

The position of a queue has the name `rocketmq/<cluster>/<topic>/<broker>/<queue>`, and a gap that of its queue with
`rocketmq-gap` before it and its first offset behind it: both stand in a Delta table's log as transactions of an
application, which readers of every kind carry along for good.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa

from pyromq.errors import ConfigError
from pyromq.protocol.message_queue import MessageQueue

from ..schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DAY = "dt"
HOUR = "hour"

# What a reader may skip files by. Bodies and properties have no order that anybody asks for.
SKIPPED_BY = ("brokerName", "queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")
ORDER = ("brokerName", "queueId", "queueOffset")

_NAME = re.compile(r"[A-Za-z0-9_]{1,200}")
_POSITION = "rocketmq"
_GAP = "rocketmq-gap"
_COMPLETE = "rocketmq-complete"
_BATCH = "spark"
_FIRST_DAY, _LAST_DAY = date(1970, 1, 1), date(9999, 12, 31)


def table_name(topic: str, alias: str | None = None) -> str:
    """The table of a topic: its alias, or its own name without what file systems and SQL dislike."""
    if alias is not None:
        if not _NAME.fullmatch(alias):
            raise ConfigError(f"{alias!r} cannot name a table; use letters, digits and _")
        return alias
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)


def partition_columns(hourly: bool = False) -> tuple[str, ...]:
    return (DAY, HOUR) if hourly else (DAY,)


def table_schema(more: pa.Schema | None = None, hourly: bool = False) -> pa.Schema:
    """The columns of a table: those of a message, those that decoding adds, and the partition."""
    added = [] if more is None else [field for field in more if field.name not in ARROW_SCHEMA.names]
    if reserved := [field.name for field in added if field.name in (DAY, HOUR)]:
        raise ConfigError(f"column {reserved[0]} is the table's own; give yours another name")
    partition = [pa.field(DAY, pa.date32()), pa.field(HOUR, pa.int32())]
    return pa.schema([*ARROW_SCHEMA, *added, *partition[: 2 if hourly else 1]])


def is_partition(name: str) -> bool:
    return name in (DAY, HOUR)


def partition_of(stored: datetime, hourly: bool = False) -> dict[str, str]:
    """The partition of a message stored then."""
    values = {DAY: stored.astimezone(UTC).date().isoformat()}
    return values | {HOUR: str(stored.astimezone(UTC).hour)} if hourly else values


def partition_from_days(days: int, hour: int | None = None) -> dict[str, str]:
    """The partition of a day, counted from 1970; a clock that was far off ends at the last day that has a name."""
    last = (_LAST_DAY - _FIRST_DAY).days
    values = {DAY: (_FIRST_DAY + timedelta(days=min(max(days, 0), last))).isoformat()}
    return values if hour is None else values | {HOUR: str(hour)}


def folder(partition: Mapping[str, str]) -> str:
    """The folder of a partition below the table's."""
    return "/".join(f"{name}={partition[name]}" for name in (DAY, HOUR) if name in partition)


class Position(NamedTuple):
    """What the name of a position says."""

    cluster: str
    queue: MessageQueue


def position_id(cluster: str, queue: MessageQueue) -> str:
    return _id(_POSITION, cluster, queue.topic, queue.broker_name, queue.queue_id)


def gap_id(cluster: str, queue: MessageQueue, start: int) -> str:
    return _id(_GAP, cluster, queue.topic, queue.broker_name, queue.queue_id, start)


def complete_id(cluster: str, topic: str) -> str:
    """Under which name a table remembers up to when, in ms, it has everything."""
    return _id(_COMPLETE, cluster, topic)


def batch_id(query: str) -> str:
    """Under which name a table remembers how far it has taken a streaming query."""
    return _id(_BATCH, query)


def parse_position(text: str) -> Position | None:
    """What `position_id` made, or None: others may keep transactions of their own in a table."""
    parts = _parts(text, _POSITION, 4)
    return None if parts is None else Position(parts[0], _queue(parts))


def parse_gap(text: str) -> tuple[Position, int] | None:
    """The queue and the first offset of what `gap_id` made, or None."""
    parts = _parts(text, _GAP, 5)
    return None if parts is None else (Position(parts[0], _queue(parts)), int(parts[4]))


def _id(*parts: object) -> str:
    return "/".join(quote(str(part), safe="-_.|") for part in parts)


def _parts(text: str, kind: str, count: int) -> list[str] | None:
    first, *rest = text.split("/")
    if first != kind or len(rest) != count or not all(part.isdecimal() for part in rest[3:]):
        return None
    return [unquote(part) for part in rest]


def _queue(parts: list[str]) -> MessageQueue:
    return MessageQueue(topic=parts[1], broker_name=parts[2], queue_id=int(parts[3]))


def missing_columns(table: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
    """The columns of `wanted` that `table` does not have; SQL knows names without their case."""
    known = {name.lower() for name in table.names}
    return [field for field in wanted if field.name.lower() not in known]


def changed_columns(table: pa.Schema, wanted: Iterable[pa.Field]) -> list[tuple[pa.Field, pa.Field]]:
    """The columns that both have with different types: the table's, and the wanted."""
    known = {field.name.lower(): field for field in table}
    return [
        (known[field.name.lower()], field)
        for field in wanted
        if field.name.lower() in known and not known[field.name.lower()].type.equals(field.type)
    ]
