"""`transform`: a topic, changed by SQL or a Python function, into another topic, as a streaming query.

Spark's checkpoint in the state folder says how far it got, so a run after a kill repeats at most its last micro-batch,
and with `guarantee: effectively-once` not even that is seen. Bad rows go to `<to>__dlq` with the reason: those that
the sink cannot send (a null body), those that a function raises for, and those with a text in a column `_error`, by
which an SQL query says so itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, PyroMQError, RouteNotFound

from ..blocking_client import Link
from ..options import SinkOptions, SourceOptions, parse
from ..sink.columns import sink_columns
from ..sink.messages import BAD_ROW, BAD_ROW_TOPIC
from ..sink.topics import BATCH_PATIENCE, find_topic
from .failing import spark_words
from .functions import ERROR, OUT_DDL, load, mapped
from .pipelines_file import name_of
from .places import ranges_of
from .progress import count
from .surroundings import Outcome, Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from .settings import TransformSettings
    from .surroundings import Surroundings

DEAD_LETTERS = "__dlq"
_QUEUES = 4  # of a topic for bad rows that does not exist yet


class Transform:
    """One transformation. `run` takes what is there now, `keep` goes on."""

    every: float | None = None

    def __init__(self, settings: TransformSettings, where: Surroundings) -> None:
        self.settings = settings
        self.name = name_of("transform", settings)
        self._where = where
        self._bad_rows = f"{settings.to}{DEAD_LETTERS}"

    def plan(self) -> Plan:
        settings = self.settings
        frame = self._frame(streams=False)
        with spark_words():
            self._check_columns(frame)
        ranges = ranges_of(self._where, settings.from_)
        how = "SQL" if settings.sql else ":".join(settings.function or settings.frame or ())
        lines = [f"{self.name}: {settings.from_} through {how} to {settings.to}, {settings.guarantee}"]
        try:
            queues = len(ranges_of(self._where, settings.to).ranges)
            lines.append(f"  {settings.to} has {count(queues, 'queue')}")
        except RouteNotFound:
            if settings.create_topic is None:
                raise ConfigError(f"there is no topic {settings.to}; createTopic: 8 creates it") from None
            lines.append(f"  {settings.to} does not exist; it is created with {count(settings.create_topic, 'queue')}")
        if settings.on_error == "dlq":
            lines.append(f"  bad rows go to {self._bad_rows}")
        begun = self._checkpoint_begun()
        lines.append(
            f"  {settings.from_} has {count(ranges.messages, 'message')}; "
            + ("continues where it was" if begun else f"begins at {self._begin()}")
        )
        return Plan(tuple(lines), None if begun else ranges.messages)

    def run(self) -> Outcome:
        query = self._query(once=True)
        try:
            self._await(query)
        finally:
            if query.isActive:
                query.stop()
        rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        return Outcome(f"{self.name}: {count(rows, 'message')} of {self.settings.from_} read", rows)

    def keep(self) -> Outcome:
        """Go on until the run is stopped, or the query fails."""
        query = self._query(once=False)
        rows = 0
        try:
            self._await(query)
            rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        finally:
            if query.isActive:
                query.stop()
        return Outcome(f"{self.name}: stopped", rows)

    # The query

    def _query(self, *, once: bool) -> StreamingQuery:
        self._make_topics()
        frame = self._frame(streams=True)
        with spark_words():
            self._check_columns(frame)
            writer = self._writer(frame)
            if once:
                writer = writer.trigger(availableNow=True)
            elif self.settings.every is not None:
                writer = writer.trigger(processingTime=f"{round(self.settings.every * 1000)} milliseconds")
            return writer.start()

    def _await(self, query: StreamingQuery) -> None:
        with spark_words():
            while not query.awaitTermination(1):
                if self._where.stopping.is_set():
                    stop_at_rest(query)
                    return

    def _writer(self, frame: DataFrame) -> DataStreamWriter:
        settings = self.settings
        options = {
            **self._where.connection,
            "guarantee": settings.guarantee,
            "onBadRow": f"dlq:{self._bad_rows}" if settings.on_error == "dlq" else settings.on_error,
            "checkpointLocation": str(self._where.state_of(self.name) / "checkpoint"),
        }
        if ERROR in frame.columns:
            frame = self._marked(frame)
        else:
            options["topic"] = settings.to
        return frame.writeStream.format("rocketmq").queryName(self.name).outputMode("append").options(**options)

    def _frame(self, *, streams: bool) -> DataFrame:
        """What is to be sent."""
        settings = self.settings
        options = self._where.options(settings.from_, tags=settings.tags)
        if streams:
            options |= self._start_options()
            if settings.max_per_batch is not None:
                options["maxOffsetsPerTrigger"] = str(settings.max_per_batch)
            if settings.group is not None:
                options["consumerGroup"] = settings.group
            parse(SourceOptions, options).check_stream()
        spark = self._where.spark
        with spark_words():
            reader = spark.readStream if streams else spark.read
            frame = reader.format("rocketmq").options(**options).load()
            if settings.sql is not None:
                frame.createOrReplaceTempView(f"`{settings.from_}`")
                return spark.sql(settings.sql)
        if settings.function is not None:
            function = load(*settings.function, self._where.folder)
            return frame.mapInArrow(mapped(function), OUT_DDL)
        assert settings.frame is not None
        made: DataFrame = load(*settings.frame, self._where.folder)(frame)
        if not hasattr(made, "writeStream"):
            raise ConfigError(f"{':'.join(settings.frame)} must return a DataFrame, not {type(made).__name__}")
        return made

    def _start_options(self) -> dict[str, str]:
        if self.settings.starting_timestamp is not None:
            return {
                "startingTimestamp": str(int(self.settings.starting_timestamp.timestamp() * 1000)),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        return {"startingOffsets": self.settings.starting_offsets}

    def _begin(self) -> str:
        [(key, value), *_] = self._start_options().items()
        return f"{key}={value}"

    def _marked(self, frame: DataFrame) -> DataFrame:
        """Send rows that carry an error where bad rows go, or not at all."""
        from pyspark.sql import functions as F

        settings, error = self.settings, F.col(ERROR)
        if settings.on_error == "skip":
            frame = frame.where(error.isNull())
        elif settings.on_error == "fail":
            said = F.concat(
                F.lit(f"{self.name}: bad row, keys "), F.coalesce("keys", F.lit("none")), F.lit(": "), error
            )
            frame = frame.withColumn("body", F.when(error.isNull(), F.col("body")).otherwise(F.raise_error(said)))
        own = F.col("properties") if "properties" in frame.columns else F.lit(None)
        own = F.coalesce(own, F.create_map().cast("map<string,string>"))
        marks = F.create_map(F.lit(BAD_ROW), error, F.lit(BAD_ROW_TOPIC), F.lit(settings.to))
        frame = frame.withColumn("properties", F.when(error.isNull(), own).otherwise(F.map_concat(own, marks)))
        frame = frame.withColumn("topic", F.when(error.isNull(), F.lit(settings.to)).otherwise(F.lit(self._bad_rows)))
        if settings.guarantee == "effectively-once":
            frame = frame.drop("shardingKey")
        return frame.drop(ERROR)

    def _check_columns(self, frame: DataFrame) -> None:
        """Whether the sink takes these columns; it would say so only when the query runs."""
        given = {**self._where.connection, "topic": self.settings.to, "guarantee": self.settings.guarantee}
        schema = (frame.drop(ERROR, "shardingKey") if ERROR in frame.columns else frame).schema
        sink_columns(schema, parse(SinkOptions, given))

    # Topics and state

    def _make_topics(self) -> None:
        """Create what is missing and may be created, before the query needs it."""
        wanted: list[tuple[str, int | None]] = [(self.settings.to, self.settings.create_topic)]
        if self.settings.on_error == "dlq":
            wanted.append((self._bad_rows, self.settings.create_topic or _QUEUES))
        for topic, queues in wanted:
            given = {**self._where.connection, "topic": topic}
            options = parse(SinkOptions, given | ({"createTopic": str(queues)} if queues else {}))
            with Link(options) as link:
                link.run(find_topic(link, options, topic, BATCH_PATIENCE))

    def _checkpoint_begun(self) -> bool:
        if self._where.state is None:
            return False
        return (self._where.state_of(self.name) / "checkpoint" / "offsets").is_dir()


def stop_at_rest(query: StreamingQuery, patience: float = 30.0) -> None:
    """Stop a query between two batches if it comes to rest in time: the next run then repeats nothing."""
    import time

    deadline = time.monotonic() + patience
    while query.isActive and time.monotonic() < deadline:
        status = query.status
        if not status["isTriggerActive"] or re.search("wait", status["message"], re.IGNORECASE):
            break
        time.sleep(0.05)
    try:
        query.stop()
    except Exception as exc:
        raise PyroMQError(f"{query.name} did not stop: {exc}") from exc
