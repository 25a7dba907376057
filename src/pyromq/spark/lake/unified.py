"""History and live as one DataFrame: what the lake has of a topic, and from there on what brokers have.

One version of the table is taken when the DataFrame is made. Its files are read by Spark itself, and its positions
are where the read from brokers begins, so each message is there once, whatever is archived in between.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from ..moments import moment as milliseconds
from ..options import SourceOptions, parse
from ..schema import spark_schema
from ..sessions.connect import is_connect
from ..sessions.session import namesrv_of
from .headroom import headroom as headroom_of
from .history import History, is_complete
from .storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from .headroom import Headroom
    from .reading import Between
    from .table import DataFile, LakeTable

# File systems that Spark reads without any jar of others.
_NATIVE = ("file", "hdfs")
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_GLOB = str.maketrans({each: f"\\{each}" for each in "\\{}[]*?"})
_STORAGE = ("endpoint", "region", "credentials", "accessKey", "secretKey", "sessionToken", "format")
_NOWHERE = "localhost:9876"  # stands for name servers that nobody asks


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
    """See `pyromq.spark.unified`."""
    between = (moment(since, "since"), moment(until, "until"))
    given = _given(spark, {"subscribe": topic, **lake_settings(lake, name, lake_options)}, options)
    if version is not None:
        given["lake.version"] = str(version)
    if is_connect(spark):
        # The lake and the brokers are the server's.
        return _whole(spark, {**given, "namesrv": namesrv_of(spark, namesrv)}, between)
    known = parse(SourceOptions, {"namesrv": _NOWHERE, **given})
    history = History(known)
    table, snapshot = history.of(topic)
    given["lake.version"] = str(snapshot.version)
    if not table.storage.is_local and table.storage.scheme not in _NATIVE:
        return _whole(spark, {**given, "namesrv": _name_servers(spark, namesrv, snapshot, between)}, between)
    past = files_frame(spark, table, table.files(snapshot, *between), known.columns)
    if between[1] is not None and is_complete(snapshot, between[1]):
        return _filtered(past, between)
    live = {**given, **_times(between), "namesrv": namesrv_of(spark, namesrv), "startingOffsets": "lake"}
    return _filtered(past.unionByName(spark.read.format("rocketmq").options(**live).load()), between)


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
    """See `pyromq.spark.unified_stream`."""
    given = _given(spark, {"subscribe": topic, **lake_settings(lake, name, lake_options)}, options)
    given |= {"namesrv": namesrv_of(spark, namesrv), "lake.history": "true"}
    return _filtered(spark.readStream.format("rocketmq").options(**given).load(), (moment(since, "since"), None))


def headroom(
    where: SparkSession | str,
    topic: str,
    *,
    lake: str,
    name: str | None = None,
    lake_options: Mapping[str, str] | None = None,
    **options: object,
) -> Headroom:
    """See `pyromq.spark.headroom`."""
    from ..sessions.views import texts

    namesrv = where if isinstance(where, str) else namesrv_of(where, None)
    given = {"namesrv": namesrv, "subscribe": topic, **lake_settings(lake, name, lake_options), **texts(options)}
    known = parse(SourceOptions, given)
    return headroom_of(known, topic, History(known).positions((topic,)))


def _given(spark: SparkSession, own: Mapping[str, str], options: Mapping[str, object]) -> dict[str, Any]:
    from ..sessions.views import parallelism, texts

    made = {**own, **parallelism(spark), **texts(options)}
    if any(key.lower().startswith(("starting", "ending")) for key in made):
        raise ConfigError("unified() takes since and until; starting and ending offsets are the lake's")
    return made


def lake_settings(root: str, name: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    """A lake as options of the format `rocketmq`."""
    given = {key: value for key, value in (options or {}).items() if key.lower() != "format"}
    storage = Storage.of(root, given)  # raises ConfigError here, in the words of whoever called
    made = {"lake.root": storage.root} | ({} if name is None else {"lake.name": name})
    known = {key.lower(): f"lake.{key}" for key in _STORAGE}
    for key, value in (options or {}).items():
        bare = key.removeprefix("lake.")
        prefix = "lake." if bare.lower().startswith("catalog.") else "lake.storage."
        made[known.get(bare.lower(), f"{prefix}{bare}")] = str(value)
    return made


def _whole(spark: SparkSession, given: Mapping[str, Any], between: Between) -> DataFrame:
    return spark.read.format("rocketmq").options(**{**given, **_times(between), "lake.history": "true"}).load()


def _times(between: Between) -> dict[str, str]:
    """Times as options: Spark does not hand filters down everywhere."""
    found = zip(("startingTimestamp", "endingTimestamp"), between, strict=True)
    return {key: str(math.ceil(each.timestamp() * 1000)) for key, each in found if each is not None}


def _name_servers(spark: SparkSession, namesrv: str | None, snapshot: Any, between: Between) -> str:
    """Name servers; they need not be known if nobody will ask them."""
    if between[1] is not None and is_complete(snapshot, between[1]):
        return namesrv or _NOWHERE
    return namesrv_of(spark, namesrv)


def files_frame(
    spark: SparkSession, table: LakeTable, files: Sequence[DataFile], columns: Sequence[str] = ()
) -> DataFrame:
    """Files of a table, read by Spark itself."""
    schema = spark_schema(columns)
    if not files:
        return spark.createDataFrame([], schema)
    root = f"{table.storage.root.rstrip('/')}/{table.name}"
    paths = [file.path if "://" in file.path or file.path.startswith("/") else f"{root}/{file.path}" for file in files]
    with _listed_here(spark, table.storage):
        return spark.read.schema(schema).parquet(*(path.translate(_GLOB) for path in paths))


@contextmanager
def _listed_here(spark: SparkSession, storage: Storage) -> Iterator[None]:
    """Have the driver look up files on a disk of its own: a job with a task for each takes seconds."""
    before = spark.conf.get(_LISTING)
    if storage.is_local:
        spark.conf.set(_LISTING, "100000")
    try:
        yield
    finally:
        spark.conf.set(_LISTING, before or "32")


def _filtered(frame: DataFrame, between: Between) -> DataFrame:
    from pyspark.sql import functions

    stored, conditions = functions.col("storeTimestamp"), []
    if between[0] is not None:
        conditions.append(stored >= functions.lit(between[0]))
    if between[1] is not None:
        conditions.append(stored < functions.lit(between[1]))
    condition: Column
    for condition in conditions:
        frame = frame.where(condition)
    return frame


def moment(value: datetime | date | str | int | None, what: str) -> datetime | None:
    """A time as people write it: ISO 8601, a date, or milliseconds; local time unless it says otherwise."""
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, date) else str(value)
    try:
        return datetime.fromtimestamp(milliseconds(text) / 1000, UTC)
    except ValueError as exc:
        raise ConfigError(f"{what} must be {exc}, not {text[:80]!r}") from None
