"""Times in options: ISO 8601, as people write them, or milliseconds, as brokers count them.

Spark itself turns a timestamp into seconds when it becomes a number, so these are a likely mistake. As milliseconds
they would be in January 1970, and a read would silently begin at the beginning.
"""

from __future__ import annotations

from datetime import UTC, datetime

TIME_FORMS = "a time such as 2026-01-31, 2026-01-31T08:00:00Z or 1769846400000 (ms since 1970)"

_MOST = 2**63 - 1
# Numbers that can only be meant as another unit: seconds since 1970-04-26, microseconds, and dates such as 20260131.
_SECONDS = range(10_000_000, 100_000_000_000)
_MICROSECONDS = 100_000_000_000_000


def moment(value: str) -> int:
    """Milliseconds since 1970. A time without an offset is local time. ValueError says what was expected."""
    if value.isascii() and value.isdecimal() and len(value) <= 19:
        return _milliseconds(int(value))
    try:
        when = datetime.fromisoformat(value)
        ms = int((when if when.tzinfo else when.astimezone()).timestamp() * 1_000_000) // 1000
    except (ValueError, OverflowError, OSError):
        raise ValueError(TIME_FORMS) from None
    if ms < 0:
        raise ValueError("a time after 1970")
    return ms


def shown(ms: int) -> str:
    """A time as errors show it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _milliseconds(value: int) -> int:
    if value in _SECONDS:
        if len(str(value)) == 8:
            raise ValueError("in milliseconds (dates are written as 2026-01-31)")
        raise ValueError(f"in milliseconds, and this looks like seconds; {value * 1000} is {shown(value * 1000)}")
    if value >= _MICROSECONDS:
        if value > _MOST or value // 1000 >= _MICROSECONDS:
            raise ValueError(TIME_FORMS)
        raise ValueError(
            f"in milliseconds, and this looks like microseconds; {value // 1000} is {shown(value // 1000)}"
        )
    return value
