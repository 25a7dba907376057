"""Convert between datetimes and milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyromq.errors import LocalProtocolError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_millis(when: datetime) -> int:
    """Raises LocalProtocolError for a time without a zone: brokers and people may be in different ones."""
    if when.tzinfo is None:
        raise LocalProtocolError(f"the time {when} needs a time zone")
    return (when - EPOCH) // _MILLISECOND


def from_millis(millis: int) -> datetime | None:
    """None for values that are not a time: 0, negative ones, and those beyond any calendar."""
    if millis <= 0:
        return None
    try:
        return EPOCH + millis * _MILLISECOND
    except OverflowError:
        return None
