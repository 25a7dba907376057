"""The archive: topics become tables, each message once, and nothing but the tables remembers how far it got.

One step of a topic: read the positions from the table, ask the brokers how far they are, let tasks read what lies
between and write it to Parquet files, and commit files and positions together. What dies before the commit has only
left files that nobody refers to. Whoever commits second, because two archives run or because one was thought dead,
gets a conflict, reads the positions again and goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from .table import Gap


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """Where the archive of one topic is, after a step of it or when it was looked at."""

    topic: str
    rows: int  # archived by this run
    rows_per_second: float  # while it worked, not while it waited
    lag: int  # messages that the broker has and the table does not
    time_left: float | None = None  # seconds until the lag is gone at this rate
    version: int | None = None  # of the table
    gaps: tuple[Gap, ...] = ()  # found in this step
    error: str | None = None  # why this topic did not get on; it is tried again


@dataclass(slots=True)
class ArchiveSummary:
    """What a run did."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    bad_rows: int = 0  # that could not be decoded
    commits: int = 0
    conflicts: int = 0  # commits that somebody else made first
    seconds: float = 0.0
    lag: dict[str, int] = field(default_factory=dict)  # per topic
    gaps: list[Gap] = field(default_factory=list)  # found by this run
    errors: dict[str, str] = field(default_factory=dict)  # of topics that did not get on at last

    @property
    def is_complete(self) -> bool:
        """Whether every topic got to its end, and nothing was gone."""
        return not self.errors and not self.gaps


def archive(
    spark: SparkSession,
    topics: Sequence[str],
    *,
    root: str,
    namesrv: str | None = None,
    table_format: str = "delta",
    lake_options: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    once: bool = False,
    every: float = 300.0,
    max_lag: float = 900.0,
    stores: Mapping[str, str] | None = None,
    direct_log_over: int = 1 << 30,
    decode: Mapping[str, str] | None = None,
    progress: Callable[[ArchiveProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    **options: object,
) -> ArchiveSummary:
    """Archive topics into tables below `root`: what is there now if `once`, else until `stop` says so.

    `topics` are names or regular expressions for whole names; those that match later are archived from then on.
    `aliases` name tables differently from their topics. `lake_options` go to the storage (keys of S3, a catalog).

    `stores` are the folders of brokers' stores by the brokers' names, where executors can open them: a backlog of more
    than `direct_log_over` bytes is then read from the files. Without `namesrv`, only the files are read.

    `decode` has the options of decoding.py: `decode` (json, avro, protobuf, csv), `decode.schema`, `onError` and so
    on. `options` are those of the format `rocketmq`: credentials, TLS, `parallelism`.

    Returns what was done; a topic that could not be archived is in `errors`, and does not keep the others from it.
    """
    raise NotImplementedError
