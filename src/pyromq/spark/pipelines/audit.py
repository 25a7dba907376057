"""`audit`: whether the lake has what the brokers have, and an output topic what its input has.

    queue      of each archived queue: offsets that are missing between its first and the table's position, offsets that
               are there twice, gaps the archive had to record, messages that differ from the broker's, damaged bodies
    ids        message ids that occur more than once in a topic, as after a producer's retry
    keys       keys of inTopic that outTopic lacks, or has more often
    spark_txn  of outTopic: messages that are there twice by their SPARK_TXN, and numbers left out between them

Nothing of the archive's own bookkeeping is trusted but the position of each queue, which the rows are held against.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyromq.errors import RouteNotFound
from pyromq.protocol import sysflag

from ..sink.identity import SPARK_TXN
from .failing import spark_words
from .lake_tables import Table, open_table
from .pipelines_file import in_folder, name_of
from .places import matching_topics, offsets_json, ranges_of
from .progress import Watch, count
from .surroundings import Outcome, Plan, append_table
from .tasks_done import TasksDone
from .transform import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from pyromq.protocol.message_queue import MessageQueue

    from .places import TopicRanges
    from .settings import AuditSettings
    from .surroundings import Surroundings

_SHOWN = 5  # ranges or names in a row's details
_QUEUE = ("brokerName", "queueId")
# Bodies that are not the bytes their CRC is of: compressed ones, and those taken out of a batch.
_NOT_AS_STORED = sysflag.COMPRESSED | 0x0C0


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What was found in one queue, or in a topic. Zeros are good; `lag` is what is not archived yet."""

    check: str
    topic: str
    broker: str
    queue: int | None
    messages: int
    missing: int
    doubled: int
    lost: int
    differing: int
    damaged: int
    lag: int
    details: str


