"""`replay`: send messages again, those of a topic, of a table of the lake, or a group's dead letters.

A replayed message has the body, keys, tags, flag and properties that its first sender gave it, nothing that a broker
added, and the id of the first one in REPLAY_OF. The range is fixed when the replay is planned, so a replay into its own
topic ends, too.

With a state folder a replay survives being killed: its new ids are computed from where the old messages lie, so a
second run finds out in the destinations which of them are there, and sends the others. (What a dying process had just
handed to its socket can still arrive after that look.) A replay that has ended is not run again under the same name.
"""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError
from pyromq.protocol import properties as props
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX

from ..schema import COLUMNS
from ..sink.identity import SPARK_TXN, key_of
from ..sink.messages import NOT_COPIED
from .failing import spark_words
from .lake_tables import needed_table
from .pipelines_file import name_of
from .places import offsets_json, ranges_of
from .progress import Watch, count, span
from .surroundings import Outcome, Plan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from .places import TopicRanges
    from .settings import ReplaySettings
    from .surroundings import Surroundings

_ROWS_PER_TASK = 5_000.0  # a second; a task can do several times that, so it keeps the pace
_FILE = "replay.json"


@dataclass(slots=True)
class ReplayState:
    """What a replay remembers: which range it takes, where the destinations ended before it, and its job."""

    job: str
    settings: dict[str, Any]
    ends: str | None  # of the topic
    version: int | None  # of its table
    since: str | None
    until: str | None
    destinations: dict[str, str] = field(default_factory=dict)  # their ends, as JSON, when it began
    done: str | None = None  # when

    def save(self, folder: Path | None) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{_FILE}.part"
            part.write_text(json.dumps(dataclasses.asdict(self), indent=1))
            part.replace(folder / _FILE)

    @classmethod
    def load(cls, folder: Path | None) -> ReplayState | None:
        if folder is None or not (folder / _FILE).is_file():
            return None
        try:
            return cls(**json.loads((folder / _FILE).read_text()))
        except (ValueError, TypeError) as exc:
            raise ConfigError(f"{folder / _FILE} is damaged: {exc}") from exc


