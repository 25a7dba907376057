"""What was measured: every ten seconds for two hours, every minute for a week.

Most numbers stand still most of the time, so a row says from when on a number has a value: thousands of idle groups
cost nothing. The series named "" has a row for every sample, whatever changed; between its rows nobody looked.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from .database import Database

FINE_KEPT = 2 * 3600
COARSE_KEPT = 7 * 86400
COARSE_EVERY = 60
_PRUNE_EVERY = 600
_MOST_POINTS = 800


@dataclass(frozen=True, slots=True)
class Line:
    """Values of one series at the times of a chart; None where nobody looked, or there was nothing to see."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Times in seconds since 1970, and lines over them."""

    times: tuple[int, ...]
    lines: tuple[Line, ...]


class History:
    """Values by the names of their series: `prod/group/billing/lag`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: dict[str, int] = {}
        self._last: dict[str, dict[str, float | None]] = {"fine": {}, "coarse": {}}
        self._coarse_at: dict[str, int] = {}
        self._pruned = 0

    async def add(self, cluster: str, at: float, values: Mapping[str, float | None]) -> None:
        """Keep a sample of one cluster. A series that it no longer has gets no more values."""
        await self._database.run(lambda db: self._add(db, f"{cluster}/", int(at), values))

    def _add(self, db: sqlite3.Connection, prefix: str, at: int, values: Mapping[str, float | None]) -> None:
        self._write(db, "fine", prefix, at, values)
        if at >= self._coarse_at.get(prefix, 0):
            self._coarse_at[prefix] = at - at % COARSE_EVERY + COARSE_EVERY
            self._write(db, "coarse", prefix, at, values)
        if at >= self._pruned + _PRUNE_EVERY:
            self._pruned = at
            _prune(db, "fine", at - FINE_KEPT)
            _prune(db, "coarse", at - COARSE_KEPT)

    def _write(
        self, db: sqlite3.Connection, table: str, prefix: str, at: int, values: Mapping[str, float | None]
    ) -> None:
        last = self._last[table]
        named: dict[str, float | None] = {prefix + name: value for name, value in values.items()}
        named |= {name: None for name, value in last.items() if name.startswith(prefix) and name not in named}
        rows: list[tuple[int, int, float | None]] = [(self._id(db, prefix), at, 1.0)]
        for name, value in named.items():
            if name not in last or last[name] != value:
                rows.append((self._id(db, name), at, value))
                last[name] = value
        for name in [name for name, value in named.items() if value is None]:
            last.pop(name, None)
        db.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", rows)

    def _id(self, db: sqlite3.Connection, name: str) -> int:
        if (known := self._ids.get(name)) is None:
            db.execute("INSERT OR IGNORE INTO series (name) VALUES (?)", (name,))
            known = self._ids[name] = db.execute("SELECT id FROM series WHERE name = ?", (name,)).fetchone()[0]
        return known

    async def chart(self, cluster: str, names: Sequence[str], since: float, until: float) -> Chart:
        """These series between two times, by the minute if that is longer ago than two hours."""
        return await self._database.run(lambda db: _chart(db, f"{cluster}/", names, int(since), int(until)))


def _chart(db: sqlite3.Connection, prefix: str, names: Sequence[str], since: int, until: int) -> Chart:
    table = "fine" if until - since <= FINE_KEPT else "coarse"
    ticks = _rows(db, table, prefix, since, until)
    times = [at for at, _ in ticks if at >= since]
    step = max(1, -(-len(times) // _MOST_POINTS))
    times = times[::-step][::-1]  # the newest one is always shown
    gap = 3 * (COARSE_EVERY if table == "coarse" else 10)
    with_gaps: list[int] = []
    for at in times:
        if with_gaps and at - with_gaps[-1] > gap * step:
            with_gaps.append(with_gaps[-1] + 1)  # nobody looked: the line breaks here
        with_gaps.append(at)
    looked = set(times)
    lines = []
    for name in names:
        rows = _rows(db, table, prefix + name, since, until)
        starts = [at for at, _ in rows]
        values = tuple(
            rows[index - 1][1] if at in looked and (index := bisect_right(starts, at)) else None for at in with_gaps
        )
        lines.append(Line(name, values))
    return Chart(tuple(with_gaps), tuple(lines))


def _rows(db: sqlite3.Connection, table: str, name: str, since: int, until: int) -> list[tuple[int, float | None]]:
    """The rows of a series from the last one at or before `since` on."""
    found = db.execute("SELECT id FROM series WHERE name = ?", (name,)).fetchone()
    if found is None:
        return []
    begin = db.execute(f"SELECT max(t) FROM {table} WHERE series = ? AND t <= ?", (found[0], since)).fetchone()[0]
    return db.execute(
        f"SELECT t, v FROM {table} WHERE series = ? AND t >= ? AND t <= ? ORDER BY t",
        (found[0], begin if begin is not None else since, until),
    ).fetchall()


def _prune(db: sqlite3.Connection, table: str, cut: int) -> None:
    """Drop what is older, except the value that each series had at that time."""
    db.execute(
        f"DELETE FROM {table} WHERE t < ? AND EXISTS (SELECT 1 FROM {table} AS later "
        f"WHERE later.series = {table}.series AND later.t > {table}.t AND later.t <= ?)",
        (cut, cut),
    )
    # The last word on a series that ended before.
    db.execute(f"DELETE FROM {table} WHERE t < ? AND v IS NULL", (cut,))
    if table == "coarse":
        db.execute(
            "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM coarse WHERE series = id) "
            "AND NOT EXISTS (SELECT 1 FROM fine WHERE series = id)"
        )
