"""What the parts of a check have to know of each other."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .findings import Report

NEVER = 2**63  # an offset behind every log


class Damage:
    """Stretches of the log that cannot be read. They were reported; what misses because of them is no news."""

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
    log_start: int = 0  # messages before it are gone, or not looked at
    redone_from: int = NEVER  # after a crash the next start makes entries anew from here on: none of them is lost
    is_quick: bool = False  # only the end of the log is read: messages that are not in it may exist
    learns_delays: bool = False  # what the levels of delayed messages mean was not told; the queues tell it
    is_deleted: Callable[[str], bool] = lambda topic: False  # a topic whose messages are in the log, without entries

    @property
    def is_crashed(self) -> bool:
        """The last stop was none, so what lies at the ends may be torn or missing until the next start."""
        return self.redone_from != NEVER