class Audit:
    """Compares. Changes nothing, apart from the table of findings."""

    def __init__(self, settings: AuditSettings, where: Surroundings) -> None:
        self.settings = settings
        self.name = name_of("audit", settings)
        self.every: float | None = settings.every
        self._where = where
        if settings.topics:
            where.needed_lake()

    def plan(self) -> Plan:
        settings = self.settings
        lines, total = [], 0
        for topic in self._topics():
            ranges = ranges_of(self._where, topic)
            total += ranges.messages
            lines.append(f"{self.name}: compare {count(ranges.messages, 'message')} of {topic} with the lake")
        if settings.out_topic is not None:
            total += ranges_of(self._where, settings.out_topic).messages
            against = f" with {settings.in_topic}" if settings.by == "keys" else ""
            lines.append(f"{self.name}: check {settings.out_topic}{against} by {settings.by}")
        return Plan(tuple(lines), total)

    def run(self) -> Outcome:
        rows: list[AuditRow] = []
        total = self.plan().rows or 0
        done = TasksDone(self._where.spark, self.name, total)
        with spark_words(), done, Watch(self.name, total, done.rows, self._where.report):
            for topic in self._topics():
                rows += self._against_brokers(topic)
            if self.settings.out_topic is not None:
                rows += self._by_keys() if self.settings.by == "keys" else self._by_txn()
        if self.settings.table:
            append_table(self._where.spark, rows, AuditRow, in_folder(self.settings.table, self._where.folder))
        checked = sum(row.messages for row in rows if row.check != "ids")
        problems = tuple(filter(None, map(self._problem, rows)))
        said = f"{self.name}: {count(checked, 'message')} checked, " + (
            f"{count(len(problems), 'problem')}" if problems else "all is well"
        )
        return Outcome(said, checked, rows, AuditRow, problems)

    def _topics(self) -> list[str]:
        return matching_topics(self._where, self.settings.topics) if self.settings.topics else []

    def _problem(self, row: AuditRow) -> str | None:
        if row.check == "ids" and not self.settings.fail_on_ids:
            return None
        found = {name: getattr(row, name) for name in ("missing", "doubled", "lost", "differing", "damaged")}
        said = [f"{number:,} {name}" for name, number in found.items() if number]
        if self.settings.max_lag is not None and row.lag > self.settings.max_lag:
            said.append(f"{row.lag:,} not archived yet")
        if not said:
            return None
        place = row.topic if row.queue is None else f"{row.topic} {row.broker} queue {row.queue}"
        return f"{place}: {', '.join(said)}" + (f" ({row.details})" if row.details else "")

    # The lake and the brokers

    def _against_brokers(self, topic: str) -> list[AuditRow]:
        from pyspark.sql import functions as F

        ranges = ranges_of(self._where, topic)
        table = open_table(self._where, topic)
        if table is None:
            # Whoever asks for an audit expects one: all that the brokers have is missing.
            return [
                _queue_row(queue, {}, missing=end - start, lag=end - start, details="no table yet")
                for queue, (start, end) in sorted(ranges.ranges.items())
            ]
        lake = table.frame(self.settings.since)
        sums = {
            (row["brokerName"], row["queueId"]): row.asDict()
            for row in lake.groupBy(*_QUEUE)
            .agg(
                F.count("queueOffset").alias("messages"),
                F.countDistinct("queueOffset").alias("different"),
                F.min("queueOffset").alias("first"),
                F.sum(self._is_damaged().cast("int")).alias("damaged"),
            )
            .collect()
        }
        differing = self._differing(lake, table, ranges, sums)
        rows = [
            self._queue(queue, table, ranges, sums, differing, lake)
            for queue in sorted({*ranges.ranges, *table.positions})
        ]
        return rows + (self._ids(lake, topic) if self.settings.ids else [])

    def _is_damaged(self) -> Any:
        from pyspark.sql import functions as F

        if not self.settings.crc:
            return F.lit(False)
        as_stored = F.col("sysFlag").bitwiseAND(_NOT_AS_STORED) == 0
        return as_stored & (F.crc32("body").bitwiseAND(0x7FFFFFFF) != F.col("bodyCRC").cast("bigint"))

    def _queue(
        self,
        queue: MessageQueue,
        table: Table,
        ranges: TopicRanges,
        sums: Mapping[tuple[str, int], Mapping[str, Any]],
        differing: Mapping[tuple[str, int], int],
        lake: DataFrame,
    ) -> AuditRow:
        place = (queue.broker_name, queue.queue_id)
        found = sums.get(place, {})
        position = table.positions.get(queue)
        start, end = ranges.ranges.get(queue, (None, None))
        if position is None:
            return _queue_row(queue, found, lag=(end or 0) - (start or 0), details="not archived yet")
        gaps = [gap for gap in table.gaps if gap.queue == queue]
        lost = sum(gap.end - gap.start for gap in gaps)
        first = min(
            [each for each in (found.get("first"), *(gap.start for gap in gaps)) if each is not None], default=position
        )
        if start is not None and self.settings.since is None:
            # The broker still has what was never archived.
            first = min(first, start)
        if self.settings.since is not None:
            lost = sum(max(0, gap.end - max(gap.start, first)) for gap in gaps)
        missing = max(0, position - first) - found.get("different", 0) - lost
        details = []
        if missing:
            details.append(f"missing {self._holes(lake, queue, first, position)}")
        if gaps:
            details.append(f"lost {_ranges([(gap.start, gap.end) for gap in gaps])}")
        if end is None:
            details.append("no broker has this queue")
        elif position > end:
            details.append(f"the table is at {position:,}, the broker only at {end:,}: was the topic made anew?")
        return _queue_row(
            queue,
            found,
            missing=max(0, missing),
            doubled=found.get("messages", 0) - found.get("different", 0),
            lost=lost,
            differing=differing.get(place, 0) + (position - end if end is not None and position > end else 0),
            lag=max(0, (end or 0) - position),
            details="; ".join(details),
        )

    def _differing(
        self, lake: DataFrame, table: Table, ranges: TopicRanges, sums: Mapping[tuple[str, int], Mapping[str, Any]]
    ) -> dict[tuple[str, int], int]:
        """How many messages of each queue are not those that the broker has at these offsets."""
        from pyspark.sql import functions as F

        starts, ends = {}, {}
        for queue, (start, end) in ranges.ranges.items():
            first = sums.get((queue.broker_name, queue.queue_id), {}).get("first")
            upto = min(table.positions.get(queue, 0), end)
            starts[queue] = max(start, first) if first is not None and first < upto else end
            ends[queue] = max(starts[queue], upto) if starts[queue] < end else end
        if all(starts[queue] == ends[queue] for queue in starts):
            return {}
        live = self._where.read(
            ranges.topic,
            startingOffsets=offsets_json(starts),
            endingOffsets=offsets_json(ends),
            columns="brokerName,queueId,queueOffset,msgId,bodyCRC",
            failOnDataLoss="false",
        )
        key = [*_QUEUE, "queueOffset"]
        archived = lake.select(*key, F.struct("msgId", "bodyCRC").alias("archived"))
        stored = live.select(*key, F.struct("msgId", "bodyCRC").alias("stored"))
        both = archived.join(stored, key)
        found = both.where("archived <> stored").groupBy(*_QUEUE).count().collect()
        return {(row["brokerName"], row["queueId"]): row["count"] for row in found}

    def _holes(self, lake: DataFrame, queue: MessageQueue, first: int, position: int) -> str:
        """The ranges of offsets that are missing, as text; gaps that the archive recorded are among them."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        mine = lake.where((F.col("brokerName") == queue.broker_name) & (F.col("queueId") == queue.queue_id))
        order = Window.partitionBy(*_QUEUE).orderBy("queueOffset")
        offsets = mine.select(*_QUEUE, "queueOffset").distinct()
        before = F.coalesce(F.lag("queueOffset").over(order), F.lit(first - 1))
        holes = offsets.select((before + 1).alias("start"), F.col("queueOffset").alias("end")).where("end > start")
        found = [(row["start"], row["end"]) for row in holes.orderBy("start").limit(_SHOWN + 1).collect()]
        last = offsets.agg(F.max("queueOffset")).collect()[0][0]
        if (last if last is not None else first - 1) + 1 < position:
            found.append(((last if last is not None else first - 1) + 1, position))
        return _ranges(found)

    def _ids(self, lake: DataFrame, topic: str) -> list[AuditRow]:
        from pyspark.sql import functions as F

        twice = lake.groupBy("msgId").count().where("count > 1")
        [row] = twice.agg(F.count("msgId").alias("ids"), F.sum(F.col("count") - 1).alias("more")).collect()
        if not row["ids"]:
            return []
        shown = [each["msgId"] for each in twice.orderBy("msgId").limit(_SHOWN).collect()]
        return [_topic_row("ids", topic, lake.count(), doubled=row["more"], details=_names(shown, row["ids"]))]

    # Input and output

    def _by_keys(self) -> list[AuditRow]:
        from pyspark.sql import functions as F

        settings = self.settings
        assert settings.in_topic is not None
        assert settings.out_topic is not None
        sent = self._since(self._where.read(settings.in_topic))
        if settings.where is not None:
            sent = sent.where(settings.where)
        came = self._since(self._where.read(settings.out_topic, columns="keys,storeTimestamp"))
        without = sent.where("keys IS NULL OR keys = ''").count()
        expected, found = _key_counts(sent, "expected"), _key_counts(came, "found")
        both = expected.join(found, "key", "left").where("found IS NULL OR found > expected").persist()
        try:
            missing = both.where("found IS NULL")
            more = both.where("found IS NOT NULL").agg(F.sum(F.col("found") - F.col("expected"))).collect()[0][0] or 0
            absent = missing.count()
            shown = [row["key"] for row in both.orderBy("key").limit(_SHOWN).collect()]
            details = _names(shown, both.count()) if shown else ""
        finally:
            both.unpersist()
        if without:
            details += f"{'; ' if details else ''}{count(without, 'message')} of {settings.in_topic} without keys"
        about = f"{settings.in_topic} -> {settings.out_topic}"
        return [_topic_row("keys", about, came.count(), missing=absent, doubled=more, details=details)]

    def _by_txn(self) -> list[AuditRow]:
        from pyspark.sql import functions as F

        assert self.settings.out_topic is not None
        frames = [self._where.read(self.settings.out_topic, columns="properties,storeTimestamp")]
        try:
            # Bad rows took their numbers with them.
            bad_rows = f"{self.settings.out_topic}{DEAD_LETTERS}"
            ranges_of(self._where, bad_rows)
            frames.append(self._where.read(bad_rows, columns="properties,storeTimestamp"))
        except RouteNotFound:
            pass
        every = self._since(reduce(lambda one, other: one.unionAll(other), frames))
        parts = r"^(.*):(\d+):(\d+):(\d+)$"
        txn = F.col("properties")[SPARK_TXN]
        numbered = every.where(txn.isNotNull()).select(
            txn.alias("txn"),
            F.regexp_extract(txn, r"^(.*):\d+$", 1).alias("task"),
            F.regexp_extract(txn, parts, 4).try_cast("bigint").alias("number"),
        )
        tasks = numbered.groupBy("task").agg(
            F.count("txn").alias("messages"),
            F.countDistinct("number").alias("different"),
            (F.max("number") + 1).alias("expected"),
        )
        [row] = tasks.agg(
            F.sum("messages"),
            F.sum(F.col("messages") - F.col("different")),
            F.sum(F.col("expected") - F.col("different")),
        ).collect()
        messages, doubled, missing = (value or 0 for value in row)
        odd = tasks.where("messages > different OR expected > different")
        shown = [each["task"] for each in odd.orderBy("task").limit(_SHOWN).collect()]
        details = _names(shown, odd.count()) if shown else ""
        topic = self.settings.out_topic
        return [_topic_row("spark_txn", topic, messages, missing=missing, doubled=doubled, details=details)]

    def _since(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        since = self.settings.since
        return frame if since is None else frame.where(F.col("storeTimestamp") >= F.lit(since))


def _key_counts(frame: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    keys = frame.select(F.explode(F.split("keys", " ")).alias("key")).where("key <> ''")
    return keys.groupBy("key").agg(F.count("key").alias(name))


def _queue_row(
    queue: MessageQueue,
    found: Mapping[str, Any],
    *,
    missing: int = 0,
    doubled: int = 0,
    lost: int = 0,
    differing: int = 0,
    lag: int = 0,
    details: str = "",
) -> AuditRow:
    messages, damaged = found.get("messages", 0), found.get("damaged", 0) or 0
    place = (queue.topic, queue.broker_name, queue.queue_id)
    return AuditRow("queue", *place, messages, missing, doubled, lost, differing, damaged, lag, details)


def _topic_row(
    check: str, topic: str, messages: int, *, missing: int = 0, doubled: int = 0, details: str = ""
) -> AuditRow:
    return AuditRow(check, topic, "", None, messages, missing, doubled, 0, 0, 0, 0, details)


def _ranges(found: list[tuple[int, int]]) -> str:
    shown = [f"{start}" if end == start + 1 else f"{start} to {end - 1}" for start, end in found[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(found) > _SHOWN else "")


def _names(shown: list[str], total: int) -> str:
    return ", ".join(map(str, shown)) + (f" and {total - len(shown):,} more" if total > len(shown) else "")
