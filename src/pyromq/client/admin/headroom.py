"""How long an archive of the lake may still take: what the doctor and the archive themselves warn of.

A broker deletes messages after a while (`fileReservedTime`). The headroom is what is left of that time for the oldest
message that is not archived yet. At the usual 72 hours it is time to look at less than 24, and late at less than 6; a
broker that keeps messages for a shorter time gets the same thirds and twelfths.
"""

from __future__ import annotations

from enum import StrEnum

WARN_BELOW = 24 * 3600.0
ERROR_BELOW = 6 * 3600.0


class Alarm(StrEnum):
    NONE = "none"
    WARN = "warn"
    ERROR = "error"


def alarm(headroom: float, retention: float) -> Alarm:
    """How urgent it is that an archive gets on, from seconds that are left and seconds that messages are kept."""
    if headroom <= 0 or headroom < min(ERROR_BELOW, retention / 12):
        return Alarm.ERROR
    return Alarm.WARN if headroom < min(WARN_BELOW, retention / 3) else Alarm.NONE


def duration(seconds: float) -> str:
    """`2 d 3 h`, `3 h 5 min`, `5 min`, `12 s`"""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{rest} s"
