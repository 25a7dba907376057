"""How far the lake's archives are, as they report it by committing offsets as groups of their own.

    CID_RMQ_SYS_LAKE_<lake> -> topic -> queue id -> the first offset that is not in that lake yet

With `archiveBeforeDelete` the clean-up stops where the first of all messages lies that some archive lacks. A topic that
no archive ever reported holds nothing up; in one that is archived, a queue without a position counts as not archived at
all. As long as there is no report of any kind, nothing counts as archived.

Offsets are kept in a file and copied by slaves, so this holds after a restart and a fail-over, too.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import OffsetOutOfRange
from pyromq.protocol.names import ARCHIVE_GROUP_PREFIX
from pyromq.protocol.record import store_timestamp_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .consumer_offsets import ConsumerOffsets

_STEP = 0.004  # seconds; the loop has other things to do


@dataclass(frozen=True, slots=True)
class Missing:
    """The first message in the log that an archive lacks."""

    physical: int
    topic: str
    queue_id: int
    archive: str  # the group that stands for it


class Archives:
    """Looks at what archives reported, and lets the store know up to where its files may go."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, clock: Callable[[], int]) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._known = 0  # archives that ever reported
        self._missing: Missing | None = None

    async def look(self) -> None:
        """Find the first message that is not archived; with ten thousand queues that takes a few turns of the loop."""
        groups = [group for group in self._offsets.groups() if group.startswith(ARCHIVE_GROUP_PREFIX)]
        end = self._store.log.end
        first: Missing | None = None
        positions = {group: self._positions(group) for group in groups}
        if any(positions.values()):
            queues = list(self._store.queues)
            until = time.perf_counter() + _STEP
            for at in range(0, len(queues), 100):
                find = self._store.queues.find  # queues may have been deleted meanwhile
                there = [queue for queue in queues[at : at + 100] if find(queue.topic, queue.queue_id) is queue]
                first = _first(positions, there, first)
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + _STEP
        self._known, self._missing = len(groups), first
        self._store.archived = (end if first is None else first.physical) if groups else 0

    def _positions(self, group: str) -> dict[str, dict[int, int]]:
        return {topic: self._offsets.of(group, topic) for topic in self._offsets.topics_of(group)}

    def collect(self) -> dict[str, str]:
        """The keys of runtime info; none if archives are of no concern here. From the last clean-up round."""
        config = self._store.config
        if not self._known and not config.archive_before_delete:
            return {}
        held = self._store.kept_for_archive
        table = {
            "archiveBeforeDelete": str(config.archive_before_delete).lower(),
            "archives": str(self._known),
            "archivedPhysicalOffset": str(self._store.archived if self._known else -1),
            "archiveKeptFiles": str(held),
            "archiveKeptBytes": str(held * config.commit_log_file_size),
            "lakeRetentionSeconds": str(config.reserved_hours * 3600),
        }
        if self._known:
            table["lake_headroom_seconds"] = str(self._headroom())
        if self._missing is not None:
            missing = self._missing
            table["archiveBehind"] = f"{missing.topic} queue {missing.queue_id}"
            table["archiveBehindGroup"] = missing.archive
        return table

    def _headroom(self) -> int:
        """Seconds that are left of the time messages are kept for, for the oldest one that is not archived."""
        kept_for = self._store.config.reserved_hours * 3600
        if self._missing is None:
            return kept_for
        try:
            stored = store_timestamp_of(self._store.stored_at(self._missing.physical))
        except OffsetOutOfRange:  # it was deleted since the last round
            return 0
        return max(0, kept_for - max(0, self._clock() - stored) // 1000)


def _first(
    positions: Mapping[str, Mapping[str, Mapping[int, int]]], queues: Iterable[ConsumeQueue], first: Missing | None
) -> Missing | None:
    """The first message that lies before `first`, in one of these queues, and is not archived."""
    for queue in queues:
        for archive, topics in positions.items():
            known = topics.get(queue.topic)
            if known is None:
                continue
            position = known.get(queue.queue_id, 0)
            if position == queue.next_offset:
                continue
            # A position beyond the end is that of an earlier topic with this name.
            start = max(position, queue.min_offset) if position < queue.next_offset else queue.min_offset
            entry = queue.entry(queue.first_real(start))
            if entry is not None and (first is None or entry[0] < first.physical):
                first = Missing(entry[0], queue.topic, queue.queue_id, archive)
    return first
