"""The result of reading a queue."""

from __future__ import annotations

from enum import Enum

import msgspec

from .format import QueueOffset  # noqa: TC001  # msgspec reads the annotations


class GetStatus(Enum):
    """How reading a queue went, by RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct, frozen=True):
    """What a read found. `slices` are views of the commit log, in order; together they are the records."""

    status: GetStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    slices: list[memoryview] = []
    count: int = 0
    size: int = 0
    suggest_slave: bool = False
    is_fast: bool = False  # found by the fast path
