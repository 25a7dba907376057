"""Where archived topics are: the seam to the lake.

The page asks `lake_state`. Today it only says why there is nothing to show: the reader of the lake's tables belongs to
`pyromq.spark`, and is given to a dashboard as `read` by the command that starts it, so that this package needs neither
Spark nor pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic in the lake. `headroom` is how many seconds are left until brokers delete what is not archived yet.

    `gaps` are messages that the brokers deleted before they were archived.
    """

    topic: str
    table: str
    messages: int | None
    behind: int | None
    headroom: float | None
    gaps: int
    last_commit: datetime | None
    commits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeState:
    """What the page shows, or `reason` why there is nothing."""

    place: str | None
    topics: tuple[ArchivedTopic, ...] = ()
    reason: str = ""


NOT_SET = "No lake is set up. Start the dashboard with --lake and the folder or address of its tables."
NOT_INSTALLED = "The lake's packages are not installed: pip install 'pyromq[lake]'"


def lake_state(place: str | None, read: Callable[[str], Sequence[ArchivedTopic]] | None) -> LakeState:
    if place is None:
        return LakeState(None, reason=NOT_SET)
    if read is None:
        return LakeState(place, reason=NOT_INSTALLED)
    return LakeState(place, tuple(read(place)))
