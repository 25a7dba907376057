"""Pop offsets: how far each group has popped, ahead of what it has committed.

A pop takes messages in the turn that serves it. The group's offset, which goes into a file, may follow only when the
checkpoints of what was taken are on disk: otherwise a power failure could skip messages, with no record that they
were handed out. Until then the offset is kept here. A crash loses it, and `caught_up` recovers it from the
checkpoints, so that popped messages are not popped a second time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..offsets.consumer_offsets import ConsumerOffsets
    from .records import Checkpoint

logger = logging.getLogger(__name__)


class QueueOfGroup(NamedTuple):
    """A queue, as a group sees it."""

    group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class _Ahead:
    offset: int
    committed: int | None  # at that time; if it differs now, the offset was reset


class PopOffsets:
    """The next offsets to pop, on top of the committed ones in `offsets`."""

    def __init__(self, offsets: ConsumerOffsets) -> None:
        self._offsets = offsets
        self._ahead: dict[QueueOfGroup, _Ahead] = {}

    def __len__(self) -> int:
        """Queues whose offset is not committed yet."""
        return len(self._ahead)

    def get(self, queue: QueueOfGroup) -> int | None:
        """The next offset to pop, or None if the group never popped there. A reset offset takes precedence."""
        committed = self._offsets.get(*queue)
        ahead = self._ahead.get(queue)
        if ahead is None:
            return committed
        if ahead.committed != committed:
            del self._ahead[queue]
            return committed
        return ahead.offset

    def move(self, queue: QueueOfGroup, offset: int) -> None:
        """The group has popped everything before `offset`."""
        ahead = self._ahead.get(queue)
        if ahead is None:
            self._ahead[queue] = _Ahead(offset, self._offsets.get(*queue))
        else:
            ahead.offset = offset

    def give_back(self, queue: QueueOfGroup, offset: int) -> None:
        """The messages from `offset` on were not handed out after all."""
        ahead = self._ahead.get(queue)
        if ahead is not None:
            ahead.offset = min(ahead.offset, offset)

    def commit(self, queue: QueueOfGroup, offset: int) -> None:
        """Commit an offset, even a lower one."""
        self._ahead.pop(queue, None)
        self._offsets.commit(*queue, offset)

    # Committing what is on disk

    def snapshot(self) -> dict[QueueOfGroup, int]:
        """The current offsets, for `settle` once the checkpoints written so far are on disk."""
        return {queue: ahead.offset for queue, ahead in self._ahead.items()}

    def settle(self, reached: dict[QueueOfGroup, int]) -> None:
        """Commit the offsets of a snapshot."""
        for queue, offset in reached.items():
            self.get(queue)  # forgets it if the offset was reset meanwhile
            ahead = self._ahead.get(queue)
            if ahead is None:
                continue
            # Some of it may have been given back.
            offset = min(offset, ahead.offset)
            self._offsets.commit(*queue, offset)
            if ahead.offset == offset:
                del self._ahead[queue]
            else:
                ahead.committed = offset

    def forget_topic(self, topic: str) -> None:
        self._ahead = {queue: ahead for queue, ahead in self._ahead.items() if queue.topic != topic}


def caught_up(offsets: ConsumerOffsets, checkpoints: Iterable[Checkpoint], saved_at: int) -> int:
    """After a crash: advance `offsets`, saved at `saved_at`, past `checkpoints`; returns how many were applied.

    These come in the order of their pops, from a while before `saved_at` on. Earlier ones may be known
    already or undone by a reset, so they count only if they continue where the group is; the same goes for single
    messages, which may be old ones whose time was changed.
    """
    followed = 0
    for checkpoint in checkpoints:
        queue = QueueOfGroup(checkpoint.group, checkpoint.topic, checkpoint.queue_id)
        known = offsets.get(*queue)
        end = max(checkpoint.offsets, default=-1) + 1
        if known is not None:
            must_join = checkpoint.pop_time <= saved_at or end == checkpoint.start_offset + 1
            if end <= known or (must_join and checkpoint.start_offset > known):
                continue
        offsets.commit(*queue, end)
        followed += 1
    return followed
