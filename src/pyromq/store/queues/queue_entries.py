"""The entries of a consume queue in use: adding, writing and reading them.

Entries are added in memory, where readers find them at once, and go to the files page by page. Losing entries that were
not written costs only time: recovery rebuilds them from the commit log.

A store may have ten thousand queues, so a queue keeps no file open: `OpenFiles` lends descriptors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyromq.errors import StoreError
from pyromq.protocol.names import TIMED_TOPICS
from pyromq.protocol.record import MAGIC_V1, MAX_TOPIC_LENGTH, MIN_RECORD_SIZE, TOPIC_LENGTH

from .. import failpoints
from ..format import ENTRY, PRE_BLANK, PRE_BLANK_SIZE, QueueOffset, segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from ..open_files import OpenFiles
    from .consume_queue_ext import ConsumeQueueExt

SIZE = ENTRY.size
CHUNK = 1024  # entries per read when many are examined
UNLIMITED = 1 << 62  # a ceiling that no queue reaches

# Entries that stay in memory after writing, for consumers close behind.
_KEEP = 64 * SIZE


class QueueEntries:
    """The entries of one queue. The next message gets `next_offset`; readers see entries before `max_offset`.

    `add` makes an entry readable; `write_out` hands it to the system; syncing what `take_unsynced` returns makes it
    survive a power failure.
    """

    __slots__ = (
        "_files",
        "_folder",
        "_folder_changed",
        "_folder_name",
        "_segment_size",
        "_segments",
        "_tail_start",
        "_unsynced",
        "_written",
        "ceiling",
        "ext",
        "fixed_size",
        "has_fast_path",
        "is_schedule",
        "max_physical",
        "min_offset",
        "next_offset",
        "queue_id",
        "tail",
        "topic",
        "topic_field",
    )

    def __init__(self, topic: str, queue_id: int, folder: Path, segment_size: int, files: OpenFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._folder = folder
        self._folder_name = str(folder)
        self._segment_size = segment_size
        self._files = files
        self._segments: list[int] = []  # starts of the files, in order
        # Positions are bytes from entry 0. [_tail_start, end) is in memory; from _written on, only there.
        self.tail = bytearray()
        self._tail_start = 0
        self._written = 0
        self._unsynced: set[int] = set()
        self._folder_changed = False
        # Real tags codes of entries that hold an address instead; None if there were never any.
        self.ext: ConsumeQueueExt | None = None
        self.min_offset = QueueOffset(0)
        self.next_offset = QueueOffset(0)
        # Nobody reads from here on, see `Confirmed`.
        self.ceiling = UNLIMITED
        # The end of the newest record with an entry here.
        self.max_physical = 0
        # Entries here carry the delivery time instead of a tag.
        self.is_schedule = topic in TIMED_TOPICS
        # Topic with its length, as in a version 1 record.
        encoded = topic.encode()
        fits_v1 = len(encoded) <= MAX_TOPIC_LENGTH[MAGIC_V1]
        self.topic_field = TOPIC_LENGTH[MAGIC_V1].pack(len(encoded)) + encoded if fits_v1 else b""
        # Whether messages may take the fast path of `put`.
        self.has_fast_path = bool(self.topic_field) and not self.is_schedule
        self.fixed_size = MIN_RECORD_SIZE + len(encoded)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}/{self.queue_id} {self.min_offset}..{self.next_offset}>"

    @property
    def max_offset(self) -> QueueOffset:
        """Where readers end. Messages from here on do not exist for them, or not yet."""
        return self.next_offset if self.next_offset <= self.ceiling else QueueOffset(self.ceiling)

    # Adding

    def add(self, physical: int, size: int, tags_code: int) -> None:
        """Add the entry of the message that just got `next_offset`."""
        self.tail += ENTRY.pack(physical, size, tags_code)
        self.next_offset += 1  # type: ignore[assignment]  # still a queue offset
        self.max_physical = physical + size

    def add_all(self, entries: bytes, end: int) -> None:
        """Add the entries of the messages with the next offsets; the last one ends at `end` in the log."""
        self.tail += entries
        self.next_offset += len(entries) // SIZE  # type: ignore[assignment]  # still a queue offset
        self.max_physical = end

    def mark(self) -> tuple[int, int, int]:
        """Where the queue ends now, for `reset`."""
        return self.next_offset, len(self.tail), self.max_physical

    def reset(self, mark: tuple[int, int, int]) -> None:
        """Undo the entries added since `mark`, none of which was written out or read."""
        next_offset, tail_length, self.max_physical = mark
        del self.tail[tail_length:]
        self.next_offset = QueueOffset(next_offset)

    def _has_entries(self) -> bool:
        return bool(self._segments) or bool(self.tail)

    # Writing

    @property
    def _position(self) -> int:
        """Where the next entry goes."""
        return self._tail_start + len(self.tail)

    @property
    def dirty(self) -> int:
        """Bytes that are only in memory."""
        return self._position - self._written

    def write_out(self) -> None:
        """Hand all entries to the system. After an OSError, unwritten entries stay in memory and readable."""
        while self._written < (end := self._position):
            start = self._written - self._written % self._segment_size
            stop = min(end, start + self._segment_size)
            fd = self._descriptor(start)
            chunk = self.tail[self._written - self._tail_start : stop - self._tail_start]
            failpoints.hit("queue.write.before")
            self._files.disk.write(fd, chunk, self._written - start)
            failpoints.hit("queue.write.after")
            self._unsynced.add(start)
            self._written = stop
        surplus = len(self.tail) - _KEEP
        if surplus > 0:
            del self.tail[:surplus]
            self._tail_start += surplus

    def take_unsynced(self) -> list[Path]:
        """Files written since the last call, then folders in which files came or went.

        The caller syncs them, through any descriptor and in any thread.
        """
        paths = [self._path(start) for start in sorted(self._unsynced)]
        self._unsynced.clear()
        if self._folder_changed:
            self._folder_changed = False
            # Queue, topic, `consumequeue` and the root: all but the first are new at most once.
            paths += (self._folder, *self._folder.parents[:3])
        if self.ext is not None:
            paths += self.ext.take_unsynced()
        return paths

    def _descriptor(self, start: int) -> int:
        path = self._path(start)
        if self._segments and self._segments[-1] >= start:
            return self._files.get(path)
        fd = self._files.create(path, self._segment_size)
        failpoints.hit("queue.create")
        self._segments.append(start)
        self._folder_changed = True
        return fd

    def _path(self, start: int) -> Path:
        return self._folder / segment_name(start)

    # Reading

    def entries(self, offset: int, count: int) -> bytes:
        """Up to `count` entries from `offset` on, as bytes; never beyond `max_offset`, nor its file's end.

        StoreError if the file cannot be read.
        """
        position = offset * SIZE
        start = position - position % self._segment_size
        stop = min(position + count * SIZE, start + self._segment_size, self._position, self.ceiling * SIZE)
        if stop <= position:
            return b""
        if position >= self._tail_start:
            return bytes(self.tail[position - self._tail_start : stop - self._tail_start])
        if position < 0 or start not in self._segments:
            return b""
        in_file = min(stop, self._tail_start)
        try:
            # Not a Path: making one takes longer than reading the entries.
            fd = self._files.get(f"{self._folder_name}/{start:020d}")
            data = os.pread(fd, in_file - position, position - start)
        except OSError as exc:
            raise StoreError(f"cannot read {self._path(start)}: {exc.strerror}") from exc
        if len(data) != in_file - position:
            raise StoreError(f"{self._path(start)} ends before byte {in_file - start}")
        return data + self.tail[: stop - self._tail_start] if stop > in_file else data

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of one message; None if there is no such entry."""
        data = self.entries(offset, 1)
        return ENTRY.unpack(data) if len(data) == SIZE else None

    def next_file_offset(self, offset: int) -> QueueOffset:
        """The first offset of the file after the one that holds `offset`."""
        position = offset * SIZE
        return QueueOffset((position - position % self._segment_size + self._segment_size) // SIZE)

    @property
    def first_offset(self) -> QueueOffset:
        """The first entry in the files, filler or not."""
        start = self._segments[0] if self._segments else self._tail_start
        return QueueOffset(start // SIZE)

    def first_real(self, low: int, high: int | None = None) -> QueueOffset:
        """The first offset from `low` on that stands for a message; `high`, or the end, if there is none before it."""
        high = int(self.next_offset) if high is None else high
        count = 1  # usually the very first
        while low < high:
            data = self.entries(low, min(count, high - low))
            if not data:  # a file is missing
                low = self.next_file_offset(low)
                continue
            if data != PRE_BLANK * (len(data) // SIZE):
                sizes = (size for _, size, _ in ENTRY.iter_unpack(data))
                return QueueOffset(low + next(at for at, size in enumerate(sizes) if size != PRE_BLANK_SIZE))
            low += len(data) // SIZE
            count = CHUNK
        return QueueOffset(high)

    def last_real(self, high: int, low: int | None = None) -> QueueOffset | None:
        """The last offset before `high`, not below `low` or the beginning, that stands for a message."""
        low = int(self.first_offset) if low is None else low
        while high > low:
            entry = self.entry(high - 1)
            if entry is not None and entry[1] != PRE_BLANK_SIZE:
                return QueueOffset(high - 1)
            high -= 1
        return None

    def search(self, physical: int) -> QueueOffset:
        """The first offset whose record begins at or after `physical`, else the end. Fillers do not count."""
        high = int(self.next_offset)
        low = int(self.first_real(self.first_offset))
        while low < high:
            middle = (low + high) // 2
            # A filler has no place; use the first real entry after it.
            probe = self.first_real(middle, high)
            entry = self.entry(probe) if probe < high else None
            if entry is not None and entry[0] < physical:
                low = probe + 1
            else:
                high = middle
        return self.first_real(low)
