"""Shortcuts to topics as tables: one as a DataFrame, all as views."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from ..meta.cluster_rows import user_topics
from ..option_values import declared
from ..options import ConnectionOptions
from .session import namesrv_of
from .statements import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


def read(spark: SparkSession, topic: str, namesrv: str | None = None, **options: object) -> DataFrame:
    """See `pyromq.spark.read`."""
    return spark.read.format("rocketmq").options(**_options(spark, topic, namesrv, options)).load()


def stream(spark: SparkSession, topic: str, namesrv: str | None = None, **options: object) -> DataFrame:
    """See `pyromq.spark.stream`."""
    return spark.readStream.format("rocketmq").options(**_options(spark, topic, namesrv, options)).load()


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
    """See `pyromq.spark.register_topics`."""
    given = {"namesrv": namesrv_of(spark, namesrv), **parallelism(spark), **texts(options)}
    _refuse_secrets(given)
    made: dict[str, str] = {}
    for topic in _matching(spark, given, pattern):
        other = made.setdefault(topic.lower(), topic)
        if other != topic:
            logger.warning("topic %s has no view: Spark cannot tell its name from that of topic %s", topic, other)
            continue
        pairs = ", ".join(f"{_quoted(key)} {_quoted(value)}" for key, value in {**given, "subscribe": topic}.items())
        # This kind of view, not one of a DataFrame, lets INSERT INTO write to the topic.
        create = f"CREATE OR REPLACE TEMPORARY VIEW `{topic}` USING rocketmq OPTIONS ({pairs})"
        Statements.of(spark).create_view(topic, create)
    if lake is None:
        return list(made.values())
    from ..lake.views import register

    archived = register(spark, made.values(), given, lake=lake, lake_options=lake_options, pin=pin)
    return [*made.values(), *archived]


def _matching(spark: SparkSession, given: dict[str, str], pattern: str) -> list[str]:
    try:
        wanted = re.compile(pattern)
    except re.error as exc:
        raise ConfigError(f"pattern must be a regular expression ({exc}), not {pattern!r}") from exc
    topics = user_topics(spark, given)
    found = [topic for topic in topics if wanted.fullmatch(topic)]
    if topics and not found:
        logger.warning("no topic matches %s, so there is no view; there are %d topics", pattern, len(topics))
    return found


def _options(spark: SparkSession, topic: str, namesrv: str | None, options: dict[str, object]) -> dict[str, Any]:
    common = {"namesrv": namesrv_of(spark, namesrv), "subscribe": topic}
    return {**common, **parallelism(spark), **texts(options)}


def parallelism(spark: SparkSession) -> dict[str, str]:
    """How many tasks can run at a time, which a reader cannot find out itself."""
    from pyspark.errors import PySparkException

    try:
        return {"parallelism": str(spark.sparkContext.defaultParallelism)}
    except PySparkException:  # Spark Connect knows no context
        return {}


def texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def _refuse_secrets(given: dict[str, str]) -> None:
    secrets = {info.key.lower(): info.key for _, info in declared(ConnectionOptions) if info.secret}
    for key in given:
        if key.lower() in secrets:
            raise ConfigError(
                f"{secrets[key.lower()]} would be visible in the text of every view; use credentials=env:PREFIX or "
                "file:PATH"
            )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
