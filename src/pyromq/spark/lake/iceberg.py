"""Tables as Iceberg tables, through pyiceberg and the catalog that a user has.

Iceberg has no transactions of applications, but every snapshot carries properties: the positions of all queues stand
there as JSON, with all gaps, and the newest snapshot that has them counts, since compaction and deletes by other tools
make snapshots without. A copy is kept in the table's own properties, for the case that somebody expires the snapshots
that have them. A commit must follow the snapshot whose positions were compared: pyiceberg would try again on a newer
one by itself, so that is switched off in our tables.

A table's version is the sequence number of its snapshot; 0 is a table that never had one.
"""

from __future__ import annotations

import json
import posixpath
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from pyromq.errors import ConfigError

from ..source.offsets import nested
from . import layout
from .moves import check_moves
from .parquet_parts import failed
from .table import DataFile, Gap, LakeConflict, LakeError, Snapshot, TableNotFound, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
    from pyiceberg.types import PrimitiveType

    from pyromq.protocol.message_queue import MessageQueue

    from .storage import Storage
    from .table import LakeCommit

_TOPIC, _CLUSTER = "pyromq.topic", "pyromq.cluster"
_POSITIONS, _GAPS, _BATCHES, _COMPLETE = "pyromq.positions", "pyromq.gaps", "pyromq.batches", "pyromq.complete"
_STATE = (_POSITIONS, _GAPS, _BATCHES, _COMPLETE)
_OPERATION = "pyromq.operation"
_RETRIES = "commit.retry.num-retries"


