"""What a table of the lake is to everyone who writes or reads one, whichever format keeps it.

The table is the only state of an archive. A commit adds files and moves the positions of the queues whose messages are
in them, or does neither: there is no second place that could disagree. A commit says from where to where each queue
moves, and one whose start is not the table's own position is refused, so no message can be left out or come twice,
whoever else archives the same topic and whenever either of them dies.

`delta.py` and `iceberg.py` keep tables; `tables.py` opens the one that a user means. Tasks know nothing of this: they
write Parquet files (`parquet_parts.py`) and hand over what they wrote as `DataFile`s.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pyromq.protocol.message_queue import MessageQueue

    from .storage import Storage


class LakeError(PyroMQError):
    """A table or its storage cannot be read or written: damaged, full, not reachable, changed by others. Says which."""


class TableNotFound(LakeError):
    """There is no such table, or no such version of it."""


class LakeConflict(LakeError):
    """Somebody else moved the table on: nothing of the commit was taken. Read its positions again."""

    retriable = True


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task wrote and that no commit has named yet."""

    path: str  # below the table's folder
    rows: int
    size: int
    partition: Mapping[str, str]  # the day, as {"dt": "2026-01-31"}, and the hour where there is one
    # The least and the largest value of each column that readers skip files by; counts of nulls.
    minimum: Mapping[str, object] = field(default_factory=dict)
    maximum: Mapping[str, object] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """For the way from a task to the driver."""
        return json.dumps(asdict(self), default=lambda value: {"time": value.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> DataFile:
        def times(values: dict[str, Any]) -> dict[str, object]:
            return {key: _time(value) if isinstance(value, dict) else value for key, value in values.items()}

        found = json.loads(text)
        return cls(**found | {"minimum": times(found["minimum"]), "maximum": times(found["maximum"])})


def _time(value: dict[str, str]) -> datetime:
    return datetime.fromisoformat(value["time"])


@dataclass(frozen=True, slots=True)
class Move:
    """How far a commit takes one queue: the messages from `start` up to `end`, which is the next one, are in it."""

    queue: MessageQueue
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that were gone from the broker before they were archived, `end` exclusive."""

    queue: MessageQueue
    start: int
    end: int
    noticed: datetime


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """What becomes visible at once. Gaps lie within the moves."""

    files: Sequence[DataFile]
    moves: Sequence[Move]
    gaps: Sequence[Gap] = ()
    # A streaming query and its batch: a table that has seen this batch, or a later one, takes nothing again.
    batch: tuple[str, int] | None = None
    columns: pa.Schema | None = None  # columns that the table does not have yet are added
    # If the moves reach the ends of all queues: when brokers were asked for those. Until then the table is complete.
    complete: datetime | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table; it stays what it is, however the table goes on."""

    version: int
    time: datetime
    positions: Mapping[MessageQueue, int]  # the next offset of each queue
    schema: pa.Schema
    # Every message that was stored before this time, by the clocks of the archives, is in it; None if nobody knows.
    complete: datetime | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """One line of a table's history."""

    version: int
    time: datetime
    operation: str  # create, archive, compact, vacuum; or what others call theirs
    rows: int = 0  # added
    files: int = 0  # added
    removed: int = 0  # files


class LakeTable(Protocol):
    """One topic's table. Methods reach the storage, raise LakeError for what cannot be done there, and do not retry."""

    @property
    def name(self) -> str:
        """The table's folder below the lake's root."""

    @property
    def topic(self) -> str:
        """Whose messages it has."""

    @property
    def cluster(self) -> str:
        """Whose topic it is."""

    @property
    def format(self) -> str:
        """delta or iceberg."""

    @property
    def hourly(self) -> bool:
        """Whether hours are partitions below days."""

    @property
    def whole(self) -> bool:
        """Whether files have the partition's columns in them: an argument for PartWriter."""

    @property
    def storage(self) -> Storage:
        """Where it is, for tasks that write its files."""

    @property
    def location(self) -> str:
        """The table's folder, as a URI without secrets."""

    def snapshot(self, version: int | None = None, at: datetime | None = None) -> Snapshot:
        """The newest version, the one with this number, or the one that was the newest at a time."""

    def files(self, snapshot: Snapshot, since: datetime | None = None, until: datetime | None = None) -> list[DataFile]:
        """The files of a version that may hold messages stored from `since` up to `until`."""

    def commit(self, commit: LakeCommit) -> Snapshot:
        """Make `commit` part of the table. Raises LakeConflict if a move does not start where the table is."""

    def gaps(self) -> list[Gap]:
        """All that was ever found missing."""

    def versions(self, limit: int | None = None) -> list[Version]:
        """The history that the table still knows, newest first."""

    def replace(self, snapshot: Snapshot, old: Sequence[DataFile], new: Sequence[DataFile]) -> Snapshot:
        """Have the rows of `old` in the files `new` instead; no row and no position changes.

        Raises LakeConflict if `old` is no longer what it was in `snapshot`, whoever changed it.
        """

    def vacuum(self, older_than: timedelta, dry_run: bool = False) -> list[str]:
        """Delete files that no version needs that was the newest within `older_than`. Their paths in the table."""
