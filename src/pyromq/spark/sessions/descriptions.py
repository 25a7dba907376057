"""Describes one topic for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError, StateError

from .. import options as known
from ..meta.cluster_rows import rows_of
from ..schema import metadata_of
from .session import namesrv_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from ..meta.rows import Row

_KINDS = (known.SourceOptions, known.SinkOptions)


@dataclass(frozen=True, slots=True, repr=False)
class TopicDescription:
    """A topic's current state. `queues` and `groups` are rows of the `rocketmq_meta` tables of these names.

    `options` are those of the view or table that names the topic, without secrets.
    """

    topic: str
    queues: tuple[Row, ...]
    groups: tuple[Row, ...]
    options: Mapping[str, str]

    @property
    def messages(self) -> int | None:
        """The number of messages; None if a broker did not answer."""
        counts = [row.get("messages") for row in self.queues]
        return None if None in counts else sum(count for count in counts if count is not None)

    def lag(self, group: str) -> int | None:
        """The lag of a group in this topic; None if it has no offset here, or a broker did not answer."""
        behind = [row["lag"] for row in self.groups if row["group"] == group and row.get("queueId") is not None]
        return None if not behind or None in behind else sum(behind)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__  # a prompt shows it

    def _lines(self) -> list[str]:
        many = "an unknown number of" if self.messages is None else f"{self.messages:,}"
        times = [row["lastStoreTimestamp"] for row in self.queues if row.get("lastStoreTimestamp")]
        last = f", the last of {max(times):%Y-%m-%d %H:%M:%S} UTC" if times else ""
        lines = [f"{self.topic}: {many} messages in {len(self.queues)} queues{last}"]
        for row in self.queues:
            said = f"unknown: {row['error']}" if row.get("error") else f"{row['minOffset']:,} to {row['maxOffset']:,}"
            lines.append(f"  {row['brokerName']} queue {row['queueId']}: {said}")
        for group in sorted({row["group"] for row in self.groups if row.get("group")}):
            lag = self.lag(group)
            lines.append(f"  group {group}: {'an unknown number' if lag is None else f'{lag:,}'} behind")
        lines += [f"  not all groups are known: {row['error']}" for row in self.groups if row.get("error")]
        lines += [f"  option {key}: {value}" for key, value in self.options.items()]
        return lines


def describe(where: SparkSession | str, topic: str, **options: object) -> TopicDescription:
    """See `pyromq.spark.describe`."""
    given = {key: str(value) for key, value in options.items()}
    kept: dict[str, str] = {}
    if isinstance(where, str):
        given["namesrv"] = where
    else:
        kept = _options_of_table(where, topic)
        given = kept | given
        topic = _topic_of(kept, topic)
        given["namesrv"] = namesrv_of(where, given.get("namesrv"))
    spark = None if isinstance(where, str) else where
    queues = rows_of(spark, "queues", given, topic)
    groups = [row for row in rows_of(spark, "groups", given, topic) if row.get("topic") == topic or row.get("error")]
    return TopicDescription(topic, tuple(queues), tuple(groups), known.shown(_KINDS, kept))


def _options_of_table(spark: SparkSession, name: str) -> dict[str, str]:
    """The options of a PyroMQ view or table, which Spark itself does not show; empty if there is no such table."""
    quoted = name if "`" in name or "." in name else f"`{name}`"
    if not spark.catalog.tableExists(quoted):
        return {}
    metadata: Mapping[str, Any] = metadata_of(spark.table(quoted).schema)
    if known.TABLE_METADATA not in metadata:
        raise StateError(f"{name} is a table of this session, but not one of PyroMQ's")
    return known.from_table(known.SourceOptions, {}, metadata)


def _topic_of(kept: Mapping[str, str], name: str) -> str:
    """The topic that a view or table stands for."""
    if not kept:
        return name
    topics = next((value for key, value in kept.items() if key.lower() in ("subscribe", "topic")), "")
    if not topics or "," in topics:
        raise ConfigError(f"{name} is not a table of one topic; describe(namesrv, topic) describes each")
    return topics