class IcebergLakeTable:
    """One topic's Iceberg table. Made by `open_table` and `create_table` below."""

    format = "iceberg"
    whole = True

    def __init__(self, storage: Storage, name: str, catalog: Catalog, table: Table) -> None:
        if _TOPIC not in table.properties:
            raise LakeError(f"{_place(storage, name)} is an Iceberg table, but not an archive of a topic")
        self.name = name
        self.storage = storage
        self.topic = table.properties[_TOPIC]
        self.cluster = table.properties.get(_CLUSTER, "")
        self.hourly = layout.HOUR in [field.name for field in table.spec().fields]
        self._catalog = catalog

    @property
    def location(self) -> str:
        return self.storage.uri(self.name)

    def snapshot(self, version: int | None = None, at: datetime | None = None) -> Snapshot:
        with self._errors():
            table = self._load()
            return self._snapshot(table, self._found(table, version, at))

    def files(self, snapshot: Snapshot, since: datetime | None = None, until: datetime | None = None) -> list[DataFile]:
        with self._errors():
            table = self._load()
            current = self._found(table, snapshot.version, None)
            found = [_data_file(table, file) for file in _planned(table, current, since, until)]
            if current is not None and current.snapshot_id != table.metadata.current_snapshot_id:
                newest = {_below(table, file) for file in _planned(table, table.current_snapshot())}
                self._check_present(snapshot, {file.path for file in found} - newest)
            return found

    def commit(self, commit: LakeCommit) -> Snapshot:
        with self._errors():
            table = self._load()
            state = _state(table, table.current_snapshot())
            if commit.batch is not None and _batches(state).get(commit.batch[0], -1) >= commit.batch[1]:
                return self._snapshot(table, table.current_snapshot())
            positions = _positions(state)
            check_moves(commit, positions, self.location)
            transaction = _transaction(table)
            if commit.columns is not None:
                self._add_columns(transaction, commit.columns)
            changed = _changed(state, commit, positions)
            transaction.set_properties(changed)
            paths = [f"{table.location()}/{file.path}" for file in commit.files]
            # The names are unique: there is no need to look through all files for them.
            transaction.add_files(paths, {**changed, _OPERATION: "archive"}, check_duplicate_files=False)
            return self._done(transaction)

    def gaps(self) -> list[Gap]:
        with self._errors():
            table = self._load()
            return sorted(
                _gaps(_state(table, table.current_snapshot())), key=lambda gap: (gap.queue, gap.start, gap.end)
            )

    def versions(self, limit: int | None = None) -> list[Version]:
        with self._errors():
            lines = [_version(each) for each in _line(self._load())]
            return lines[:limit]

    def replace(self, snapshot: Snapshot, old: Sequence[DataFile], new: Sequence[DataFile]) -> Snapshot:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        with self._errors():
            table = self._load()
            present = {_below(table, file): file for file in _planned(table, table.current_snapshot())}
            if gone := {file.path for file in old} - present.keys():
                raise LakeConflict(f"{self.location}: {min(gone)} was replaced by somebody else")
            state = _state(table, table.current_snapshot())
            transaction = _transaction(table)
            with transaction.update_snapshot({**state, _OPERATION: "compact"}).overwrite() as files:
                for file in old:
                    files.delete_data_file(present[file.path])
                for file in new:
                    path = f"{table.location()}/{file.path}"
                    files.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
            return self._done(transaction)

    def vacuum(self, older_than: timedelta, dry_run: bool = False) -> list[str]:
        with self._errors():
            table = self._load()
            oldest = datetime.now(UTC) - older_than
            kept = _needed(table, oldest)
            if not dry_run and len(kept) < len(table.snapshots()):
                expired = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in kept]
                table.maintenance.expire_snapshots().by_ids(expired).commit()
                table.refresh()
            used = _used(table, kept)
            filesystem = self.storage.filesystem()
            selector = fs.FileSelector(self.storage.path(self.name), recursive=True, allow_not_found=True)
            found = []
            for info in filesystem.get_file_info(selector):
                path = posixpath.relpath(info.path, self.storage.path(self.name))
                if info.type != fs.FileType.File or path in used or path.endswith((".json", ".text")):
                    continue
                if info.mtime is not None and info.mtime < oldest:
                    found.append(path)
                    if not dry_run:
                        filesystem.delete_file(info.path)
            return sorted(found)

    def _load(self) -> Table:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(_identifier(self.storage, self.name))
        except NoSuchTableError as exc:
            raise TableNotFound(f"there is no table {_place(self.storage, self.name)} any more") from exc

    def _found(self, table: Table, version: int | None, at: datetime | None) -> IcebergSnapshot | None:
        line = _line(table)
        if version is not None:
            found = [each for each in line if (each.sequence_number or 0) == version]
            if not found and version != 0:
                newest = line[0].sequence_number if line else 0
                raise TableNotFound(f"{self.location} has no version {version}, or no longer; the newest is {newest}")
            return found[0] if found else None
        if at is not None:
            if not (before := [each for each in line if _moment(each.timestamp_ms) <= at]):
                raise TableNotFound(f"{self.location} has no version that was there at {at.isoformat(' ', 'seconds')}")
            return before[0]
        return table.current_snapshot()

    def _snapshot(self, table: Table, current: IcebergSnapshot | None) -> Snapshot:
        state = _state(table, current)
        made = table.metadata.last_updated_ms if current is None else current.timestamp_ms
        complete = state.get(_COMPLETE)
        return Snapshot(
            0 if current is None else current.sequence_number or 0,
            _moment(made),
            _positions(state),
            _schema(table, current),
            None if complete is None else _moment(int(complete)),
        )

    def _check_present(self, snapshot: Snapshot, paths: Iterable[str]) -> None:
        places = [self.storage.path(f"{self.name}/{path}") for path in paths]
        found = self.storage.filesystem().get_file_info(places) if places else []
        if gone := sum(info.type == fs.FileType.NotFound for info in found):
            raise TableNotFound(
                f"version {snapshot.version} of {self.location} can no longer be read: "
                f"{gone} of its files were removed by vacuum"
            )

    def _add_columns(self, transaction: Any, wanted: pa.Schema) -> None:
        present = _arrow(transaction.table_metadata.schema())
        if changed := layout.changed_columns(present, wanted):
            have, want = changed[0]
            raise ConfigError(f"column {want.name} of {self.location} is {have.type}, not {want.type}")
        if missing := layout.missing_columns(present, wanted):
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema([field.with_nullable(True) for field in missing]))

    def _done(self, transaction: Any) -> Snapshot:
        table = transaction.commit_transaction()
        return self._snapshot(table, table.current_snapshot())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with _errors(self.storage, self.name):
            yield


