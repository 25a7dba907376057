"""`pyromq lake`: tables of archived topics, looked at and taken care of.

Works on the storage. Only `headroom` asks brokers.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.listing import Listing
from pyromq.errors import ConfigError

from ..failures import CommandFailed, Exit, nearest
from ..output import Output, hidden
from ..parameters import pairs_of
from ..session import Session
from ..times import parse_time
from ..verbs import changing, new_app, reading, run_app
from .store_check import Progress, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from pyromq.spark.lake.storage import Storage
    from pyromq.spark.lake.table import LakeTable, Snapshot

app = new_app("Look at the tables of archived topics, and take care of them.")


def main(arguments: list[str]) -> int:
    return run_app(app, "lake", arguments)


Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table, or its topic.", show_default=False)]
Tables = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE]...", help="Tables, or their topics; all by default.")
]
SinceDay = Annotated[str | None, typer.Option("--since", metavar="DAY", help="Only days from this one on (UTC).")]
UntilDay = Annotated[str | None, typer.Option("--until", metavar="DAY", help="Only days before this one (UTC).")]


@dataclass(frozen=True, slots=True)
class Lake:
    """Where the lake is."""

    root: Annotated[
        str | None,
        typer.Option(
            "--lake", "-r", "--root", metavar="ROOT", envvar="PYROMQ_LAKE", help="A folder, or s3://bucket/folder."
        ),
    ] = None
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="delta or iceberg; iceberg if a catalog is given."),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--lake-option", metavar="KEY=VALUE", help="Setting of the storage: endpoint, credentials=env:PREFIX, …"
        ),
    ] = None

    def storage(self) -> Storage:
        from pyromq.spark.lake.storage import Storage

        if not self.root:
            raise ConfigError("which lake? name its folder with --lake or PYROMQ_LAKE")
        return Storage.of(self.root, pairs_of(list(self.option or [])) if self.option else {})

    def table(self, name: str) -> LakeTable:
        from pyromq.spark.lake.table import TableNotFound
        from pyromq.spark.lake.tables import find_table, list_tables

        storage = self.storage()
        try:
            return find_table(storage, name, self.format)
        except TableNotFound as exc:
            near = nearest(name, list_tables(storage, self.format))
            hint = f"did you mean {' or '.join(near)}?" if near else "`pyromq lake list` lists them"
            raise CommandFailed(f"{exc}; {hint}", Exit.NOT_FOUND) from exc

    def tables(self, names: list[str] | None) -> list[LakeTable]:
        from pyromq.spark.lake.tables import list_tables, open_table

        if names:
            return [self.table(name) for name in names]
        storage = self.storage()
        return [open_table(storage, name, self.format) for name in list_tables(storage, self.format)]


@dataclass(frozen=True, slots=True)
class AsOf:
    """Which version of a table."""

    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="As of this version of the table.")
    ] = None
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="As it was at this time.")] = None

    def snapshot(self, table: LakeTable) -> Snapshot:
        if self.version is not None and self.at is not None:
            raise ConfigError("give either --version or --at")
        return table.snapshot(self.version, parse_time(self.at, datetime.now(UTC)) if self.at else None)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stretch of time."""

    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only messages stored at this time or later.")
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only messages stored before this time.")
    ] = None

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        now = datetime.now(UTC)
        return (
            parse_time(self.since, now) if self.since else None,
            parse_time(self.until, now) if self.until else None,
        )


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """A missing table has an exit code of its own, and so has a missing package."""
    try:
        from pyromq.spark.lake.table import TableNotFound

        try:
            yield
        except TableNotFound as exc:
            raise CommandFailed(str(exc), Exit.NOT_FOUND) from exc
    except ImportError as exc:
        raise CommandFailed(f"tables need `pip install pyromq[lake]`: {exc}", Exit.USAGE) from exc


@dataclass(frozen=True, slots=True)
class TableInLake:
    table: str
    topic: str
    cluster: str
    format: str
    version: int
    updated: datetime
    queues: int
    messages: int
    files: int
    size: str
    bytes: int = hidden()


@dataclass(frozen=True, slots=True)
class PositionInTable:
    broker: str
    queue: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class DayInTable:
    day: str
    messages: int
    files: int
    too_many: bool
    size: str
    bytes: int = hidden()


@dataclass(frozen=True, slots=True)
class VersionOfTable:
    version: int
    time: datetime
    operation: str
    messages: int
    files_added: int
    files_removed: int


@dataclass(frozen=True, slots=True)
class GapInTable:
    table: str
    topic: str
    broker: str
    queue: int
    first: int
    last: int
    messages: int
    noticed: datetime


@dataclass(frozen=True, slots=True)
class HeadroomOfTable:
    table: str
    topic: str
    alarm: str
    unarchived: int
    lost: int
    lake_headroom_seconds: int
    oldest: datetime | None
    where: str
    note: str


@dataclass(frozen=True, slots=True)
class CompactedTable:
    table: str
    days: int
    files_before: int
    files_after: int
    messages: int
    size_before: str
    size_after: str
    left_to_others: int
    seconds: float
    bytes_before: int = hidden()
    bytes_after: int = hidden()


