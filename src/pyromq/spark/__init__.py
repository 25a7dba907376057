"""Topics as Spark tables: sources, sink and scans on Spark's Python Data Source API, without a jar of ours.

    import pyromq.spark as mq

    spark = mq.session("localhost:9876")
    mq.register_topics(spark)
    spark.sql("SELECT tags, count(*) FROM orders GROUP BY tags").show()

Spark imports the top-level `pyspark_rocketmq*` modules to learn the formats, on the driver and often, and one that
fails takes all formats away with it. So this package imports nothing by itself: not pyspark, not pyarrow, no client.
What is below imports what it needs when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date, datetime
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from .lake.archive import ArchiveSummary
    from .lake.headroom import Headroom
    from .pipelines.runner import Result
    from .sessions.descriptions import TopicDescription
    from .sessions.diagnosis import Diagnosis
    from .source.lag_listener import BatchProgress
    from .source.lag_listener import LagListener as _LagListener

__all__ = [
    "LagListener",
    "archive",
    "describe",
    "doctor",
    "enable",
    "headroom",
    "read",
    "register_topics",
    "run_pipelines",
    "session",
    "stream",
    "unified",
    "unified_stream",
]


def session(
    namesrv: str | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    app: str = "pyromq",
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> SparkSession:
    """A Spark session with PyroMQ enabled: a local one, or that of `master` or `remote`.

    `remote` is a Spark Connect server, sc://host:15002; without `remote` and `master`, SPARK_REMOTE counts. The
    helpers below ask `namesrv` by default. Spark logs only errors unless `verbose`. Raises
    ConfigError if pyspark or Java is missing, if `remote` does not answer, or if the Python there lacks this package.
    """
    from .sessions.session import session as made

    return made(namesrv, master=master, remote=remote, app=app, conf=conf, verbose=verbose)


def enable(spark: SparkSession, *, namesrv: str | None = None, by_value: bool = False) -> None:
    """Enable PyroMQ in an existing session: its formats, views that see new messages, text as a body in `INSERT`.

    Filters reach the broker if this Spark keeps those of one scan from another; up to 4.3 it does not.

    `by_value` sends the package to executors that lack it, for this session. It is pure Python; what it imports
    (pyarrow, numpy, msgspec, lz4, zstandard) must be there. Streams are planned on the driver, which must have it. With
    Spark Connect that is the server: ConfigError if it lacks the package and was not sent it.
    """
    from .sessions.session import enable as enabled

    enabled(spark, namesrv=namesrv, by_value=by_value)


def read(spark: SparkSession, topic: str, namesrv: str | None = None, **options: object) -> DataFrame:
    """A topic up to its current end, as a DataFrame.

    `options` are those of the format `rocketmq`; `parallelism` defaults to that of the session.
    """
    from .sessions.views import read as frame

    return frame(spark, topic, namesrv, **options)


def stream(spark: SparkSession, topic: str, namesrv: str | None = None, **options: object) -> DataFrame:
    """A topic as a stream, from its end unless `startingOffsets` says otherwise."""
    from .sessions.views import stream as frame

    return frame(spark, topic, namesrv, **options)


def unified(
    spark: SparkSession,
    topic: str,
    *,
    lake: str,
    since: datetime | date | str | int | None = None,
    until: datetime | date | str | int | None = None,
    name: str | None = None,
    version: int | None = None,
    namesrv: str | None = None,
    lake_options: Mapping[str, str] | None = None,
    **options: object,
) -> DataFrame:
    """A topic from its first archived message to its current end, as one DataFrame, each message once.

    `lake` is the root of the lake, `name` that of the table, if not the topic's. One version of the table is taken now,
    the newest or `version`; brokers are read from where it ends. `since` and `until` (exclusive) are times of storing:
    ISO 8601, a date, or milliseconds. If the lake has all messages before `until`, no broker is asked.
    `lake_options` reach the storage; `options` are those of the format `rocketmq`.
    """
    from .lake.unified import unified as frame

    return frame(
        spark,
        topic,
        lake=lake,
        since=since,
        until=until,
        name=name,
        version=version,
        namesrv=namesrv,
        lake_options=lake_options,
        **options,
    )


def unified_stream(
    spark: SparkSession,
    topic: str,
    *,
    lake: str,
    since: datetime | date | str | int | None = None,
    name: str | None = None,
    namesrv: str | None = None,
    lake_options: Mapping[str, str] | None = None,
    **options: object,
) -> DataFrame:
    """A topic as a stream that begins with what the lake has of it and goes on live, each message once.

    A query that starts again goes on where its checkpoint says, in the lake or in the broker. The parameters are
    those of `unified`; `maxOffsetsPerTrigger` has it read history in steps.
    """
    from .lake.unified import unified_stream as frame

    return frame(spark, topic, lake=lake, since=since, name=name, namesrv=namesrv, lake_options=lake_options, **options)


def register_topics(
    spark: SparkSession,
    namesrv: str | None = None,
    *,
    pattern: str = ".*",
    lake: str | None = None,
    lake_options: Mapping[str, str] | None = None,
    pin: bool = False,
    **options: object,
) -> list[str]:
    """Create a temporary view for every topic whose whole name matches `pattern`; returns the names.

    Retry, dead-letter and system topics get none. `SELECT` reads a topic, with what was sent until then, `INSERT INTO`
    sends to it. Names with a hyphen need backticks. `options` are those of the format `rocketmq`, for all of them;
    secrets are refused, since a view shows its options.

    With `lake`, the root of a lake, archived topics also get the views `<topic>_lake` and `<topic>_all`: what is
    archived, and history and live as one. They show what is there when they are queried. With `pin` they stay at what
    is archived now, and are faster: Spark then reads the files itself.
    """
    from .sessions.views import register_topics as registered

    return registered(spark, namesrv, pattern=pattern, lake=lake, lake_options=lake_options, pin=pin, **options)


def headroom(
    where: SparkSession | str,
    topic: str,
    *,
    lake: str,
    name: str | None = None,
    lake_options: Mapping[str, str] | None = None,
    **options: object,
) -> Headroom:
    """How long brokers will keep what is not archived of a topic: `lake_headroom_seconds`, and `alarm`. Print it.

    `where` is the address of a name server, or a session. `alarm` is WARN for less than 24 hours, and ERROR for less
    than 6, or if messages are lost already. The other parameters are those of `unified`.
    """
    from .lake.unified import headroom as looked

    return looked(where, topic, lake=lake, name=name, lake_options=lake_options, **options)


def describe(where: SparkSession | str, topic: str, **options: object) -> TopicDescription:
    """Describe a topic: its queues and their offsets, its groups and their lag. Print the result.

    `where` is the address of a name server, or a session; then `topic` may be the name of a view or table, whose
    options are shown, too, which Spark itself never does.
    """
    from .sessions.descriptions import describe as described

    return described(where, topic, **options)


def doctor(spark: SparkSession, namesrv: str | None = None, **options: object) -> Diagnosis:
    """Check the driver and every executor: Python, packages, whether each broker is reachable. Print the result.

    `is_well` says whether `problems` is empty. An executor without our package is a problem, not an error.
    With Spark Connect the server is checked, too, and finds the brokers.
    """
    from .sessions.diagnosis import doctor as looked

    return looked(spark, namesrv, **options)


def archive(spark: SparkSession, topics: Sequence[str], *, root: str, **options: Any) -> ArchiveSummary:
    """Archive topics, names or regular expressions, into tables below `root`, each message once.

    `once=True` takes what is there now; else it goes on. Needs `pip install 'pyromq[lake]'`. The other options are
    those of `pyromq.spark.lake.archive.archive`, and those of the format `rocketmq`; see the page on the lake.
    """
    from .lake.archive import archive as archived

    return archived(spark, topics, root=root, **options)


def run_pipelines(
    spark: SparkSession,
    file: str,
    *,
    once: bool = True,
    namesrv: str | None = None,
    say: Callable[[object], None] = print,
) -> list[Result]:
    """Run the pipelines of a YAML file, as `pyromq spark run` does, in your own session or a program that you submit.

    `once` runs each to its end, one after the other; otherwise they go on side by side for ever. `say` is told
    progress and summaries. Raises ConfigError for a file that is wrong; what failed is in the results.
    """
    from .pipelines.runner import run_file

    return run_file(spark, file, once=once, namesrv=namesrv, say=say)


def LagListener(report: Callable[[BatchProgress], None] | None = None) -> _LagListener:
    """A listener that knows the lag of each streaming query: `spark.streams.addListener(LagListener())`.

    `lag` has the lag per queue, by the name or id of the query; `report` is called with every micro-batch.
    """
    from .source.lag_listener import LagListener as Listener

    return Listener(report)