def open_table(storage: Storage, name: str) -> IcebergLakeTable:
    """The table `name`. Raises TableNotFound."""
    with _errors(storage, name):
        catalog = _catalog(storage)
        return IcebergLakeTable(storage, name, catalog, catalog.load_table(_identifier(storage, name)))


def create_table(storage: Storage, name: str, topic: str, cluster: str, hourly: bool = False) -> IcebergLakeTable:
    """The table `name`, made if there is none."""
    with _errors(storage, name):
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

        catalog = _catalog(storage)
        identifier = _identifier(storage, name)
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(identifier[0])
            properties = {
                _TOPIC: topic,
                _CLUSTER: cluster,
                _RETRIES: "0",
                "write.metadata.delete-after-commit.enabled": "true",
                "write.parquet.compression-codec": "zstd",
                # Bounds only of what readers skip by: those of bodies would fill the metadata.
                "write.metadata.metrics.default": "none",
                **{
                    f"write.metadata.metrics.column.{column}": "full"
                    for column in (*layout.SKIPPED_BY, *layout.partition_columns(hourly))
                },
            }
            place = f"file://{storage.path(name)}" if storage.is_local else storage.uri(name)
            try:
                made = catalog.create_table_transaction(
                    identifier, layout.table_schema(hourly=hourly), place, properties=properties
                )
                with made as transaction, transaction.update_spec() as spec:
                    for column in layout.partition_columns(hourly):
                        spec.add_identity(column)
            except (TableAlreadyExistsError, CommitFailedException):
                pass  # somebody else made it at the same time
            table = catalog.load_table(identifier)
        return IcebergLakeTable(storage, name, catalog, table)


def list_tables(storage: Storage) -> list[str]:
    """The names of the tables in our namespace."""
    with _errors(storage, ""):
        from pyiceberg.exceptions import NoSuchNamespaceError

        catalog = _catalog(storage)
        try:
            return sorted(identifier[-1] for identifier in catalog.list_tables(_identifier(storage, "")[0]))
        except NoSuchNamespaceError:
            return []


def _catalog(storage: Storage) -> Catalog:
    from pyiceberg.catalog import load_catalog

    properties = storage.iceberg_properties()
    properties.pop("namespace", None)
    name = properties.pop("name", "lake")
    try:
        return load_catalog(name, **properties)
    except ValueError as exc:
        raise ConfigError(f"Iceberg tables need a catalog, such as catalog.uri: {storage.masked(exc)}") from exc


def _identifier(storage: Storage, name: str) -> tuple[str, str]:
    return storage.options.get("catalog.namespace", "rocketmq"), name


def _place(storage: Storage, name: str) -> str:
    return ".".join(_identifier(storage, name)).rstrip(".")


@contextmanager
def _errors(storage: Storage, name: str) -> Iterator[None]:
    """What pyiceberg, its catalogs and the storage raise, as errors of ours in one line and without secrets."""
    try:
        from pyiceberg import exceptions
    except ImportError as exc:
        raise ConfigError("Iceberg tables need pyiceberg: pip install 'pyromq[iceberg]'") from exc
    where = _place(storage, name)
    try:
        yield
    except (LakeError, ConfigError):
        raise
    except (exceptions.CommitFailedException, exceptions.ValidationException) as exc:
        raise LakeConflict(f"{where}: somebody else committed first") from exc
    except exceptions.CommitStateUnknownException as exc:
        raise LakeConflict(f"{where}: the catalog did not say whether it took the commit") from exc
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as exc:
        raise TableNotFound(f"there is no table {where}") from exc
    except OSError as exc:
        raise failed(storage, where, exc) from exc
    except Exception as exc:
        # Catalogs raise what their drivers do (SQLAlchemy, requests, thrift), with no common root.
        if type(exc).__module__.partition(".")[0] in ("builtins", "pyromq") and not isinstance(exc, RuntimeError):
            raise
        raise LakeError(f"{where}: {storage.masked(exc)}") from exc


