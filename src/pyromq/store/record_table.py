"""Many messages of a queue at once: where they lie, and their properties.

A pull may look at hundreds of messages, to send a few of them or all. Nearly all look alike: version 1, IPv4 hosts,
whole, in one file. numpy tests those together: 0.1 µs a message, where a loop over entries takes 0.5 and
`protocol.record` another 0.3 for the properties. All others are left to the general path: this module knows no errors.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq.protocol import sysflag
from pyromq.protocol.properties import ITEM_SEPARATOR
from pyromq.protocol.record import HEAD_LAYOUTS, LENGTHS_SIZE_V1, MAGIC_V1, MAX_TOPIC_LENGTH, MIN_RECORD_SIZE

from .format import ENTRY_LAYOUT, PRE_BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ENTRY = ENTRY_LAYOUT.dtype()
# The fields needed from a head of version 1 with IPv4 hosts.
_HEAD = HEAD_LAYOUTS[0].dtype("total_size", "magic", "physical_offset", "sys_flag", "body_length")
_MAX_TOPIC = MAX_TOPIC_LENGTH[MAGIC_V1]
_MAX_WIDTH = 1024  # bytes of a row; messages with longer properties are tested one by one
ROOM_BEHIND = 40
SEPARATOR = ord(ITEM_SEPARATOR)


class RecordTable:
    """The messages of some queue entries, by number, as far as they lie in one file of the log.

    `view` shows the file up to its byte `end`, where the log ends if not the file; `start` is its place in the log.
    """

    def __init__(self, entries: bytes, view: memoryview, start: int, end: int) -> None:
        table = np.frombuffer(entries, _ENTRY)
        self._view = view
        self._file_start = start
        self._end = end
        self._sizes = table["size"].astype(np.int64)
        self._starts = table["physical_offset"] - start
        self._ends = self._starts + self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def start_of(self, number: int) -> int:
        """Where a message begins in the file."""
        return int(self._starts[number])

    def is_passed_over(self, number: int) -> bool:
        """Whether a reader skips an entry because it stands for no message."""
        return bool(self._sizes[number] == PRE_BLANK_SIZE or self._starts[number] < -self._file_start)

    def are_alike(self, first: int, end: int, recent_from: int, is_recent: bool) -> bool:
        """Whether all of these begin at or after a place in the file, or none does."""
        if recent_from <= 0:
            return True
        starts = self._starts[first:end]
        return bool(starts.min() >= recent_from if is_recent else starts.max() < recent_from)

    def fitting(self, most: int, most_bytes: int) -> int:
        """How many of the first messages fit into these limits; at least one."""
        return int(np.searchsorted(np.cumsum(self._sizes[:most]), most_bytes, "right")) or 1

    def runs(self, count: int) -> list[memoryview] | None:
        """The first messages as slices, adjacent ones joined; None if one needs the general path."""
        starts, ends = self._starts[:count], self._ends[:count]
        gaps = starts[1:] - ends[:-1]
        if self._heads(0, count) is None or (gaps < 0).any():
            return None
        borders = gaps.nonzero()[0]
        begins = starts[np.append(0, borders + 1)].tolist()
        view = self._view
        return [view[a:b] for a, b in zip(begins, ends[np.append(borders, count - 1)].tolist(), strict=True)]

    def slices(self, which: slice | NDArray[np.intp]) -> list[memoryview]:
        """Some messages, one slice each."""
        view = self._view
        return [view[a:b] for a, b in zip(self._starts[which].tolist(), self._ends[which].tolist(), strict=True)]

    def chosen(
        self, first: int, answers: Sequence[bool], had: tuple[int, int], most: tuple[int, int]
    ) -> tuple[list[memoryview], int]:
        """The messages from `first` on whose answer is True, as many as fit; and the first that did not fit.

        Room is checked before the answer, so an unwanted message can end it, too. `had` is how
        many messages and bytes there are already, `most` how many there may be.
        """
        stop, room = first + len(answers), most[0] - had[0]
        numbers = list(compress(range(first, stop), answers))
        if len(numbers) >= room:
            stop, numbers = numbers[room - 1] + 1, numbers[:room]
        slices = self.slices(np.array(numbers, np.intp))
        sizes = self._sizes[first:stop]
        if had[1] + sum(map(len, slices)) + int(sizes.max()) <= most[1]:
            return slices, stop
        count, size = had
        taken = 0
        for number, own in enumerate(sizes.tolist(), first):
            if count + taken and size + own > most[1]:
                return slices[:taken], number
            if taken < len(numbers) and numbers[taken] == number:
                taken += 1
                size += own
        return slices, stop

    def properties(self, first: int, end: int) -> PropertiesTable | None:
        """The properties of some messages; None if one needs the general path."""
        view = self._view
        heads = self._heads(first, end)
        if heads is None:
            return None
        starts, ends = self._starts[first:end], self._ends[first:end]
        octets = np.frombuffer(view, np.uint8)
        body_sizes = heads["body_length"].astype(np.int64)
        topics_at = starts + body_sizes + _HEAD.itemsize
        good = heads["sys_flag"] & sysflag.HOSTS_MASK == 0
        good &= (body_sizes >= 0) & (topics_at + LENGTHS_SIZE_V1 <= ends)
        if not good.all():
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
        if width > _MAX_WIDTH or int(begins.max()) - 1 + width > len(view):
            return None
        rows = _windows(view, width)[begins - 1].view(np.uint8).reshape(-1, width)
        rows[:, 0] = SEPARATOR
        numbers = np.arange(len(rows))
        rows[numbers, lengths + 1] = SEPARATOR
        rows[numbers, lengths + 2] = 0
        return PropertiesTable(rows, lengths)

    def _heads(self, first: int, end: int) -> NDArray[np.void] | None:
        """The heads of some messages; None if one does not match its entry."""
        starts, sizes = self._starts[first:end], self._sizes[first:end]
        inside = (starts >= 0) & (starts <= self._end) & (sizes >= MIN_RECORD_SIZE)
        inside &= self._ends[first:end] <= self._end
        if not inside.all():
            return None
        heads: NDArray[np.void] = _windows(self._view, _HEAD.itemsize)[starts].view(_HEAD)
        good = (heads["total_size"] == sizes) & (heads["magic"] == MAGIC_V1)
        good &= heads["physical_offset"] == starts + self._file_start
        return heads if good.all() else None


class PropertiesTable(NamedTuple):
    """The properties of many messages, a row for each: a separator, the properties, a separator, a zero, and anything.

    At least `ROOM_BEHIND` bytes follow the second separator.
    """

    rows: NDArray[np.uint8]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)

    def of(self, number: int) -> bytes:
        """The properties of one message, after a separator."""
        return self.rows[number, : self.lengths[number] + 1].tobytes()


def _windows(view: memoryview, size: int) -> NDArray[np.void]:
    """Overlapping windows of this many bytes, one for each byte of a file. Only those asked for are copied."""
    return np.ndarray((len(view) - size + 1,), f"V{size}", view, 0, (1,))
