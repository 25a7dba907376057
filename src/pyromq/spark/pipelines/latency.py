"""`latency`: how long sending and consuming take, by topic and group, from the traces that clients leave.

    produce   ms of the send
    delivery  ms from the beginning of the send to that of the first delivery to a group
    consume   ms in the group's listener
    retries   how often a message came again before it was done

Percentiles are exact (with linear interpolation between neighbours), over all messages of the traces that were read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .failing import spark_words
from .pipelines_file import in_folder, name_of
from .places import ranges_of
from .progress import Watch, count
from .surroundings import Outcome, Plan, append_table
from .tasks_done import TasksDone
from .trace_records import deliveries, pubs, records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from .settings import LatencySettings
    from .surroundings import Surroundings

_PERCENTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """A measure of one topic and group. Times are milliseconds."""

    topic: str | None
    group: str
    measure: str
    messages: int
    p50: float
    p90: float
    p99: float
    max: float


class Latency:
    """Reads traces."""

    def __init__(self, settings: LatencySettings, where: Surroundings) -> None:
        self.settings = settings
        self.name = name_of("latency", settings)
        self.every: float | None = settings.every
        self._where = where

    def plan(self) -> Plan:
        found = ranges_of(self._where, self.settings.topic)
        return Plan((f"{self.name}: read {count(found.messages, 'message')} of {self.settings.topic}",), found.messages)

    def run(self) -> Outcome:
        settings, where = self.settings, self._where
        ranges = ranges_of(where, settings.topic)
        messages = self._messages(ranges.ends)
        done = TasksDone(where.spark, self.name, ranges.messages)
        with spark_words(), done, Watch(self.name, ranges.messages, done.rows, where.report):
            found = records(messages).persist()
            try:
                counts = {row["isTorn"]: row["count"] for row in found.groupBy("isTorn").count().collect()}
                rows = [LatencyRow(**row.asDict()) for row in measures(found.where("NOT isTorn")).collect()]
            finally:
                found.unpersist()
        rows = sorted(
            (
                row
                for row in rows
                if _matches(row.topic or "", settings.topics) and _matches(row.group, settings.groups)
            ),
            key=lambda row: (row.topic or "", row.group, row.measure),
        )
        if settings.table:
            append_table(where.spark, rows, LatencyRow, in_folder(settings.table, where.folder))
        torn = counts.get(True, 0)
        said = f"{self.name}: {count(counts.get(False, 0), 'trace record')}"
        return Outcome(said + (f", {torn:,} more were torn" if torn else ""), counts.get(False, 0), rows, LatencyRow)

    def _messages(self, ends: str) -> DataFrame:
        from pyspark.sql import functions as F

        frame = self._where.read(self.settings.topic, endingOffsets=ends, columns="body,storeTimestamp")
        if self.settings.since is not None:
            frame = frame.where(F.col("storeTimestamp") >= F.lit(self.settings.since))
        if self.settings.until is not None:
            frame = frame.where(F.col("storeTimestamp") < F.lit(self.settings.until))
        return frame


def measures(whole: DataFrame) -> DataFrame:
    """The columns of LatencyRow, from whole records."""
    from pyspark.sql import functions as F

    sent = pubs(whole)
    came = deliveries(whole)
    # A batch has one Pub with one id; a message that was sent twice under one id counts from the first.
    origins = sent.groupBy("id").agg(F.min_by("topic", "sent").alias("topic"), F.min("sent").alias("sent"))
    known = came.join(origins, "id", "left")
    each = known.groupBy("id", "topic", "group").agg(
        (F.min("began") - F.min("sent")).alias("delivery"), F.max("retries").alias("retries")
    )
    parts = [
        _summed(sent.where("isOk"), "produce", F.col("cost")),
        _summed(each.where("delivery IS NOT NULL"), "delivery", F.col("delivery")),
        _summed(known.where("cost IS NOT NULL"), "consume", F.col("cost")),
        _summed(each, "retries", F.col("retries")),
    ]
    first, *others = parts
    for part in others:
        first = first.unionAll(part)
    return first


def _summed(frame: DataFrame, measure: str, value: Column) -> DataFrame:
    from pyspark.sql import functions as F

    found = frame.groupBy("topic", "group").agg(
        F.count(value).alias("messages"),
        F.percentile(value, list(_PERCENTILES)).alias("p"),
        F.max(value).cast("double").alias("max"),
    )
    places = [F.get("p", F.lit(place)).alias(f"p{each * 100:g}") for place, each in enumerate(_PERCENTILES)]
    return found.select("topic", "group", F.lit(measure).alias("measure"), "messages", *places, "max")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(re.fullmatch(pattern, name) for pattern in patterns)