class Replay:
    """One replay. Plan it, or run it, which plans first."""

    every: float | None = None

    def __init__(self, settings: ReplaySettings, where: Surroundings) -> None:
        self.settings = settings
        self.name = name_of("replay", settings)
        self._where = where
        self._folder = None if where.state is None else where.state_of(self.name)
        self._plan: Plan | None = None
        self._planned: tuple[ReplayState, DataFrame, dict[str, int], int] | None = None

    def plan(self) -> Plan:
        self._planned = None
        self._plan = self._make_plan()
        return self._plan

    def run(self) -> Outcome:
        # What was planned, if it was: a user may have agreed to just that.
        planned = self._plan or self.plan()
        self._plan = None
        if self._planned is None or planned.is_idle:
            if self._planned is not None:
                self._end(self._planned[0])
            return Outcome(planned.lines[0])
        state, rows, counted, already = self._planned
        destinations = {topic: ranges_of(self._where, topic) for topic in counted}
        # What an earlier run began has to be found again: its first look is the one that counts.
        state.destinations = {topic: each.ends for topic, each in destinations.items()} | state.destinations
        state.save(self._folder)
        total = sum(counted.values())
        with Watch(self.name, total, lambda: self._grown(destinations), self._where.report), spark_words():
            self._send(rows, state, destinations)
        arrived, different = self._arrived(state)
        self._end(state)
        expected = total + already
        said = f"{self.name}: {count(total, 'message')} sent" + (f", {already:,} had been before" if already else "")
        doubled = f"{arrived - different:,} arrived twice, since tasks were repeated" if arrived > different else ""
        missing = f"{expected - different:,} did not arrive" if different < expected else ""
        skipped = missing and self.settings.on_bad_row != "fail"
        return Outcome(
            said + (f"; {missing}: onBadRow={self.settings.on_bad_row}" if skipped else ""),
            total,
            problems=tuple(filter(None, (doubled, "" if skipped else missing))),
        )

    def _make_plan(self) -> Plan:
        state = self._state()
        if state.done:
            return Plan((f"{self.name} ended at {state.done}; give it another name to do it again",), 0, is_idle=True)
        with spark_words():
            rows = self._rows(state)
            counted = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
            lost = counted.pop(None, 0)  # without an origin
            already = 0
            if state.destinations:
                # An earlier run was cut short.
                rows = self._missing(rows, state)
                before = sum(counted.values())
                counted = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
                already = before - sum(counted.values())
        if lost:
            raise ConfigError(
                f"{count(lost, 'message')} of {self.settings.from_} do not say where they came from; set to"
            )
        self._planned = (state, rows, counted, already)
        return Plan(tuple(self._lines(counted, already)), sum(counted.values()), is_idle=not counted)

    # Rows

    def _rows(self, state: ReplayState) -> DataFrame:
        """The messages to send, with the columns of the sink."""
        from pyspark.sql import functions as F

        settings = self.settings
        frame = self._source(state)
        conditions: list[Column] = []
        if state.since is not None:
            conditions.append(F.col("storeTimestamp") >= F.lit(datetime.fromisoformat(state.since)))
        if state.until is not None:
            conditions.append(F.col("storeTimestamp") < F.lit(datetime.fromisoformat(state.until)))
        if settings.tags:
            conditions.append(F.col("tags").isin(*settings.tags))
        if settings.keys:
            wanted = F.array(*map(F.lit, settings.keys))
            conditions.append(F.arrays_overlap(F.split("keys", props.KEY_SEPARATOR), wanted))
        if settings.ids:
            conditions.append(F.col("msgId").isin(*settings.ids))
        if settings.where is not None:
            conditions.append(F.expr(settings.where))
        if conditions:
            frame = frame.where(reduce(lambda one, other: one & other, conditions))
        if settings.limit is not None:
            frame = frame.orderBy("storeTimestamp", "brokerName", "queueId", "queueOffset").limit(settings.limit)
        own = F.map_filter("properties", lambda name, _: ~name.isin(*sorted(NOT_COPIED | {props.REPLAY_OF})))
        return frame.select(
            "body",
            "flag",
            "tags",
            "keys",
            (F.lit(settings.to) if settings.to is not None else _origin_topic()).alias("topic"),
            F.map_concat(F.coalesce(own, F.create_map()), F.create_map(F.lit(props.REPLAY_OF), _origin_id())).alias(
                "properties"
            ),
            F.concat_ws("/", F.lit(state.job), "topic", "brokerName", "queueId", "queueOffset").alias("dedupKey"),
            F.struct("topic", "brokerName", "queueId", "queueOffset").alias("at"),
        )

    def _source(self, state: ReplayState) -> DataFrame:
        topic = self.settings.from_
        if self.settings.source == "topic":
            return self._where.read(topic, endingOffsets=state.ends)
        table = needed_table(self._where, topic, state.version)
        archived = table.frame().select(*COLUMNS)
        if self.settings.source == "lake":
            return archived
        # Its version is fixed, so what is live begins at the same places in every run.
        return archived.unionAll(
            self._where.read(topic, startingOffsets=offsets_json(table.positions), endingOffsets=state.ends)
        )

    def _missing(self, rows: DataFrame, state: ReplayState) -> DataFrame:
        """The rows that an earlier run of this job has not sent."""
        from pyspark.sql import functions as F

        there = self._sent(state).select("msgId").distinct()
        return rows.join(F.broadcast(there), _id_of("dedupKey") == there["msgId"], "left_anti")

    def _sent(self, state: ReplayState) -> DataFrame:
        """The messages of this job that the destinations have."""
        from pyspark.sql import functions as F

        frames = [
            self._where.read(topic, startingOffsets=ends, columns="msgId,properties")
            for topic, ends in state.destinations.items()
        ]
        all_of_them = reduce(lambda one, other: one.unionAll(other), frames)
        return all_of_them.where(F.startswith(F.col("properties")[SPARK_TXN], F.lit(f"{state.job}:")))

    def _arrived(self, state: ReplayState) -> tuple[int, int]:
        """How many messages of the job there are, and how many different ones."""
        from pyspark.sql import functions as F

        with spark_words():
            [row] = self._sent(state).agg(F.count("msgId"), F.countDistinct("msgId")).collect()
        return row[0], row[1]

    # Sending

    def _send(self, rows: DataFrame, state: ReplayState, destinations: dict[str, TopicRanges]) -> None:
        options = {**self._where.connection, "jobId": state.job, "onBadRow": self.settings.on_bad_row}
        tasks = None
        if self.settings.rate is not None:
            tasks = max(1, math.ceil(self.settings.rate / _ROWS_PER_TASK)) if not self.settings.ordered else 1
            options["rowsPerSecond"] = f"{self.settings.rate / tasks:f}"
        if self.settings.ordered:
            rows = self._in_order(rows, destinations, tasks)
            options["keepQueueId"] = "true"
        elif tasks is not None:
            rows = rows.coalesce(1) if tasks == 1 else rows.repartition(tasks)
        rows.drop("at").write.format("rocketmq").mode("append").options(**options).save()

    def _in_order(self, rows: DataFrame, destinations: dict[str, TopicRanges], tasks: int | None) -> DataFrame:
        """Rows whose queues are those of the destination: the same numbers where it has them."""
        from pyspark.sql import functions as F

        fewest = {topic: min(each.queue_counts.values()) for topic, each in destinations.items()}
        counts = F.create_map(*(F.lit(part) for pair in fewest.items() for part in pair))
        place = ("at.topic", "at.brokerName", "at.queueId")
        rows = rows.repartition(*(place if tasks is None else (tasks, *place)))
        return rows.sortWithinPartitions(*place, "at.queueOffset").select(
            "*",
            F.col("at.brokerName").alias("brokerName"),
            F.pmod(F.col("at.queueId"), counts[F.col("topic")]).cast("int").alias("queueId"),
        )

    def _grown(self, destinations: dict[str, TopicRanges]) -> int:
        """How many messages came into the destinations since they were looked at, whoever sent them."""
        return sum(
            end - each.ranges.get(queue, (0, 0))[1]
            for topic, each in destinations.items()
            for queue, (_, end) in ranges_of(self._where, topic).ranges.items()
        )

    # State

    def _state(self) -> ReplayState:
        settings = {key: value for key, value in _plain(self.settings).items() if key not in ("since", "until", "rate")}
        found = ReplayState.load(self._folder)
        if found is not None:
            if found.settings != settings:
                raise ConfigError(
                    f"{self.name} was begun with other settings; give it another name, or remove {self._folder}"
                )
            return found
        since, until = (
            None if each is None else each.isoformat() for each in (self.settings.since, self.settings.until)
        )
        source, topic = self.settings.source, self.settings.from_
        version = None if source == "topic" else needed_table(self._where, topic).snapshot.version
        # Asked after the table, so that its positions are not beyond these.
        ends = None if source == "lake" else ranges_of(self._where, topic).ends
        return ReplayState(f"{self.name}-{uuid.uuid4().hex[:12]}", settings, ends, version, since, until)

    def _end(self, state: ReplayState) -> None:
        state.done = datetime.now(UTC).isoformat(timespec="seconds")
        state.save(self._folder)

    # Words

    def _lines(self, counted: dict[str, int], already: int) -> list[str]:
        settings, total = self.settings, sum(counted.values())
        kept = f"; {already:,} were sent before" if already else ""
        if not total:
            return [f"{self.name}: nothing to send from {settings.from_}{kept}"]
        what = {"topic": "", "lake": " in the lake", "all": " in the lake and live"}[settings.source]
        lines = [f"{self.name}: send {count(total, 'message')} of {settings.from_}{what} again{kept}"]
        lines += [f"  {number:,} to {topic}" for topic, number in sorted(counted.items())]
        if settings.rate:
            lines.append(f"  at {settings.rate:g} a second, in about {span(total / settings.rate)}")
        return lines


def _plain(settings: ReplaySettings) -> dict[str, Any]:
    """The settings as JSON gives them back."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings), default=str))
    return found


def _origin_topic() -> Column:
    """Where a dead letter came from; null if it does not say."""
    from pyspark.sql import functions as F

    given = [F.col("properties")[name] for name in (props.RETRY_TOPIC, props.REAL_TOPIC, props.DLQ_ORIGIN_TOPIC)]
    return F.coalesce(
        *(
            F.when(~F.startswith(each, F.lit(RETRY_PREFIX)) & ~F.startswith(each, F.lit(DLQ_PREFIX)), each)
            for each in given
        )
    )


def _origin_id() -> Column:
    """The id that the sender of a message knows, which a broker keeps when it moves it to another topic."""
    from pyspark.sql import functions as F

    names = (props.UNIQ_KEY, props.DLQ_ORIGIN_MESSAGE_ID, props.ORIGIN_MESSAGE_ID)
    return F.coalesce(*(F.col("properties")[name] for name in names), "msgId")


def _id_of(column: str) -> Column:
    """The id that the sink gives a row with this dedupKey."""
    from pyspark.sql import functions as F

    return F.udf(key_of, "string", useArrow=False)(column)
