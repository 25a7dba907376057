"""The SQLite file of a dashboard. Every call runs in a thread, one at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

FILE = "dashboard.db"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS fine (series INTEGER, t INTEGER, v REAL, PRIMARY KEY (series, t)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS coarse (series INTEGER, t INTEGER, v REAL, PRIMARY KEY (series, t)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (id INTEGER PRIMARY KEY, t REAL NOT NULL, user TEXT NOT NULL, address TEXT NOT NULL,
    cluster TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS users (name TEXT PRIMARY KEY, role TEXT NOT NULL, salt BLOB NOT NULL, hash BLOB NOT NULL,
    one_time INTEGER NOT NULL, made REAL NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, what TEXT NOT NULL, cluster TEXT NOT NULL,
    user TEXT NOT NULL, began REAL NOT NULL, ended REAL, state TEXT NOT NULL, total INTEGER, done INTEGER NOT NULL,
    failed INTEGER NOT NULL, error TEXT);
CREATE TABLE IF NOT EXISTS job_rows (job INTEGER, number INTEGER, name TEXT NOT NULL, outcome TEXT NOT NULL,
    failed INTEGER NOT NULL, PRIMARY KEY (job, number)) WITHOUT ROWID;
"""


class Database:
    """Opened when made; without a folder it lives in memory. ConfigError if the file cannot be used."""

    def __init__(self, folder: Path | None = None) -> None:
        path = ":memory:"
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = folder / FILE
                file.touch(mode=0o600)
                path = str(file)
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as exc:
            raise ConfigError(f"the dashboard cannot keep its data in {folder}: {exc}") from exc
        self._lock = threading.Lock()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in one transaction, in a thread; everything is undone if it raises."""
        return await asyncio.to_thread(self.run_now, work)

    def run_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                result = work(self._connection)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            return result

    def close(self) -> None:
        with self._lock:
            self._connection.close()
