"""Views of the lake: `<topic>_lake`, what is archived, and `<topic>_all`, history and live as one.

Spark plans the read of a view once, so these are made again for each statement that reads them again. A query therefore
sees the newest version and the newest messages, and both halves of `<topic>_all` are of one version. With `pin`, views
stay at the versions of their making, and Spark reads the files itself, columns that nobody asks for left out: faster
for one query, stale for the next.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from ..options import SourceOptions, parse
from ..sessions.connect import is_connect
from ..sessions.statements import Statements
from .history import History
from .layout import table_name
from .storage import Storage
from .table import LakeError
from .tables import list_tables, open_table
from .unified import files_frame, lake_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

LAKE, ALL = "_lake", "_all"


def register(
    spark: SparkSession,
    topics: Iterable[str],
    given: Mapping[str, str],
    *,
    lake: str,
    lake_options: Mapping[str, str] | None = None,
    pin: bool = False,
) -> list[str]:
    """Make the views of those of `topics` that have a table; `given` are options of the format `rocketmq`.

    Returns the names of the views.
    """
    made = []
    for topic, name in _tables(
        spark, topics, Storage.of(lake, lake_options), (lake_options or {}).get("format")
    ).items():
        settings = lake_settings(lake, name, lake_options)
        live = {**given, **settings, "subscribe": topic}
        try:
            if pin:
                for suffix, frame in zip((LAKE, ALL), _pinned(spark, live), strict=True):
                    frame.createOrReplaceTempView(f"`{topic}{suffix}`")
            else:
                _keep_fresh(spark, topic, live, settings)
        except PySparkException as exc:
            # Through Connect, only the server knows which topics have a table.
            if not is_connect(spark):
                raise
            logger.info("topic %s has no views of the lake: %s", topic, str(exc).partition("\n")[0])
            continue
        made += [f"{topic}{LAKE}", f"{topic}{ALL}"]
    return made


def _keep_fresh(spark: SparkSession, topic: str, live: Mapping[str, str], settings: Mapping[str, str]) -> None:
    kept = ("lake.root", "lake.name", "lake.format")
    own = {key if key in kept else key.removeprefix("lake."): value for key, value in settings.items()}
    both = {**live, "lake.history": "true"}
    for name, kind, options in ((f"{topic}{LAKE}", "rocketmq_lake", own), (f"{topic}{ALL}", "rocketmq", both)):
        Statements.of(spark).create_view(name, functools.partial(_create, spark, name, kind, options))


def _create(spark: SparkSession, name: str, kind: str, options: Mapping[str, str]) -> None:
    spark.read.format(kind).options(**options).load().createOrReplaceTempView(f"`{name}`")


def _pinned(spark: SparkSession, live: Mapping[str, str]) -> tuple[DataFrame, DataFrame]:
    table, snapshot = History(parse(SourceOptions, live)).of(live["subscribe"])
    at = {**live, "lake.version": str(snapshot.version)}
    past = files_frame(spark, table, table.files(snapshot))
    return past, past.unionByName(spark.read.format("rocketmq").options(**at, startingOffsets="lake").load())


def _tables(spark: SparkSession, topics: Iterable[str], storage: Storage, kind: str | None) -> dict[str, str]:
    """The names of the tables that topics have, whatever they are called."""
    wanted = list(topics)
    if is_connect(spark):
        return {topic: table_name(topic) for topic in wanted}
    found = {}
    for name in list_tables(storage, kind):
        try:
            topic = open_table(storage, name, kind).topic
        except LakeError as exc:
            logger.info("table %s has no view: %s", name, exc)  # bad rows, and tables of others
            continue
        # Of two tables the one that is called like the topic.
        if topic in wanted and (topic not in found or name == table_name(topic)):
            found[topic] = name
    return found
