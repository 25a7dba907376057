"""Many messages of a queue at once: where they lie, and what properties they have.

A pull may look at hundreds of messages, to send a few of them or all. Nearly all look alike: version 1, hosts of IPv4,
whole, in one file. Those numpy tests together: 0.1 µs a message, where a loop over entries takes 0.5 and
`protocol.record` another 0.3 for the properties. Whatever is unusual, or wrong, is left to the loop: this module knows
no errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq.protocol import sysflag
from pyromq.protocol.record import HEAD_LAYOUTS, LENGTHS_SIZE_V1, MAGIC_V1, MAX_TOPIC_LENGTH, MIN_RECORD_SIZE

from .format import ENTRY_LAYOUT

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENTRY = ENTRY_LAYOUT.dtype()
# The fields that are wanted of a head of version 1 with hosts of IPv4.
_HEAD = HEAD_LAYOUTS[0].dtype("total_size", "magic", "physical_offset", "sys_flag", "body_length")
_MAX_TOPIC = MAX_TOPIC_LENGTH[MAGIC_V1]
_MAX_WIDTH = 1024  # bytes of a row; messages with longer properties are tested one by one
ROOM_BEHIND = 40
SEPARATOR = 2  # between properties


class Lot:
    """The messages of a queue that some entries name, from the first on as far as they lie in one file of the log.

    `view` shows the file up to its byte `end`, where the log ends if not the file; `start` is its place in the log.
    """

    def __init__(self, entries: bytes, view: memoryview, start: int, end: int) -> None:
        table = np.frombuffer(entries, _ENTRY)
        self._view = view
        self._file_start = start
        self._starts = table["physical_offset"] - start
        self._sizes = table["size"].astype(np.int64)
        self._ends = self._starts + self._sizes
        inside = (self._starts >= 0) & (self._sizes >= MIN_RECORD_SIZE) & (self._ends <= end)
        self._count = len(inside) if inside.all() else int(inside.argmin())

    def __len__(self) -> int:
        return self._count

    def place(self, number: int) -> tuple[int, int]:
        """Where in the file a message begins and ends."""
        return self._starts.item(number), self._ends.item(number)

    def runs(self, most: int, most_bytes: int) -> tuple[int, list[memoryview]] | None:
        """The first of them, so many at most and so many bytes unless it is one: how many, those side by side together.

        None if one of these is no usual record, or if there are more that do not lie in this file.
        """
        count = int(np.searchsorted(np.cumsum(self._sizes[: min(most, self._count)]), most_bytes, "right")) or 1
        is_all = count < self._count or count == most or self._count == len(self._starts)
        if not self._count or not is_all or not self._are_records(0, count, self._heads(0, count)):
            return None
        starts, ends = self._starts[:count], self._ends[:count]
        gaps = starts[1:] - ends[:-1]
        borders = gaps.nonzero()[0]
        if (gaps < 0).any():
            return None
        begins = starts[np.append(0, borders + 1)].tolist()
        view = self._view
        return count, [view[a:b] for a, b in zip(begins, ends[np.append(borders, count - 1)].tolist(), strict=True)]

    def properties(self, first: int, end: int) -> PropertiesTable | None:
        """The properties of some of them; None if one of these is no usual record."""
        view = self._view
        starts, ends = self._starts[first:end], self._ends[first:end]
        octets = np.frombuffer(view, np.uint8)
        heads = self._heads(first, end)
        body_sizes = heads["body_length"].astype(np.int64)
        topics_at = starts + body_sizes + _HEAD.itemsize
        good = heads["sys_flag"] & sysflag.HOSTS_MASK == 0
        good &= (body_sizes >= 0) & (topics_at + LENGTHS_SIZE_V1 <= ends)
        if not good.all() or not self._are_records(first, end, heads):
            return None
        topic_sizes = octets[topics_at]
        begins = topics_at + topic_sizes + LENGTHS_SIZE_V1
        lengths = ends - begins
        good = (topic_sizes <= _MAX_TOPIC) & (lengths >= 0)
        if not good.all():
            return None
        if not (octets[begins - 2].astype(np.int64) << 8 | octets[begins - 1] == lengths).all():
            return None
        width = (int(lengths.max()) + 2 + ROOM_BEHIND + 7) & ~7
        if width > _MAX_WIDTH or int(begins[-1]) - 1 + width > len(view):
            return None
        rows = _windows(view, width)[begins - 1].view(np.uint8).reshape(-1, width)
        rows[:, 0] = SEPARATOR
        numbers = np.arange(len(rows))
        rows[numbers, lengths + 1] = SEPARATOR
        rows[numbers, lengths + 2] = 0
        return PropertiesTable(rows, lengths)

    def _heads(self, first: int, end: int) -> NDArray[np.void]:
        heads: NDArray[np.void] = _windows(self._view, _HEAD.itemsize)[self._starts[first:end]].view(_HEAD)
        return heads

    def _are_records(self, first: int, end: int, heads: NDArray[np.void]) -> bool:
        """Whether there are records of version 1 where the entries say so, and as long as these say."""
        good = (heads["total_size"] == self._sizes[first:end]) & (heads["magic"] == MAGIC_V1)
        good &= heads["physical_offset"] == self._starts[first:end] + self._file_start
        return bool(good.all())


class PropertiesTable(NamedTuple):
    """The properties of many messages, a row for each: a separator, the properties, a separator, a zero, and anything.

    Behind the second separator there are at least `ROOM_BEHIND` bytes more.
    """

    rows: NDArray[np.uint8]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)

    def of(self, number: int) -> bytes:
        """The properties of one of them, behind a separator."""
        return self.rows[number, : self.lengths[number] + 1].tobytes()


def _windows(view: memoryview, size: int) -> NDArray[np.void]:
    """So many bytes from each byte of a file on, overlapping the next. Only those are copied that are asked for."""
    return np.ndarray((len(view) - size + 1,), f"V{size}", view, 0, (1,))
