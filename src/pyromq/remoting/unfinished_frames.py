"""How much of frames that have not ended yet the connections of a server may hold together. Decides; they close.

Every connection may have a frame under way, and what has arrived of it is kept. Each is bounded by the largest frame,
all of them together by this. When they hold too much, one of those that hold at least half of an equal share is
closed: the one that has been silent for longest. So a peer that goes on sending a message of usual size is not the
one who pays for others that began large frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection


class UnfinishedFrames:
    """The bytes that wait for the rest of their frame, by connection."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        # In the order in which they last sent something.
        self._held: dict[Connection, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def holds(self, connection: Connection, size: int) -> None:
        """`connection` has just sent something, and holds `size` bytes now."""
        self.total += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size

    def surplus(self) -> Connection | None:
        """Who must be closed, if all hold too much."""
        if self.total <= self.limit:
            return None
        share = self.total / len(self._held)
        return next(each for each, held in self._held.items() if held >= share / 2)

    def forget(self, connection: Connection) -> None:
        self.total -= self._held.pop(connection, 0)
