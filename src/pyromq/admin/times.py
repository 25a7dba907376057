"""Times as people type them.

    now · 1768867200000 (ms since 1970) · 2026-01-31T12:00:00+01:00 · -15m, -1h30m · 2026-01-31#12:00:00:000

The last one is RocketMQ's own form. A time without an offset is local time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from pyromq.errors import ConfigError

FORMS = "now, ms since 1970, ISO 8601, -15m, or yyyy-MM-dd#HH:mm:ss:SSS"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLIS = re.compile(r"\d{1,15}", re.ASCII)
_SPAN = re.compile(r"-((?:\d{1,9}(?:ms|[smhdw]))+)", re.ASCII)
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_CLASSIC = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_time(text: str, now: datetime) -> datetime:
    """The time that `text` stands for, as of `now`, with its offset. Raises ConfigError."""
    text = text.strip()
    try:
        return _parsed(text, now)
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is not a time; use {FORMS}") from None


def _parsed(text: str, now: datetime) -> datetime:
    if text == "now":
        return now
    if _MILLIS.fullmatch(text):
        return (_EPOCH + timedelta(milliseconds=int(text))).astimezone()
    if span := _SPAN.fullmatch(text):
        return now - timedelta(seconds=sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(span[1])))
    if classic := _CLASSIC.fullmatch(text):
        text = f"{classic[1]}T{classic[2]}.{classic[3]}"
    when = datetime.fromisoformat(text)
    return when if when.tzinfo else when.astimezone()
