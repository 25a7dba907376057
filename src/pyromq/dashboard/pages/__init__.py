"""What each page shows and does."""

from __future__ import annotations

from . import (
    account,
    audit,
    brokers,
    dead_letters,
    groups,
    jobs,
    lake,
    message,
    messages,
    ops,
    overview,
    producers,
    security,
    topics,
    traces,
)

ENDPOINTS = [
    *overview.ENDPOINTS,
    *topics.ENDPOINTS,
    *groups.ENDPOINTS,
    *messages.ENDPOINTS,
    *message.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *brokers.ENDPOINTS,
    *producers.ENDPOINTS,
    *traces.ENDPOINTS,
    *jobs.ENDPOINTS,
    *audit.ENDPOINTS,
    *security.ENDPOINTS,
    *ops.ENDPOINTS,
    *lake.ENDPOINTS,
    *account.ENDPOINTS,
]

__all__ = ["ENDPOINTS"]
