"""The log of a Delta table, as far as delta-rs does not show it: which transactions of applications it has.

    _delta_log/00000000000000000007.json                    a commit: an action per line
    _delta_log/00000000000000000006.checkpoint.parquet      all that was valid at version 6: a row per action
    _delta_log/_last_checkpoint                             {"version":6,…}, where to begin

delta-rs answers how far one application has come, but not which applications there are, and a reader that has never
seen the topic does not know its queues. So the actions named `txn` are read here: from the newest checkpoint at or
before a version, and the commits after it. The log only grows at its end, so what was read stays true, and the next
look reads nothing but the commits that came since.

The format is that of https://github.com/delta-io/delta/blob/master/PROTOCOL.md: checkpoints may have several parts, or
a unique name (version 2), as other writers make them.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from .table import LakeError, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .storage import Storage

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?(?:\.[0-9a-f-]{36})?\.(parquet|json)")
_COMMIT = re.compile(r"(\d{20})\.json")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = 8  # commits that are fetched at the same time: each is a round trip to an object store


class Txn(NamedTuple):
    """How far an application has come."""

    version: int
    updated: int | None  # ms, where its writer said so


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit's actions, those that matter here."""

    info: Mapping[str, Any]
    transactions: Mapping[str, Txn]
    added: int
    removed: int
    rows: int

    @property
    def time(self) -> datetime | None:
        stamp = self.info.get("timestamp")
        return datetime.fromtimestamp(stamp / 1000, UTC) if isinstance(stamp, int) else None


