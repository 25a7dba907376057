"""The archive: topics become tables, each message once, and nothing but the tables remembers how far it got.

One step of a topic: read the positions from the table, ask the brokers how far they are, let tasks read what lies
between and write it to Parquet files, and commit files and positions together. What dies before the commit has only
left files that nobody refers to. Whoever commits second, because two archives run or because one was thought dead,
gets a conflict, reads the positions again and goes on from there.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyromq.client.admin.headroom import Alarm
from pyromq.errors import ConfigError, NoPermission, PyroMQError, RouteNotFound

from .. import options as known
from ..sessions.session import namesrv_of
from .archive_plan import Rhythm, Step, TopicRecreated, check_same, missing, next_step
from .archive_sight import PARTITION, Brokers, Seen, Stores, explained
from .archive_tasks import Job, run, total
from .decoding import BAD_ROWS, DecodeOptions, added, bad_row_table, decoding
from .headroom import report_archived
from .layout import table_name
from .options import CLUSTER
from .storage import Storage
from .table import LakeCommit, LakeConflict, Move, TableNotFound
from .tables import open_or_create, open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SourceOptions
    from .archive_sight import FilesSeen
    from .archive_tasks import Part, Report
    from .decoding import Decoding
    from .headroom import Headroom
    from .table import Gap, LakeTable, Snapshot

logger = logging.getLogger(__name__)

STEP = 4 << 30  # bytes that one step takes at most: what is lost if it dies
_LONGEST_PAUSE = 60.0  # between tries of a topic that does not get on
_REPORT_AGAIN = 60.0  # seconds after which brokers are told how far the archive is, though it is where it was
_LOOK = 0.1  # seconds between looks at whether to stop
_TRIES = 5  # of a topic in a run that is to end
_FINAL = (ConfigError, TopicRecreated, RouteNotFound, NoPermission)  # trying again would only say so again


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
    headroom: Headroom | None = None  # how long the oldest message has left that is not archived


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
    table_format: str | None = None,
    hourly: bool = False,
    cluster: str | None = None,
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
    if not topics:
        raise ConfigError("no topics to archive")
    given = _options(spark, namesrv, options, has_stores=bool(stores))
    how = decoding(known.parse(DecodeOptions, decode or {}))
    begin = time.monotonic()
    lake = _Lake(Storage.of(root, lake_options), table_format, hourly, dict(aliases or {}), how)
    sources = _Sources(given, dict(stores or {}), direct_log_over, cluster)
    archiver = _Archiver(spark, lake, sources, progress or (lambda _: None))
    rhythm = Rhythm(every, max(every, max_lag), given.partition_bytes, STEP)
    try:
        if once:
            archiver.once(topics, stop)
        else:
            archiver.go_on(topics, rhythm, stop)
    finally:
        sources.close()
        archiver.summary.seconds = time.monotonic() - begin
    return archiver.summary


def _options(
    spark: SparkSession, namesrv: str | None, options: Mapping[str, object], *, has_stores: bool
) -> SourceOptions:
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
    texts.setdefault("parallelism", str(_parallelism(spark)))
    texts.setdefault("partitionBytes", str(PARTITION))
    if has_stores and not namesrv:
        # Files only. Options that name servers would need are not asked for.
        texts = {key: value for key, value in texts.items() if key.lower() != "namesrv"}
        parsed = known.parse(known.SourceOptions, {**texts, "namesrv": "none:0", "subscribe": "none"})
        return replace(parsed, namesrv="")
    given = known.parse(known.SourceOptions, {**texts, "namesrv": namesrv_of(spark, namesrv), "subscribe": "none"})
    if given.tags != "*" or given.sql is not None:
        raise ConfigError("an archive takes every message; filter what you read from the table")
    return replace(given, subscribe=())


def _parallelism(spark: SparkSession) -> int:
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect knows no context
        return 8


class _Lake:
    """The tables below a root, one per topic, and one for the bad rows of each."""

    def __init__(
        self, storage: Storage, kind: str | None, hourly: bool, aliases: Mapping[str, str], how: Decoding | None
    ) -> None:
        self.storage = storage
        self.decoding = how
        self._kind = kind
        self._hourly = hourly
        self._aliases = aliases

    def name(self, topic: str) -> str:
        return table_name(topic, self._aliases.get(topic))

    def open(self, name: str) -> LakeTable:
        """Raises TableNotFound."""
        return open_table(self.storage, name, self._kind)

    def create(self, name: str, topic: str, cluster: str) -> LakeTable:
        """The table of a topic, which may exist. Raises ConfigError if it has others' messages."""
        return open_or_create(self.storage, name, topic, cluster, kind=self._kind, hourly=self._hourly)


