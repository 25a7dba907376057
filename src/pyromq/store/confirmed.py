"""Confirmed: how much of the log readers may see (docs/spec/controller.md 7).

In a group that fails over, the end of the log may still be cut off: until all members of the in-sync set have a
message, another of them may become master without it. So nobody reads, and nothing is delivered, beyond the confirm
offset. Queue entries are made when messages are stored, as always; a ceiling hides them until the confirm offset has
passed them.

Without a limit, as in all other brokers, this costs nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .queues.queue_entries import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .queues.consume_queue import ConsumeQueue
    from .queues.consume_queues import ConsumeQueues


class Confirmed:
    """The limit for readers. `offset` is where the records end that they may see; None if they may see all."""

    def __init__(self, queues: ConsumeQueues) -> None:
        self._queues = queues
        self.offset: int | None = None
        # Where the log ended after a write, and how far its queues reached then; oldest first.
        self._hidden: deque[tuple[int, list[tuple[ConsumeQueue, int]]]] = deque()

    def limit(self, offset: int, log_end: int) -> None:
        """From now on readers see only records that end at or before `offset`, and those that `reach` shows them."""
        self.offset = offset
        self._hidden.clear()
        hidden = []
        for queue in self._queues:
            queue.ceiling = UNLIMITED
            if queue.max_physical > offset:
                queue.ceiling = queue.reaching(offset)
                hidden.append((queue, int(queue.next_offset)))
            else:
                queue.ceiling = int(queue.next_offset)
        if hidden:
            self._hidden.append((log_end, hidden))
        self._queues.ceiling_of_new = 0

    def written(self, queues: Iterable[ConsumeQueue], end: int) -> None:
        """These queues got entries, for records up to `end`."""
        self._hidden.append((end, [(queue, int(queue.next_offset)) for queue in queues]))

    def reach(self, offset: int) -> list[ConsumeQueue]:
        """Let readers see up to `offset`; never less than before. Gives the queues that they see more of.

        What was written together is shown together, once `offset` has passed all of it: where a slave got stuck within
        a record, or a turn, nothing ends.
        """
        if self.offset is None or offset <= self.offset:
            return []
        shown: dict[ConsumeQueue, None] = {}
        while self._hidden and self._hidden[0][0] <= offset:
            end, queues = self._hidden.popleft()
            self.offset = max(self.offset, end)
            for queue, next_offset in queues:
                queue.ceiling = next_offset
                shown[queue] = None
        if not self._hidden:
            self.offset = offset
        return list(shown)

    def lift(self) -> list[ConsumeQueue]:
        """Let readers see everything, for good. Gives the queues that they see more of."""
        if self.offset is None:
            return []
        self.offset = None
        self._hidden.clear()
        self._queues.ceiling_of_new = UNLIMITED
        shown = [queue for queue in self._queues if queue.ceiling < queue.next_offset]
        for queue in self._queues:
            queue.ceiling = UNLIMITED
        return shown
