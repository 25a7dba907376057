"""Retention: which commit log files to delete, and whether the disk is too full (docs/spec/store.md 10.1)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .config import StoreConfig
    from .segment import Segment


class CleaningPlan(NamedTuple):
    """What a clean-up round should do. At most one of the two flags is set; with neither, nothing changes."""

    delete: int  # this many of the oldest files
    reason: str
    disk_full: bool
    disk_recovered: bool


def plan_cleaning(
    config: StoreConfig,
    log_used: Sequence[float],
    root_used: float,
    segments: Sequence[Segment],
    now: float,
    by_operator: bool = False,
) -> CleaningPlan:
    """Decide, from how full the disks are (0 to 1, negative if unknown) and how old the files.

    Of several disks for the log the least full one counts: that is where the next file can go. A file is as old as its
    last change. The newest one always stays, and files go in order: the first that stays keeps all behind it.
    """
    fullest = round(100 * max(min(log_used), root_used))
    unknown = min(*log_used, root_used) < 0
    disk_full = fullest > config.disk_warning
    forced = fullest > config.disk_clean_forcibly and config.clean_forcibly
    if by_operator:
        reason = "by an operator"
    elif forced or fullest > config.disk_clean_forcibly:
        reason = f"disk {fullest} % full"
    elif fullest > config.disk_max_used or unknown:
        reason = f"disk {fullest} % full, expired files only"
    elif _is_time(config.delete_when, now):
        reason = f"expired, hour {config.delete_when}"
    else:
        return CleaningPlan(0, "", disk_full, fullest <= config.disk_clean_forcibly)
    count = 0
    for segment in segments[:-1][: config.delete_batch]:
        if not forced and _last_change(segment) + config.reserved_hours * 3600 > now:
            break
        count += 1
    return CleaningPlan(count, reason, disk_full, fullest <= config.disk_clean_forcibly)


def _last_change(segment: Segment) -> float:
    try:
        return segment.path.stat().st_mtime
    except OSError:  # it was removed meanwhile, so it need not be kept
        return 0.0


def _is_time(delete_when: str, now: float) -> bool:
    hour = time.localtime(now).tm_hour
    return any(part.strip().isdecimal() and int(part) == hour for part in delete_when.split(";"))