@dataclass(frozen=True, slots=True)
class RemovedFile:
    table: str
    file: str


@reading(app, "list", connects=False)
async def list_(session: Session, lake: Lake) -> Listing[TableInLake]:
    """List the tables of a lake.

    Example: pyromq lake list --lake /data/lake
    """
    with _failures():
        rows = []
        for table in lake.tables(None):
            snapshot = table.snapshot()
            files = table.files(snapshot)
            size = sum(file.size for file in files)
            rows.append(
                TableInLake(
                    table.name,
                    table.topic,
                    table.cluster,
                    table.format,
                    snapshot.version,
                    snapshot.time,
                    len(snapshot.positions),
                    sum(file.rows for file in files),
                    len(files),
                    size_text(size),
                    size,
                )
            )
        return Listing.make(TableInLake, rows)


@reading(app, "show", connects=False)
async def show(
    session: Session,
    table: Table,
    lake: Lake,
    as_of: AsOf,
    days: Annotated[bool, typer.Option("-d", "--days", help="List days and their files instead of queues.")] = False,
) -> Listing[Any] | dict[str, Any] | None:
    """Show a table: where it is, up to which offset each queue is archived, files and sizes.

    -o json or yaml prints it all as one document, -o csv only the queues or days.

    Example: pyromq lake show orders --lake /data/lake --at -2d
    """
    with _failures():
        from pyromq.spark.lake.care import days as days_of

        found = lake.table(table)
        snapshot = as_of.snapshot(found)
        files = found.files(snapshot)
        missing = found.gaps()
    facts = {
        "table": found.name,
        "topic": found.topic,
        "cluster": found.cluster,
        "format": found.format,
        "location": found.location,
        "version": snapshot.version,
        "updated": snapshot.time,
        "completeUpTo": snapshot.complete,
        "messages": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "gaps": len(missing),
        "columns": ", ".join(snapshot.schema.names),
    }
    today = datetime.now(UTC).date().isoformat()
    rows: Listing[Any]
    if days:
        listed = [
            DayInTable(
                day.partition.replace("dt=", "").replace("/hour=", " "),
                day.rows,
                day.files,
                day.files > day.allowed and day.partition < f"dt={today}",
                size_text(day.bytes),
                day.bytes,
            )
            for day in days_of(files)
        ]
        rows = Listing.make(DayInTable, listed)
    else:
        rows = Listing.make(
            PositionInTable,
            [
                PositionInTable(queue.broker_name, queue.queue_id, offset)
                for queue, offset in sorted(snapshot.positions.items())
            ],
        )
    match session.asked.output:
        case Output.table:
            shown = facts | {"bytes": size_text(int(str(facts["bytes"])))}
            session.printer.record(shown)
            session.text("")
            return rows
        case Output.csv | Output.name:
            return rows
        case _:
            return {**facts, "days" if days else "queues": rows.rows}


@reading(app, "history", connects=False)
async def history(
    session: Session,
    table: Table,
    lake: Lake,
    limit: Annotated[int, typer.Option("-l", "--limit", metavar="N", min=1, help="The newest N versions.")] = 20,
) -> Listing[VersionOfTable]:
    """Show the versions of a table, the newest first. Use their numbers and times with --version and --at.

    Example: pyromq lake history orders --lake /data/lake
    """
    with _failures():
        return Listing.make(
            VersionOfTable,
            [
                VersionOfTable(each.version, each.time, each.operation, each.rows, each.files, each.removed)
                for each in lake.table(table).versions(limit)
            ],
        )


@reading(app, "headroom")
async def headroom(session: Session, lake: Lake, table: Tables = None) -> Listing[HeadroomOfTable]:
    """Show how long brokers will keep what is not archived yet. Exits with 1 below 6 hours, or if messages are lost.

    Example: pyromq lake headroom --lake /data/lake --namesrv localhost:9876
    """
    with _failures():
        from pyromq.client.admin.headroom import Alarm
        from pyromq.spark.blocking_client import Reach
        from pyromq.spark.lake.headroom import find_headroom
        from pyromq.spark.options import SourceOptions
        from pyromq.spark.source.broker_metadata import BrokerMetadata

        rows = []
        for each in lake.tables(table):
            options = SourceOptions(namesrv=session.target.namesrv or "", subscribe=(each.topic,))
            metadata = BrokerMetadata(Reach(session.admin.client), options, admin=session.admin)
            found = await find_headroom(metadata, each.topic, each.snapshot().positions, time.time())
            left = int(found.lake_headroom_seconds)
            rows.append(
                HeadroomOfTable(
                    table=each.name,
                    topic=each.topic,
                    alarm=found.alarm.value,
                    unarchived=found.unarchived,
                    lost=found.lost,
                    lake_headroom_seconds=left,
                    oldest=found.oldest,
                    where=found.queue,
                    note=found.note,
                )
            )
            if found.alarm is Alarm.ERROR:
                session.exit_code = Exit.REFUSED
            if found.alarm is not Alarm.NONE:
                session.note(str(found))
    return Listing.make(HeadroomOfTable, rows)


