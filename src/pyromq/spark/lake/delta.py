"""Tables as Delta tables, through delta-rs: no catalog, no service, and every tool reads them.

The positions of queues are the versions of applications in the table's log (`txn`), named as in layout.py, and so are
gaps: checkpoints keep them, clean-up of the log and compaction do not touch them. A commit that moves a queue has its
`txn`, and delta-rs refuses it if a commit that came in between has one of the same name. That closes the moment
between our look at the positions and our commit. Files that are replaced have no such name: there, the commit must
be the very next version after the one that was looked at.

A table of ours has its topic and its cluster among its properties. Two topics whose names look alike without special
characters, or one topic of two clusters, therefore never end up in one table.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from pyromq.errors import ConfigError

from . import layout
from .delta_log import DeltaLog
from .moves import check_moves
from .parquet_parts import failed
from .table import DataFile, Gap, LakeConflict, LakeError, Snapshot, TableNotFound, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable

    from pyromq.protocol.message_queue import MessageQueue

    from .delta_log import Commit, Txn
    from .storage import Storage
    from .table import LakeCommit

TOPIC, CLUSTER = "pyromq.topic", "pyromq.cluster"
_OPERATION, _COMMIT = "pyromqOperation", "pyromqCommit"
_RETENTION = "delta.setTransactionRetentionDuration"
# What tables made by others, or changed by them, may need from whoever reads or writes their files.
_UNREADABLE = {"deletionVectors", "columnMapping"}


class DeltaLakeTable:
    """One topic's Delta table. Made by `open_table` and `create_table` below."""

    format = "delta"
    whole = False

    def __init__(self, storage: Storage, name: str, table: DeltaTable) -> None:
        settings = table.metadata().configuration
        if TOPIC not in settings:
            raise LakeError(f"{storage.uri(name)} is a Delta table, but not an archive of a topic")
        self.name = name
        self.storage = storage
        self.topic = settings[TOPIC]
        self.cluster = settings.get(CLUSTER, "")
        self.hourly = layout.HOUR in table.metadata().partition_columns
        self._log = DeltaLog(storage, name)

    @property
    def location(self) -> str:
        return self.storage.uri(self.name)

    def snapshot(self, version: int | None = None, at: datetime | None = None) -> Snapshot:
        with self._errors():
            table = self._open(version, at)
            return self._snapshot(table)

    def files(self, snapshot: Snapshot, since: datetime | None = None, until: datetime | None = None) -> list[DataFile]:
        with self._errors():
            table = self._open(snapshot.version)
            found = _files(table, since, until)
            newest = self._open()
            if newest.version() != table.version():
                self._check_present(snapshot, {file.path for file in found} - set(_paths(newest)))
            return found

    def commit(self, commit: LakeCommit) -> Snapshot:
        from deltalake.transaction import Transaction

        with self._errors():
            table = self._open()
            known = self._log.transactions(table.version())
            query = None if commit.batch is None else layout.batch_id(commit.batch[0])
            if query in known and commit.batch is not None and known[query].version >= commit.batch[1]:
                return self._snapshot(table)
            check_moves(commit, self._positions(known), self.location)
            if commit.columns is not None and self._add_columns(table, commit.columns):
                table = self._open()
                check_moves(commit, self._positions(self._log.transactions(table.version())), self.location)
            now = _now()
            entries = [
                *((layout.position_id(self.cluster, move.queue), move.end, now) for move in commit.moves),
                *((self._gap_id(gap), gap.end, _millis(gap.noticed)) for gap in commit.gaps),
            ]
            if query is not None and commit.batch is not None:
                entries.append((query, commit.batch[1], now))
            if commit.complete is not None:
                entries.append((layout.complete_id(self.cluster, self.topic), _millis(commit.complete), now))
            transactions = [Transaction(name, version, last_updated=updated) for name, version, updated in entries]
            return self._write(table, "archive", commit.files, transactions=transactions)

    def gaps(self) -> list[Gap]:
        with self._errors():
            found = []
            for name, txn in self._log.transactions(self._open().version()).items():
                if parsed := layout.parse_gap(name):
                    (_, queue), start = parsed
                    found.append(Gap(queue, start, txn.version, _moment(txn.updated or 0)))
            return sorted(found, key=lambda gap: (gap.queue, gap.start))

    def versions(self, limit: int | None = None) -> list[Version]:
        with self._errors():
            last = self._open().version()
            first = max(self._log.oldest(), 0 if limit is None else last - limit + 1)
            commits = [(version, commit) for version, commit in self._log.commits(first, last) if commit is not None]
            return [_version(version, commit) for version, commit in reversed(commits)]

    def replace(self, snapshot: Snapshot, old: Sequence[DataFile], new: Sequence[DataFile]) -> Snapshot:
        from deltalake.transaction import RemoveAction

        with self._errors():
            table = self._open()
            if gone := {file.path for file in old} - set(_paths(table)):
                raise LakeConflict(f"{self.location}: {min(gone)} was replaced by somebody else")
            now = _now()
            removed = [RemoveAction(file.path, False, now, file.size, dict(file.partition)) for file in old]
            return self._write(table, "compact", new, removed=removed)

    def vacuum(self, older_than: timedelta, dry_run: bool = False) -> list[str]:
        with self._errors():
            hours = int(older_than.total_seconds() // 3600)
            # `full`: also what no commit ever named, the files of tasks that died.
            return self._open().vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)

    def _open(self, version: int | None = None, at: datetime | None = None) -> DeltaTable:
        table: DeltaTable | None = _load(self.storage, self.name)
        if table is None:
            raise TableNotFound(f"there is no table at {self.location} any more")
        features = set(table.protocol().reader_features or ())
        if needed := features & _UNREADABLE:
            raise LakeError(f"{self.location} was changed to use {min(needed)}, which only some readers understand")
        if version is not None:
            self._check_version(version, table.version())
            table.load_as_version(version)
        elif at is not None:
            found = self._log.version_at(at, table.version())
            if found is None:
                raise TableNotFound(f"{self.location} has no version that was there at {at.isoformat(' ', 'seconds')}")
            table.load_as_version(found)
        return table

    def _check_version(self, version: int, newest: int) -> None:
        if version > newest or version < 0:
            raise TableNotFound(f"{self.location} has no version {version}; the newest is {newest}")
        if self._log.commit(version) is None and version < (oldest := self._log.oldest()):
            raise TableNotFound(f"{self.location} no longer has version {version}; the oldest is {oldest}")

    def _check_present(self, snapshot: Snapshot, paths: Iterable[str]) -> None:
        places = [self.storage.path(f"{self.name}/{path}") for path in paths]
        found = self.storage.filesystem().get_file_info(places) if places else []
        if gone := sum(info.type == fs.FileType.NotFound for info in found):
            raise TableNotFound(
                f"version {snapshot.version} of {self.location} can no longer be read: "
                f"{gone} of its files were removed by vacuum"
            )

    def _gap_id(self, gap: Gap) -> str:
        return layout.gap_id(self.cluster, gap.queue, gap.start)

    def _add_columns(self, table: DeltaTable, wanted: pa.Schema) -> bool:
        """Add the columns that the table does not have, in a commit of its own: nulls in every row there is."""
        from deltalake import Schema

        present = _schema(table)
        if changed := layout.changed_columns(present, wanted):
            have, want = changed[0]
            raise ConfigError(f"column {want.name} of {self.location} is {have.type}, not {want.type}")
        missing = layout.missing_columns(present, wanted)
        if missing:
            fields = pa.schema([field.with_nullable(True) for field in missing])
            table.alter.add_columns(Schema.from_arrow(fields).fields, commit_properties=_properties("columns")[0])
        return bool(missing)

    def _write(
        self,
        table: DeltaTable,
        operation: str,
        files: Sequence[DataFile],
        *,
        transactions: Sequence[Any] = (),
        removed: Sequence[Any] = (),
    ) -> Snapshot:
        if _RETENTION in table.metadata().configuration:
            raise ConfigError(f"{self.location} forgets positions: remove its property {_RETENTION}")
        properties, unique = _properties(operation, transactions, retries=0 if removed else None)
        actions = [*map(_add_action, files, [not removed] * len(files)), *removed]
        read = table.version()
        partition = list(layout.partition_columns(self.hourly))
        table.create_write_transaction(actions, "append", table.schema(), partition, commit_properties=properties)
        table.update_incremental()
        for version, commit in self._log.commits(read + 1, table.version()):
            if commit is not None and commit.info.get(_COMMIT) == unique:
                table.load_as_version(version)
        return self._snapshot(table)

    def _snapshot(self, table: DeltaTable) -> Snapshot:
        version = table.version()
        known = self._log.transactions(version)
        complete = known.get(layout.complete_id(self.cluster, self.topic))
        until = None if complete is None else _moment(complete.version)
        return Snapshot(version, self._log.time(version), self._positions(known), _schema(table), until)

    def _positions(self, known: Mapping[str, Txn]) -> dict[MessageQueue, int]:
        found = {}
        for name, txn in known.items():
            if (position := layout.parse_position(name)) and position.cluster == self.cluster:
                found[position.queue] = txn.version
        return found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with _errors(self.storage, self.name):
            yield


