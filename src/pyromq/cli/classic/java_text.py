"""Values as Java writes them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyromq.client.admin.times import EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


def front(text: str, size: int) -> str:
    """At most `size` characters, for columns of a fixed width."""
    return text[:size]


def _local(millis: int) -> datetime:
    return (EPOCH + timedelta(milliseconds=millis)).astimezone()


def seconds_text(millis: int) -> str:
    return _local(millis).strftime("%Y-%m-%d %H:%M:%S")


def millis_text(millis: int) -> str:
    return f"{seconds_text(millis)},{millis % 1000:03d}"


def map_text(table: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in table.items()) + "}"


def bool_text(value: bool) -> str:
    return "true" if value else "false"


def is_true(text: str | None, default: bool = False) -> bool:
    """Like Boolean.parseBoolean: anything but `true` is false."""
    return default if text is None else text.strip().lower() == "true"


def signed_bytes(body: bytes) -> str:
    return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in body) + "]"


def compact_time(millis: int) -> str:
    """`20260131120000123`: UtilAll.timeMillisToHumanString."""
    return f"{_local(millis):%Y%m%d%H%M%S}{millis % 1000:03d}"
