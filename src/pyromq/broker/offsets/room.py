"""Limits how many offsets clients may commit. A queue id is any number, so topics and groups alone set no limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyromq.errors import ServerError

if TYPE_CHECKING:
    from ..config import LiveConfig
    from .consumer_offsets import ConsumerOffsets

# Seconds between two counts of a full table, which notice what was deleted meanwhile.
_COUNT_AGAIN = 10.0


class OffsetRoom:
    """Refuses offsets of new groups and queues once there are too many. Existing offsets can still move.

    Counting takes time proportional to topics and groups, so it is done rarely, and new commits are added to it.
    """

    def __init__(self, live: LiveConfig, offsets: ConsumerOffsets) -> None:
        self._live = live
        self._offsets = offsets
        self._count = 0
        self._counted_at: float | None = None

    def check(self, group: str, topic: str, queue_id: int) -> None:
        """Call it before committing a client's offset. ServerError if there is no room."""
        if not self.takes(group, topic, queue_id):
            limit = self._live.config.max_consumer_offsets
            raise ServerError(f"offset not committed: there are {limit} or more already (maxConsumerOffsets)")

    def takes(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a client's offset may be committed; it counts from now on."""
        if self._offsets.knows(group, topic, queue_id):
            return True
        limit = self._live.config.max_consumer_offsets
        now = time.monotonic()
        if self._counted_at is None or (self._count >= limit and now - self._counted_at > _COUNT_AGAIN):
            self._count = len(self._offsets)
            self._counted_at = now
        if self._count >= limit:
            return False
        self._count += 1
        return True
