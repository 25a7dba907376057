"""Who did what, and whether it was allowed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from ..access.roles import Visitor
    from .database import Database

logger = logging.getLogger(__name__)

_KEPT = 100_000
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `outcome` is done, failed or refused."""

    id: int
    at: float
    user: str
    address: str
    cluster: str
    action: str
    target: str
    outcome: str
    detail: str


class Audit:
    """The last hundred thousand changes and refusals; each is also a line in the log."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(
        self, who: Visitor, action: str, target: str, outcome: str, *, cluster: str = "", detail: str = ""
    ) -> None:
        row = tuple(text[:_LONGEST] for text in (who.name, who.address, cluster, action, target, outcome, detail))
        logger.info("%s by %s from %s: %s %s %s", outcome, who.name, who.address, action, target, detail)

        def write(db: sqlite3.Connection) -> None:
            columns = "t, user, address, cluster, action, target, outcome, detail"
            cursor = db.execute(f"INSERT INTO audit ({columns}) VALUES (?,?,?,?,?,?,?,?)", (self._clock(), *row))
            last = cursor.lastrowid or 0
            if last % 1000 == 0:
                db.execute("DELETE FROM audit WHERE id <= ?", (last - _KEPT,))

        await self._database.run(write)

    async def entries(self, *, text: str = "", before: int | None = None, limit: int = 100) -> list[Entry]:
        """Newest first; those in which `text` occurs, and older than the entry `before`."""

        def read(db: sqlite3.Connection) -> list[Entry]:
            rows = db.execute(
                "SELECT id, t, user, address, cluster, action, target, outcome, detail FROM audit WHERE id < ? "
                "AND instr(lower(user || ' ' || address || ' ' || action || ' ' || target || ' ' || outcome || ' ' || "
                "detail), lower(?)) ORDER BY id DESC LIMIT ?",
                (before if before is not None else 2**62, text, limit),
            )
            return [Entry(*row) for row in rows]

        return await self._database.run(read)
