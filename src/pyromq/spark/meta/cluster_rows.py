"""Rows of `rocketmq_meta` tables for our own helpers: asked from here, or by a Spark Connect server.

A Spark Connect client reaches the server, and often nothing behind it. So the server asks.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError

from .. import options as known
from ..blocking_client import Link
from ..option_values import declared
from ..sessions.connect import is_connect, lacking
from ..sessions.programs import our_words
from .rows import MetaRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from .rows import Row

_KINDS = (known.SourceOptions, known.SinkOptions)


def rows_of(spark: SparkSession | None, table: str, given: Mapping[str, str], topic: str | None = None) -> list[Row]:
    """All rows of a table, or those of one topic. `given` are connection options, possibly mixed with others.

    Raises PyroMQError if the name servers do not answer or do not know the topic.
    """
    connection = known.parse(known.ConnectionOptions, given, others=_KINDS)
    if spark is not None and is_connect(spark):
        return _by_the_server(spark, table, given, topic)
    with Link(connection) as link:
        return link.run(MetaRows(link, topics=(topic,) if topic else ()).of(table))


def user_topics(spark: SparkSession, given: Mapping[str, str]) -> list[str]:
    """The users' topics, sorted."""
    if is_connect(spark):
        return sorted({row["topic"] for row in rows_of(spark, "topics", given) if row["kind"] == "user"})
    with Link(known.parse(known.ConnectionOptions, given, others=_KINDS)) as link:
        return link.run(MetaRows(link).user_topics())


def _by_the_server(spark: SparkSession, table: str, given: Mapping[str, str], topic: str | None) -> list[Row]:
    from pyspark.errors import PySparkException

    names = {key.lower() for _, info in declared(known.ConnectionOptions) for key in (info.key, *info.aliases)}
    options = {key: value for key, value in given.items() if key.lower() in names}
    options |= {"table": table} if topic is None else {"table": table, "topics": topic}
    try:
        found = spark.read.format("rocketmq_meta").options(**options).load().collect()
    except PySparkException as exc:
        said = lacking(exc) or our_words(str(exc))
        if said is None:
            raise
        raise PyroMQError(said) from exc
    return [{name: _aware(value) for name, value in row.asDict().items()} for row in found]


def _aware(value: object) -> object:
    """The time with its zone: Spark returns naive times in the zone of this machine."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
