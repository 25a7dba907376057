"""What the parts of a check share."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .findings import Report

NEVER = 2**63  # an offset beyond every log


class Damage:
    """Unreadable stretches of the log, already reported; what is missing because of them is not reported again."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        number = bisect.bisect_right(self._starts, start)
        self._starts.insert(number, start)
        self._ends.insert(number, end)

    def covers(self, offset: int) -> bool:
        number = bisect.bisect_right(self._starts, offset) - 1
        return number >= 0 and offset < self._ends[number]

    def begins_between(self, start: int, end: int) -> bool:
        number = bisect.bisect_right(self._starts, start)
        return number < len(self._starts) and self._starts[number] < end


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The store around the part that is checked."""

    report: Report
    damage: Damage = field(default_factory=Damage)
    log_start: int = 0  # messages before it are gone, or not checked
    redone_from: int = NEVER  # after a crash the next start rebuilds entries from here on: none of them is lost
    is_quick: bool = False  # only the end of the log is read: messages before it may exist
    learns_delays: bool = False  # the delay levels are unknown and taken from the queues
    is_deleted: Callable[[str], bool] = lambda topic: False  # topics whose messages are in the log without entries

    @property
    def is_crashed(self) -> bool:
        """The store was not closed cleanly, so the ends may be torn or missing until the next start."""
        return self.redone_from != NEVER