class DeltaLog:
    """Reads the log of the table `name`. What it read before, it does not read again."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._folder = storage.path(f"{name}/_delta_log")
        self._filesystem = storage.filesystem()
        self._known: tuple[int, dict[str, Txn]] | None = None

    def transactions(self, version: int) -> dict[str, Txn]:
        """The transactions that are valid at `version`, which exists."""
        known = self._known
        if known is None or known[0] > version:
            known = self._from_checkpoint(version)
        try:
            found = self._with_commits(known, version)
        except FileNotFoundError:  # the log was cleaned up since: a checkpoint has what these commits had
            found = self._with_commits(self._from_checkpoint(version), version)
        if self._known is None or version >= self._known[0]:
            self._known = version, found
        return dict(found)

    def commit(self, version: int) -> Commit | None:
        """One commit; None if it was cleaned up."""
        try:
            return self._commit(version)
        except FileNotFoundError:
            return None

    def commits(self, first: int, last: int) -> list[tuple[int, Commit | None]]:
        """The commits of these versions."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(zip(range(first, last + 1), threads.map(self.commit, range(first, last + 1)), strict=True))

    def time(self, version: int) -> datetime:
        """When a version was made."""
        commit = self.commit(version)
        if commit is not None and commit.time is not None:
            return commit.time
        # Commits of others may not say when, and old ones are gone; a checkpoint was written shortly after its commit.
        names = [f"{version:020d}.json", *self._checkpoints(self._names()).get(version, [])]
        infos = self._filesystem.get_file_info([f"{self._folder}/{name}" for name in names])
        return min((info.mtime for info in infos if info.mtime is not None), default=_EPOCH)

    def version_at(self, moment: datetime, newest: int) -> int | None:
        """The version that was the newest at `moment`, up to `newest`; None if there was none, or it is gone."""
        low, high = self.oldest(), newest + 1
        if self.time(low) > moment:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.time(middle) <= moment else (low, middle)
        return low

    def oldest(self) -> int:
        """The oldest version that can still be read."""
        names = self._names()
        commits = [int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))]
        if 0 in commits:
            return 0
        return min(self._checkpoints(names), default=max(commits, default=0))

    def _with_commits(self, known: tuple[int, dict[str, Txn]], version: int) -> dict[str, Txn]:
        at, found = known[0], dict(known[1])
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for commit in threads.map(self._commit, range(at + 1, version + 1)):
                found |= commit.transactions
        return found

    def _from_checkpoint(self, version: int) -> tuple[int, dict[str, Txn]]:
        """What the newest checkpoint at or before `version` has; nothing, before the first commit, if there is none."""
        try:
            hint = json.loads(self._read("_last_checkpoint"))["version"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            hint = None  # it is only a hint
        if hint is None and version <= 10 * _AT_ONCE and self._exists(f"{0:020d}.json"):
            return -1, {}
        checkpoints = self._checkpoints(self._names())
        if not (at := [each for each in checkpoints if each <= version]):
            return -1, {}
        found: dict[str, Txn] = {}
        for name in checkpoints[max(at)]:
            found |= self._checkpoint(name)
        return max(at), found

    def _checkpoints(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Those that are complete, by version."""
        found: dict[int, list[str]] = {}
        for name in sorted(names):
            if not (match := _CHECKPOINT.fullmatch(name)):
                continue
            version, part, of = int(match[1]), match[2], match[3]
            if part is None:
                found[version] = [name]
                continue
            parts = [each for each in names if each.startswith(f"{version:020d}.checkpoint.") and f".{of}." in each]
            if len(parts) == int(of) and version not in found:
                found[version] = sorted(parts)
        return found

    def _checkpoint(self, name: str) -> dict[str, Txn]:
        if name.endswith(".json"):
            return dict(self._parsed(name, self._read(name)).transactions)
        try:
            with self._filesystem.open_input_file(f"{self._folder}/{name}") as file:
                parquet = pq.ParquetFile(file)
                if "txn" not in parquet.schema_arrow.names:
                    return {}
                rows = parquet.read(columns=["txn"])["txn"].drop_null().to_pylist()
        except (OSError, pa.ArrowException) as exc:
            raise self._damaged(name, exc) from exc
        return {row["appId"]: Txn(row["version"], row.get("lastUpdated")) for row in rows if row.get("appId")}

    def _commit(self, version: int) -> Commit:
        name = f"{version:020d}.json"
        return self._parsed(name, self._read(name))

    def _parsed(self, name: str, data: bytes) -> Commit:
        info: dict[str, Any] = {}
        found: dict[str, Txn] = {}
        added = removed = rows = 0
        try:
            for line in data.splitlines():
                if not line.strip():
                    continue
                action = json.loads(line)
                if txn := action.get("txn"):
                    found[str(txn["appId"])] = Txn(int(txn["version"]), txn.get("lastUpdated"))
                elif add := action.get("add"):
                    added += 1
                    rows += int(json.loads(add.get("stats") or "{}").get("numRecords") or 0)
                elif "remove" in action:
                    removed += 1
                info = action.get("commitInfo") or info
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise self._damaged(name, exc) from exc
        return Commit(info, found, added, removed, rows)

    def _read(self, name: str) -> bytes:
        try:
            with self._filesystem.open_input_stream(f"{self._folder}/{name}") as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as exc:
            raise LakeError(
                f"the log of {self._storage.uri(self._name)} cannot be read: {self._storage.masked(exc)}"
            ) from exc

    def _exists(self, name: str) -> bool:
        return bool(self._filesystem.get_file_info(f"{self._folder}/{name}").type == fs.FileType.File)

    def _names(self) -> list[str]:
        try:
            found = self._filesystem.get_file_info(fs.FileSelector(self._folder))
        except FileNotFoundError as exc:
            raise TableNotFound(f"there is no table at {self._storage.uri(self._name)}") from exc
        except (OSError, pa.ArrowException) as exc:
            raise LakeError(
                f"the log of {self._storage.uri(self._name)} cannot be read: {self._storage.masked(exc)}"
            ) from exc
        return [info.base_name for info in found]

    def _damaged(self, name: str, exc: BaseException) -> LakeError:
        return LakeError(f"the log of {self._storage.uri(self._name)} is damaged: {name}: {self._storage.masked(exc)}")
