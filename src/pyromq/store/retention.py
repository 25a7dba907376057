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
    # This many expired files stay because something in them is not archived yet; or, if the disk is too full for that,
    # this many of those to delete are not.
    unarchived: int = 0


def plan_cleaning(
    config: StoreConfig,
    log_used: Sequence[float],
    root_used: float,
    segments: Sequence[Segment],
    now: float,
    by_operator: bool = False,
    *,
    archived: int | None = None,
) -> CleaningPlan:
    """Decide, from how full the disks are (0 to 1, negative if unknown) and how old the files.

    Of several disks for the log the least full one counts: that is where the next file can go. A file is as old as its
    last change. The newest one always stays, and files go in order: the first that stays keeps all behind it.

    Files with something from `archived` on stay, too, as long as the disk is not so full that any file may go. None if
    nobody archives.
    """
    fullest = round(100 * max(min(log_used), root_used))
    unknown = min(*log_used, root_used) < 0
    disk_full = fullest > config.disk_warning
    no_room = fullest > config.disk_clean_forcibly
    forced = no_room and config.clean_forcibly
    old = segments[:-1] if forced else _expired(segments, config.reserved_hours, now)
    done = len(old) if archived is None else sum(segment.end <= archived for segment in old)
    may_go = len(old) if no_room else done
    if by_operator:
        reason = "by an operator"
    elif no_room:
        reason = f"disk {fullest} % full"
    elif fullest > config.disk_max_used or unknown:
        reason = f"disk {fullest} % full, expired files only"
    elif _is_time(config.delete_when, now):
        reason = f"expired, hour {config.delete_when}"
    else:
        reason, may_go = "", 0
    count = min(may_go, config.delete_batch)
    unarchived = max(count - done, 0) if no_room else len(old) - done
    return CleaningPlan(count, reason, disk_full, not no_room, unarchived)


def _expired(segments: Sequence[Segment], hours: int, now: float) -> Sequence[Segment]:
    """The oldest files, up to the first that is too young, or is the newest."""
    for count, segment in enumerate(segments[:-1]):
        if _last_change(segment) + hours * 3600 > now:
            return segments[:count]
    return segments[:-1]


def _last_change(segment: Segment) -> float:
    try:
        return segment.path.stat().st_mtime
    except OSError:  # it was removed meanwhile, so it need not be kept
        return 0.0


def _is_time(delete_when: str, now: float) -> bool:
    hour = time.localtime(now).tm_hour
    return any(part.strip().isdecimal() and int(part) == hour for part in delete_when.split(";"))