def _transaction(table: Table) -> Any:
    """A transaction that follows the very snapshot that was looked at, or fails."""
    if table.properties.get(_RETRIES) != "0":
        # pyiceberg asks the table as it was before the transaction, so this needs one of its own.
        before = table.metadata.current_snapshot_id
        with table.transaction() as first:
            first.set_properties({_RETRIES: "0"})
        if table.metadata.current_snapshot_id != before:
            raise LakeConflict(f"{table.location()}: somebody else committed first")
    return table.transaction()


def _line(table: Table) -> list[IcebergSnapshot]:
    """The snapshots that led to the current one, newest first."""
    found = []
    current = table.current_snapshot()
    while current is not None:
        found.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else table.snapshot_by_id(parent)
    return found


def _state(table: Table, current: IcebergSnapshot | None) -> dict[str, str]:
    """What the newest snapshot at or before `current` knows of positions, gaps and batches."""
    each, first = current, current
    while each is not None:
        summary = each.summary.additional_properties if each.summary else {}
        if _POSITIONS in summary:
            return {key: summary[key] for key in _STATE if key in summary}
        first, parent = each, each.parent_snapshot_id
        each = None if parent is None else table.snapshot_by_id(parent)
    if current is None or first is None or _POSITIONS not in table.properties:
        return {}
    # The snapshots that had them were expired, which may cut the line of parents, too.
    if current.snapshot_id == table.metadata.current_snapshot_id:
        return {key: table.properties[key] for key in _STATE if key in table.properties}
    if (first.sequence_number or 0) > 1:
        raise TableNotFound(f"version {current.sequence_number} of {table.location()} no longer knows its positions")
    return {}


def _positions(state: Mapping[str, str]) -> dict[MessageQueue, int]:
    from pyromq.protocol.message_queue import MessageQueue

    return {
        MessageQueue(topic=topic, broker_name=broker, queue_id=int(number)): end
        for topic, brokers in json.loads(state.get(_POSITIONS, "{}")).items()
        for broker, queues in brokers.items()
        for number, end in queues.items()
    }


def _gaps(state: Mapping[str, str]) -> list[Gap]:
    from pyromq.protocol.message_queue import MessageQueue

    return [
        Gap(MessageQueue(topic=topic, broker_name=broker, queue_id=number), start, end, _moment(noticed))
        for topic, broker, number, start, end, noticed in json.loads(state.get(_GAPS, "[]"))
    ]


def _batches(state: Mapping[str, str]) -> dict[str, int]:
    return dict(json.loads(state.get(_BATCHES, "{}")))


def _changed(state: Mapping[str, str], commit: LakeCommit, positions: Mapping[MessageQueue, int]) -> dict[str, str]:
    """The state after `commit`."""
    after = {**positions, **{move.queue: move.end for move in commit.moves}}
    changed = {**state, _POSITIONS: _json(nested(after))}
    if gaps := [*_gaps(state), *commit.gaps]:
        changed[_GAPS] = _json(
            [
                (gap.queue.topic, gap.queue.broker_name, gap.queue.queue_id, gap.start, gap.end, _millis(gap.noticed))
                for gap in gaps
            ]
        )
    if commit.batch is not None:
        changed[_BATCHES] = _json({**_batches(state), commit.batch[0]: commit.batch[1]})
    if commit.complete is not None:
        changed[_COMPLETE] = str(_millis(commit.complete))
    return changed


def _planned(
    table: Table, current: IcebergSnapshot | None, since: datetime | None = None, until: datetime | None = None
) -> list[Any]:
    """The data files of a snapshot. Raises LakeError if rows of theirs were deleted elsewhere than in the files."""
    if current is None:
        return []
    bounds = [f"storeTimestamp >= '{since.isoformat()}'"] if since is not None else []
    bounds += [f"storeTimestamp < '{until.isoformat()}'"] if until is not None else []
    tasks = list(table.scan(" AND ".join(bounds) or "true", snapshot_id=current.snapshot_id).plan_files())
    if any(task.delete_files for task in tasks):
        raise LakeError(f"{table.location()} has delete files, which only some readers understand; compact them first")
    return [task.file for task in tasks]


