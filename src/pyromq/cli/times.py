"""Times as people type and read them; `pyromq.admin.times` says how they may be typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.admin.times import FORMS, parse_time

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["FORMS", "parse_time", "show_time", "show_time_for_programs"]


def show_time(when: datetime) -> str:
    """Local time to the millisecond, with its offset."""
    return when.astimezone().isoformat(sep=" ", timespec="milliseconds")


def show_time_for_programs(when: datetime) -> str:
    return when.astimezone().isoformat(timespec="milliseconds")