class _Sources:
    """Where messages come from: brokers, the files of their stores, or both."""

    def __init__(
        self, options: SourceOptions, folders: Mapping[str, str], files_over: int, cluster: str | None
    ) -> None:
        self.options = options
        self._cluster = cluster
        self._brokers = Brokers(options) if options.namesrv else None
        # Files name topics with their namespace, tables without.
        self._stores = Stores(folders, options) if folders and not options.namespace else None
        self._files_over = files_over

    def close(self) -> None:
        if self._brokers is not None:
            self._brokers.close()

    def topics(self, wanted: Sequence[str]) -> list[str]:
        if self._brokers is not None:
            return self._brokers.topics(wanted)
        assert self._stores is not None
        return self._stores.topics(wanted)

    def cluster(self, topic: str) -> str:
        """The cluster of a topic that was seen."""
        if self._cluster is None and self._brokers is not None:
            return self._brokers.cluster(topic)
        return self._cluster or CLUSTER

    def report(self, root: str, positions: Mapping[MessageQueue, int]) -> None:
        """Tell brokers how far the archive is."""
        if self._brokers is not None:
            report_archived(self._brokers.link, root, positions)

    def headroom(self, topic: str, positions: Mapping[MessageQueue, int]) -> Headroom | None:
        """How long brokers will keep what is not archived; None if they cannot be asked."""
        return None if self._brokers is None else self._brokers.headroom(topic, positions)

    def look(self, topic: str, positions: Mapping[MessageQueue, int]) -> Sight:
        """What there is. Raises PyroMQError if nothing can be seen."""
        if self._brokers is None:
            assert self._stores is not None
            files = self._stores.look(topic)
            if not files.seen.bounds:
                raise ConfigError(f"{topic}: {'; '.join(files.seen.failures) or 'no store has this topic'}")
            return Sight(files.seen, files)
        return Sight(self._brokers.look(topic, positions))

    def check_same(self, topic: str, snapshot: Snapshot, seen: Seen) -> None:
        """Raise TopicRecreated if the topic is not the one that the table has."""
        if self._brokers is not None:
            stored = self._brokers.first_stored(topic, snapshot.positions, seen)
            check_same(snapshot.positions, stored, snapshot.time)

    def step(self, topic: str, positions: Mapping[MessageQueue, int], sight: Sight, now: datetime) -> Planned:
        """The next step and its tasks: from files where there is much to read and they have it, else by pulls."""
        seen = sight.seen
        step = next_step(positions, seen.bounds, now, limit=STEP, size=seen.size)
        if sight.files is not None:
            return Planned(step, sight.files.parts(step.ranges), is_from_files=True)
        assert self._brokers is not None
        behind = sum(
            (maximum - max(minimum, positions.get(queue, minimum))) * seen.size(queue)
            for queue, (minimum, maximum) in seen.bounds.items()
        )
        if self._stores is not None and behind > self._files_over:
            planned = self._from_files(topic, positions, seen, now)
            if planned is not None:
                return planned
        return Planned(step, self._brokers.parts(step.ranges, seen))

    def pulls(self, step: Step, seen: Seen) -> Planned | None:
        """The same step by pulls; None if there are only files."""
        return None if self._brokers is None else Planned(step, self._brokers.parts(step.ranges, seen))

    def _from_files(
        self, topic: str, positions: Mapping[MessageQueue, int], seen: Seen, now: datetime
    ) -> Planned | None:
        assert self._stores is not None
        files = self._stores.look(topic)
        # No further than the broker says: what it has not confirmed may yet be taken back.
        bounds = {
            queue: (low, min(end, seen.bounds[queue][1]))
            for queue, (low, end) in files.seen.bounds.items()
            if queue in seen.bounds and end > max(positions.get(queue, 0), seen.bounds[queue][0]) >= low
        }
        if not bounds:
            return None
        bounds = {queue: (seen.bounds[queue][0], end) for queue, (_, end) in bounds.items()}
        step = next_step(positions, bounds, now, limit=STEP, size=files.seen.size)
        logger.info("%s: reading %d messages from files", topic, step.rows)
        lag = sum(
            maximum - max(minimum, positions.get(queue, minimum)) for queue, (minimum, maximum) in seen.bounds.items()
        )
        return Planned(replace(step, lag=lag), files.parts(step.ranges), is_from_files=True)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a topic has, and the files it was seen in, if no broker was asked."""

    seen: Seen
    files: FilesSeen | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A step and its tasks."""

    step: Step
    parts: Sequence[Part]
    is_from_files: bool = False