def _data_file(table: Table, file: Any) -> DataFile:
    from pyiceberg.conversions import from_bytes

    schema = table.schema()
    minimum: dict[str, object] = {}
    maximum: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for name in layout.SKIPPED_BY:
        field = schema.find_field(name)
        for bounds, found in ((file.lower_bounds, minimum), (file.upper_bounds, maximum)):
            if bounds and field.field_id in bounds:
                value: Any = from_bytes(cast("PrimitiveType", field.field_type), bounds[field.field_id])
                found[name] = _moment(value / 1000) if name.endswith("Timestamp") else value
        if file.null_value_counts and field.field_id in file.null_value_counts:
            nulls[name] = file.null_value_counts[field.field_id]
    partition = {
        field.name: _partition_text(field.name, file.partition[index])
        for index, field in enumerate(table.spec().fields)
    }
    path = _below(table, file)
    return DataFile(path, file.record_count, file.file_size_in_bytes, partition, minimum, maximum, nulls)


def _partition_text(name: str, value: Any) -> str:
    if name == layout.DAY and isinstance(value, int):
        return layout.partition_from_days(value)[layout.DAY]
    return value.isoformat() if isinstance(value, date) else str(value)


def _below(table: Table, file: Any) -> str:
    """The path of a file below the table's folder."""
    return str(posixpath.relpath(_path(file.file_path), _path(table.location())))


def _path(location: str) -> str:
    split = urlsplit(location) if "://" in location else None
    return location if split is None else f"{split.netloc}{location.partition('://')[2][len(split.netloc) :]}"


def _needed(table: Table, oldest: datetime) -> set[int]:
    """The snapshots that were the newest since `oldest`, or that branches and tags name, or that have the positions."""
    needed = {ref.snapshot_id for ref in table.metadata.refs.values()}
    has_state = False
    for each in _line(table):
        is_young = _moment(each.timestamp_ms) >= oldest
        if is_young or not has_state or each.snapshot_id in needed:
            needed.add(each.snapshot_id)
        has_state = has_state or _POSITIONS in (each.summary.additional_properties if each.summary else {})
        if not is_young and has_state:
            break
    return needed


def _used(table: Table, kept: Iterable[int]) -> set[str]:
    """The files that snapshots refer to, below the table's folder."""
    base = _path(table.location())
    used = set()
    for number in kept:
        snapshot = table.snapshot_by_id(number)
        if snapshot is None:
            continue
        places = [snapshot.manifest_list]
        for manifest in snapshot.manifests(table.io):
            places.append(manifest.manifest_path)
            places += [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)]
        used |= {posixpath.relpath(_path(each), base) for each in places}
    return used


def _schema(table: Table, current: IcebergSnapshot | None) -> pa.Schema:
    schemas = table.schemas()
    number = None if current is None else current.schema_id
    return _arrow(schemas[number] if number in schemas else table.schema())


def _arrow(schema: Any) -> pa.Schema:
    """The table's columns as other parts have them: without ids, and strings that are not large."""
    ours = {field.name: field for field in layout.table_schema(hourly=True)}
    return pa.schema([ours.get(field.name, _plain(field)) for field in schema.as_arrow()])


def _plain(field: pa.Field) -> pa.Field:
    kinds = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.field(field.name, kinds.get(field.type, field.type), field.nullable)


def _version(snapshot: IcebergSnapshot) -> Version:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    named = snapshot.summary.operation.value if snapshot.summary else ""
    return Version(
        snapshot.sequence_number or 0,
        _moment(snapshot.timestamp_ms),
        summary.get(_OPERATION, named),
        int(summary.get("added-records", 0)),
        int(summary.get("added-data-files", 0)),
        int(summary.get("deleted-data-files", 0)),
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _moment(millis: float) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