@reading(app, "gaps", connects=False)
async def gaps(session: Session, lake: Lake, table: Tables = None) -> Listing[GapInTable]:
    """List messages that brokers deleted before they were archived. Exits with 1 if there are any.

    Example: pyromq lake gaps --lake /data/lake
    """
    with _failures():
        rows = [
            GapInTable(
                each.name,
                gap.queue.topic,
                gap.queue.broker_name,
                gap.queue.queue_id,
                gap.start,
                gap.end - 1,
                gap.end - gap.start,
                gap.noticed,
            )
            for each in lake.tables(table)
            for gap in each.gaps()
        ]
    if rows:
        session.exit_code = Exit.REFUSED
    return Listing.make(GapInTable, rows)


@changing(app, "compact", connects=False)
async def compact(
    session: Session,
    lake: Lake,
    table: Tables = None,
    since: SinceDay = None,
    until: UntilDay = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Let a Spark cluster do it, for days of many GB.")
    ] = None,
) -> Listing[CompactedTable]:
    """Merge the small files of closed days, to at most two per GB and one more. Archives and readers may go on.

    Rows, their order and the positions of queues stay the same. Files that are no longer needed stay until vacuum.

    Example: pyromq lake compact --lake /data/lake orders
    """
    first, last = _day("--since", since), _day("--until", until)
    rows = []
    with _failures(), contextlib.ExitStack() as stack:
        from pyromq.spark.lake.care import Care, merge_here, merge_with

        run = merge_here
        if master is not None and not session.asked.dry_run:
            import pyromq.spark as mq

            spark = mq.session(master=master)
            stack.callback(spark.stop)
            run = merge_with(spark)  # type: ignore[assignment]
        for each in lake.tables(table):
            care = Care(each, run)
            if session.asked.dry_run:
                groups = care.plan(datetime.now(UTC).date(), first, last)
                files = sum(map(len, groups))
                if files:
                    session.agreed(f"merge {files} files of {each.name} into {len(groups)}")
                continue
            progress = Progress(sys.stderr)
            try:
                done = care.compact(
                    since=first,
                    until=last,
                    progress=lambda step, progress=progress: progress(step.done, step.total),  # type: ignore[misc]
                )
            finally:
                progress.clear()
            rows.append(
                CompactedTable(
                    each.name,
                    done.partitions,
                    done.files_before,
                    done.files_after,
                    done.rows,
                    size_text(done.bytes_before),
                    size_text(done.bytes_after),
                    done.given_up,
                    round(done.seconds, 1),
                    done.bytes_before,
                    done.bytes_after,
                )
            )
    return Listing.make(CompactedTable, rows)


@changing(app, "vacuum", connects=False)
async def vacuum(
    session: Session,
    lake: Lake,
    table: Tables = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Keep what was in use within this time.")
    ] = "7d",
    force: Annotated[bool, typer.Option("--force", help="Allow less than 7 days.")] = False,
) -> Listing[RemovedFile]:
    """Delete files that no version of the last days needs, and those of tasks that died. Lists them.

    Versions older than that can no longer be read. With less than 7 days, readers and a running archive may lose files.

    Example: pyromq lake vacuum --lake /data/lake --dry-run
    """
    rows: list[RemovedFile] = []
    with _failures():
        from pyromq.spark.lake.care import vacuum as vacuum_table
        from pyromq.spark.option_values import duration

        try:
            kept = timedelta(seconds=duration(older_than))
        except ValueError as exc:
            raise ConfigError(f"--older-than must be {exc}, not {older_than!r}") from exc
        for each in lake.tables(table):
            files = vacuum_table(each, kept, force=force, dry_run=True)
            if files and session.agreed(f"delete {len(files)} files of {each.name}", dangerous=force):
                files = vacuum_table(each, kept, force=force)
            rows += [RemovedFile(each.name, file) for file in files]
    return Listing.make(RemovedFile, rows)


@changing(app, "export", connects=False)
async def export(
    session: Session,
    table: Table,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An empty folder, or s3://bucket/folder.")],
    lake: Lake,
    stored: Stored,
    as_of: AsOf,
) -> dict[str, Any] | None:
    """Write a table as plain Parquet files, in a folder per day.

    Example: pyromq lake export orders /data/orders-january --lake /data/lake --since 2026-01-01 --until 2026-02-01
    """
    with _failures():
        from pyromq.spark.lake.export import export as export_table
        from pyromq.spark.lake.storage import Storage

        found = lake.table(table)
        target = Storage.of(folder, pairs_of(list(lake.option)) if lake.option and "://" in folder else {})
        snapshot = as_of.snapshot(found)
        if not session.agreed(f"write {found.name} to {target.uri()}"):
            return None
        progress = Progress(sys.stderr)
        try:
            since, until = stored.bounds()
            files, rows = export_table(found, snapshot, target, since=since, until=until, progress=progress)
        finally:
            progress.clear()
    return {"table": found.name, "version": snapshot.version, "folder": target.uri(), "files": files, "messages": rows}


def _day(option: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError as exc:
        raise ConfigError(f"{option} must be a day such as 2026-01-31, not {text!r}") from exc