class _Topic:
    """One topic on its way."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.rows = 0
        self.worked = 0.0
        self.lag = 0
        self.version: int | None = None
        self.is_checked = False  # whether it is the topic that its table has
        self.asked = datetime.now(UTC)  # when its ends were asked for, in a run that goes no further
        self.archived_at = float("-inf")  # when it was last up to date, or moved
        self.try_at = float("-inf")  # not before, after a failure
        self.failures = 0
        self.error: str | None = None
        self.reported: Mapping[MessageQueue, int] = {}  # to brokers
        self.reported_at = float("-inf")
        self.headroom: Headroom | None = None
        self.headroom_at = float("-inf")

    def failed(self, said: str) -> None:
        self.failures += 1
        self.error = said
        self.try_at = time.monotonic() + min(_LONGEST_PAUSE, 0.5 * 2 ** min(self.failures, 10))

    def progress(self, gaps: Sequence[Gap] = ()) -> ArchiveProgress:
        rate = self.rows / self.worked if self.worked else 0.0
        left = self.lag / rate if rate else None if self.lag else 0.0
        return ArchiveProgress(
            self.topic, self.rows, rate, self.lag, left, self.version, tuple(gaps), self.error, self.headroom
        )


class _Archiver:
    def __init__(
        self, spark: SparkSession, lake: _Lake, sources: _Sources, progress: Callable[[ArchiveProgress], None]
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._sources = sources
        self._progress = progress
        self._topics: dict[str, _Topic] = {}
        self.summary = ArchiveSummary()

    def once(self, wanted: Sequence[str], stop: Callable[[], bool]) -> None:
        """Archive what is there now. Raises PyroMQError if the topics cannot be found out."""
        for each in self._found(wanted):
            until: dict[MessageQueue, int] = {}
            while not stop() and not self._tried(each, until) and each.failures < _TRIES:
                while time.monotonic() < each.try_at and not stop():
                    time.sleep(_LOOK)

    def go_on(self, wanted: Sequence[str], rhythm: Rhythm, stop: Callable[[], bool]) -> None:
        """Archive until `stop`; nothing but a wrong configuration ends it."""
        pause = min(5.0, max(_LOOK, rhythm.every / 10))
        while not stop():
            try:
                found = self._found(wanted)
            except ConfigError:
                raise
            except PyroMQError as exc:
                logger.warning("cannot look up topics: %s; trying again", exc)
                found = list(self._topics.values())
            for each in found:
                if not stop() and time.monotonic() >= each.try_at:
                    self._tried(each, None, rhythm)
            again = time.monotonic() + pause
            while time.monotonic() < again and not stop():
                time.sleep(_LOOK)

    def _found(self, wanted: Sequence[str]) -> list[_Topic]:
        names: dict[str, str] = {}
        for topic in self._sources.topics(wanted):
            name = self._lake.name(topic)
            other = names.setdefault(name.lower(), topic)
            if other != topic:
                raise ConfigError(f"topics {other} and {topic} would both be table {name}; give one an alias")
            self._topics.setdefault(topic, _Topic(topic))
        return [self._topics[topic] for topic in names.values()]

    def _tried(self, each: _Topic, until: dict[MessageQueue, int] | None, rhythm: Rhythm | None = None) -> bool:
        """One step. Whether the topic is at its end: that of the first look, which `until` keeps, if given."""
        from pyspark.errors import PySparkException

        try:
            is_done = self._step(each, until, rhythm)
        except LakeConflict as exc:
            # Somebody else did this part. What they did not do is the next step.
            logger.info("%s: %s; going on from there", each.topic, exc)
            self.summary.conflicts += 1
            return False
        except (PyroMQError, PySparkException, OSError) as exc:
            if rhythm is None and (isinstance(exc, _FINAL) or "InvalidMessage" in str(exc)):
                each.failures = _TRIES
            each.failed(explained(exc))
            logger.warning("%s: %s", each.topic, each.error)
            self.summary.errors[each.topic] = each.error or ""
            self._progress(each.progress())
            return False
        each.failures = 0
        return is_done

    def _step(self, each: _Topic, until: dict[MessageQueue, int] | None, rhythm: Rhythm | None) -> bool:
        began = time.monotonic()
        name = self._lake.name(each.topic)
        try:
            snapshot: Snapshot | None = self._lake.open(name).snapshot()
        except TableNotFound:
            snapshot = None
        positions = {} if snapshot is None else dict(snapshot.positions)
        asked = datetime.now(UTC)
        sight = self._sources.look(each.topic, positions)
        each.error = "; ".join(sight.seen.failures) or None
        self._note_error(each)
        if snapshot is not None and not each.is_checked:
            self._sources.check_same(each.topic, snapshot, sight.seen)
        each.is_checked = True
        if until is not None:
            if not until:
                until.update({queue: end for queue, (_, end) in sight.seen.bounds.items()})
                each.asked = asked
            asked = each.asked
            sight = replace(sight, seen=_limited(sight.seen, until, positions))
        self._report(each, positions)
        planned = self._sources.step(each.topic, positions, sight, datetime.now(UTC))
        step = planned.step
        each.lag = step.lag
        each.version = None if snapshot is None else snapshot.version
        self.summary.lag[each.topic] = each.lag
        self._look_ahead(each, positions)
        if rhythm is not None and not self._is_due(each, step, sight.seen, rhythm):
            return False
        if not step.moves:
            each.archived_at = time.monotonic()
            return True
        # Checks whose table it is, even if there is one.
        table = self._lake.create(name, each.topic, self._sources.cluster(each.topic))
        snapshot = snapshot or table.snapshot()
        how = self._decoding(each.topic, snapshot)
        report, gaps = self._read(table, planned, sight.seen, how)
        if report.bad_files:
            self._commit_bad_rows(table, step.moves, report)
        new = None if how is None else added(snapshot.schema, list(how.columns))
        is_all = step.rows == step.lag and not sight.seen.failures and positions.keys() <= sight.seen.bounds.keys()
        complete = asked if is_all else None
        committed = table.commit(LakeCommit(report.files, step.moves, gaps, columns=new, complete=complete))
        self._report(each, committed.positions)
        took = time.monotonic() - began
        each.worked += took
        each.rows += report.rows
        each.lag -= step.rows
        each.version = committed.version
        each.archived_at = time.monotonic()
        self._count(each, report, gaps)
        self._progress(each.progress(gaps))
        return each.lag <= 0

    def _report(self, each: _Topic, positions: Mapping[MessageQueue, int]) -> None:
        """Let brokers know what they need not keep; now and then again, for one that lost what it heard."""
        now = time.monotonic()
        if positions and (positions != each.reported or now >= each.reported_at + _REPORT_AGAIN):
            self._sources.report(self._lake.storage.root, positions)
            each.reported, each.reported_at = positions, now

    def _look_ahead(self, each: _Topic, positions: Mapping[MessageQueue, int]) -> None:
        """Raise the alarm if brokers may soon delete what is not archived."""
        now = time.monotonic()
        if not each.lag or now < each.headroom_at + _REPORT_AGAIN:
            return
        each.headroom_at = now
        each.headroom = self._sources.headroom(each.topic, positions)
        if each.headroom is not None and each.headroom.alarm is not Alarm.NONE:
            level = logging.ERROR if each.headroom.alarm is Alarm.ERROR else logging.WARNING
            logger.log(level, "%s", each.headroom)

    def _is_due(self, each: _Topic, step: Step, seen: Seen, rhythm: Rhythm) -> bool:
        if not step.moves:
            # Nothing waits, so nothing has waited long.
            each.archived_at = max(each.archived_at, time.monotonic())
            return False
        waited = time.monotonic() - each.archived_at
        backlog = sum(len(one) * seen.size(one.queue) for one in step.ranges)
        # A new queue, or a gap at the end of one, is noted with the next messages, or after a while.
        return rhythm.is_due(waited, backlog) or waited >= rhythm.max_lag

    def _decoding(self, topic: str, snapshot: Snapshot) -> Decoding | None:
        if self._lake.decoding is None:
            return None
        how = self._lake.decoding.within(snapshot.schema)
        for change in how.changes():
            logger.warning("%s: %s; values that do not fit are bad rows", topic, change)
        return how

    def _read(self, table: LakeTable, planned: Planned, seen: Seen, how: Decoding | None) -> tuple[Report, list[Gap]]:
        """Have tasks read and write a step. What they wrote, and what was gone."""
        job = Job(
            table.storage,
            table.name,
            self._sources.options,
            tuple(planned.parts),
            hourly=table.hourly,
            whole=table.whole,
            decoding=how,
            bad_from=self._bad_positions(table.name),
        )
        report = total(run(self._spark, job))
        gaps = missing(planned.step.ranges, report.runs, datetime.now(UTC))
        if gaps and planned.is_from_files:
            again = self._sources.pulls(planned.step, seen)
            if again is not None:
                logger.warning("%s: its files lack messages; asking its brokers", table.topic)
                return self._read(table, again, seen, how)
        if gaps and not planned.is_from_files:
            self._check_gone(table.topic, gaps)
        return report, [*planned.step.gaps, *gaps]

    def _check_gone(self, topic: str, gaps: Sequence[Gap]) -> None:
        """Messages are gone for good only if their queue goes on after them."""
        bounds = self._sources.look(topic, {}).seen.bounds
        for gap in gaps:
            if gap.queue not in bounds or gap.end > bounds[gap.queue][1]:
                raise PyroMQError(f"{topic} changed while it was read; reading it again")

    def _bad_positions(self, name: str) -> dict[MessageQueue, int]:
        how = self._lake.decoding
        if how is None or how.on_error != "dlq":
            return {}
        try:
            return dict(self._lake.open(bad_row_table(name)).snapshot().positions)
        except TableNotFound:
            return {}

    def _commit_bad_rows(self, good: LakeTable, moves: Sequence[Move], report: Report) -> None:
        """First the bad rows, then the others: if this dies in between, the next try knows which are there already."""
        table = self._lake.create(bad_row_table(good.name), good.topic, good.cluster)
        snapshot = table.snapshot()
        positions = snapshot.positions
        bad = [
            Move(move.queue, positions.get(move.queue, move.start), move.end)
            for move in moves
            if positions.get(move.queue, move.start) < move.end
        ]
        table.commit(LakeCommit(report.bad_files, bad, columns=added(snapshot.schema, list(BAD_ROWS))))

    def _count(self, each: _Topic, report: Report, gaps: Sequence[Gap]) -> None:
        summary = self.summary
        summary.rows += report.rows
        summary.bad_rows += report.bad_rows
        summary.files += len(report.files)
        summary.bytes += sum(file.size for file in report.files)
        summary.commits += 1
        summary.gaps += gaps
        summary.lag[each.topic] = each.lag
        for gap in gaps:
            logger.warning("%s: offsets %d to %d are lost", each.topic, gap.start, gap.end - 1)

    def _note_error(self, each: _Topic) -> None:
        if each.error is None:
            self.summary.errors.pop(each.topic, None)
        else:
            self.summary.errors[each.topic] = each.error


def _limited(seen: Seen, until: Mapping[MessageQueue, int], positions: Mapping[MessageQueue, int]) -> Seen:
    """`seen`, no further than `until`: a run that archives what is there must end, however fast producers are.

    Nor before where the table is: somebody else may have got further.
    """
    bounds = {
        queue: (low, min(high, max(low, until[queue], positions.get(queue, 0))))
        for queue, (low, high) in seen.bounds.items()
        if queue in until
    }
    return replace(seen, bounds=bounds)
