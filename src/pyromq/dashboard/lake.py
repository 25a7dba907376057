"""The lake, as the dashboard sees it: archived topics, or why there are none to show.

The command that starts a dashboard knows how to read tables, and gives it `read`; so this package needs neither pyarrow
nor Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Commit:
    """A line of a table's history: what was done, and how many messages that added."""

    version: int
    time: datetime
    operation: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic in the lake. `behind` messages are not archived yet, and `headroom` is the time in seconds until brokers
    may delete the first of them; `lost` were deleted before. None if brokers did not answer. `gaps` are stretches of
    queues that are missing in the table.
    """

    topic: str
    table: str
    format: str
    messages: int
    behind: int | None
    headroom: float | None
    lost: int | None
    gaps: int
    last_commit: datetime | None
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeState:
    """What the page shows, or `reason` why there is nothing."""

    place: str | None
    topics: tuple[ArchivedTopic, ...] = ()
    reason: str = ""


NOT_SET = "No lake is set up. Start the dashboard with --lake and the folder or address of its tables."
NOT_INSTALLED = "The lake's packages are not installed: pip install 'pyromq[lake]'"


def lake_state(place: str | None, read: Callable[[str], Sequence[ArchivedTopic]] | None) -> LakeState:
    """Reads the tables now, which may take a moment."""
    if place is None:
        return LakeState(None, reason=NOT_SET)
    if read is None:
        return LakeState(place, reason=NOT_INSTALLED)
    try:
        return LakeState(place, tuple(read(place)))
    except (PyroMQError, OSError) as exc:
        return LakeState(place, reason=f"{exc}")