def open_table(storage: Storage, name: str) -> DeltaLakeTable:
    """The table `name`. Raises TableNotFound."""
    with _errors(storage, name):
        table = _load(storage, name)
        if table is None:
            raise TableNotFound(f"there is no table at {storage.uri(name)}")
        return DeltaLakeTable(storage, name, table)


def create_table(storage: Storage, name: str, topic: str, cluster: str, hourly: bool = False) -> DeltaLakeTable:
    """The table `name`, made if there is none. Raises ConfigError if it has another topic's messages."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with _errors(storage, name):
        table = _load(storage, name)
        if table is None:
            if storage.is_local:
                storage.filesystem().create_dir(storage.path(name), recursive=True)
            try:
                DeltaTable.create(
                    _place(storage, name),
                    layout.table_schema(hourly=hourly),
                    partition_by=list(layout.partition_columns(hourly)),
                    name=name,
                    description=f"Messages of the RocketMQ topic {topic}",
                    configuration={TOPIC: topic, CLUSTER: cluster, "delta.checkpointInterval": "20"},
                    storage_options=storage.delta_options(),
                    commit_properties=_properties("create", retries=0)[0],
                    raise_if_key_not_exists=False,
                )
            except DeltaError:
                # Somebody else may have made it at the same time.
                if (table := _load(storage, name)) is None:
                    raise
        return DeltaLakeTable(storage, name, table or _load(storage, name))


def is_table(storage: Storage, name: str) -> bool:
    """Whether there is a Delta table."""
    info = storage.filesystem().get_file_info(storage.path(f"{name}/_delta_log"))
    return bool(info.type == fs.FileType.Directory)


def _load(storage: Storage, name: str) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(_place(storage, name), storage_options=storage.delta_options())
    except TableNotFoundError:
        return None


def _place(storage: Storage, name: str) -> str:
    return storage.path(name) if storage.is_local else storage.uri(name)


@contextmanager
def _errors(storage: Storage, name: str) -> Iterator[None]:
    """What delta-rs and the storage raise, as errors of ours in one line and without secrets."""
    try:
        from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    except ImportError as exc:
        raise ConfigError("Delta tables need deltalake: pip install 'pyromq[lake]'") from exc
    where = storage.uri(name)
    try:
        yield
    except CommitFailedError as exc:
        raise LakeConflict(f"{where}: somebody else committed first") from exc
    except TableNotFoundError as exc:
        raise TableNotFound(f"there is no table at {where}") from exc
    except DeltaError as exc:
        reason = str(exc).partition("\n")[0]  # a trace of delta-rs may follow
        if "json" in reason.lower() or "checkpoint" in reason.lower():
            raise LakeError(f"the log of {where} is damaged: {storage.masked(reason)}") from exc
        raise failed(storage, where, DeltaError(reason)) from exc
    except OSError as exc:
        raise failed(storage, where, exc) from exc


def _properties(operation: str, transactions: Sequence[Any] = (), retries: int | None = None) -> tuple[Any, str]:
    from deltalake.transaction import CommitProperties

    unique = uuid.uuid4().hex
    metadata = {_OPERATION: operation, _COMMIT: unique}
    return CommitProperties(metadata, max_commit_retries=retries, app_transactions=list(transactions)), unique


def _add_action(file: DataFile, is_new: bool) -> Any:
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": {name: _stat(value) for name, value in file.minimum.items()},
        "maxValues": {name: _stat(value) for name, value in file.maximum.items()},
        "nullCount": dict(file.nulls),
    }
    return AddAction(file.path, file.size, dict(file.partition), _now(), is_new, json.dumps(stats))


def _stat(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value


def _files(table: DeltaTable, since: datetime | None, until: datetime | None) -> list[DataFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    if since is not None:
        actions = _keep(actions, since, "max.storeTimestamp", pc.greater_equal)
    if until is not None:
        actions = _keep(actions, until, "min.storeTimestamp", pc.less)
    return [_file(row) for row in actions.to_pylist()]


def _keep(actions: pa.Table, bound: datetime, column: str, compare: Any) -> pa.Table:
    """The files that may have a message there; one whose bounds are not known may."""
    if column not in actions.column_names:
        return actions
    return actions.filter(pc.fill_null(compare(actions[column], pa.scalar(bound, actions[column].type)), True))


def _file(row: Mapping[str, Any]) -> DataFile:
    found: dict[str, dict[str, Any]] = {"partition": {}, "min": {}, "max": {}, "null_count": {}}
    for key, value in row.items():
        kind, _, column = key.partition(".")
        if kind in found and column and value is not None:
            found[kind][column] = value
    partition = {
        name: value.isoformat() if isinstance(value, date) else str(value) for name, value in found["partition"].items()
    }
    return DataFile(
        row["path"],
        row["num_records"] or 0,
        row["size_bytes"],
        partition,
        found["min"],
        found["max"],
        found["null_count"],
    )


def _paths(table: DeltaTable) -> list[str]:
    return [str(path) for path in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()]


def _schema(table: DeltaTable) -> pa.Schema:
    """The table's columns; Delta has no names for the insides of a map, so ours are taken."""
    ours = {field.name: field for field in layout.table_schema(hourly=True)}
    return pa.schema([ours.get(field.name, field) for field in pa.schema(table.schema().to_arrow())])


def _version(version: int, commit: Commit) -> Version:
    operation = commit.info.get(_OPERATION) or str(commit.info.get("operation", "")).lower()
    return Version(version, commit.time or _moment(0), operation, commit.rows, commit.added, commit.removed)


def _now() -> int:
    return int(time.time() * 1000)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
