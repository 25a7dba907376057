"""Reads consume queues without a store: arrays of entries that say where messages lie in the log."""

from __future__ import annotations

import bisect
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq.protocol.hashing import tags_code
from pyromq.protocol.names import TIMED_TOPICS
from pyromq.store.format import (
    CONSUME_QUEUE,
    ENTRY,
    ENTRY_LAYOUT,
    MAX_EXT_ADDRESS,
    PRE_BLANK_SIZE,
    is_segment_name,
    queue_folders,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_ENTRY_TYPE = ENTRY_LAYOUT.dtype()
_SAMPLE = 1000


class QueueFiles(NamedTuple):
    """The files of one queue, each with its position in the queue and its length."""

    topic: str
    queue_id: int
    files: tuple[tuple[int, str, int], ...]

    def end(self) -> int:
        """The offset after the last message: the last file is written from its beginning."""
        for start, path, length in reversed(self.files):
            count = length // ENTRY.size

            def is_free(index: int, path: str = path) -> bool:
                _, size, _ = ENTRY.unpack(_read(path, index * ENTRY.size, ENTRY.size))
                return bool(size <= 0)

            used = bisect.bisect_left(range(count), True, key=is_free)
            if used:
                return start // ENTRY.size + used
        return 0

    @property
    def first(self) -> int:
        return self.files[0][0] // ENTRY.size if self.files else 0

    def entries(self, first: int, end: int) -> NDArray[np.void]:
        """Entries of the messages from `first` on, before `end`. OSError if a file no longer exists."""
        parts = []
        for start, path, length in self.files:
            begin = max(first * ENTRY.size - start, 0)
            size = min(end * ENTRY.size - start, length) - begin
            if size > 0:
                parts.append(_read(path, begin, size))
        return np.frombuffer(b"".join(parts), _ENTRY_TYPE)

    def search(self, physical: int, first: int, end: int) -> int:
        """The first message from `first` on, before `end`, at or after a physical offset: these ascend."""

        def is_behind(index: int) -> bool:
            found = self.entries(index, index + 1)
            return bool(len(found) and found["size"][0] != PRE_BLANK_SIZE and found["physical_offset"][0] >= physical)

        return bisect.bisect_left(range(first, end), True, key=is_behind) + first

    def sample(self, end: int) -> NDArray[np.void]:
        """Some entries before `end`, to estimate the others."""
        return real(self.entries(max(self.first, end - _SAMPLE), end))


class QueueSlice(NamedTuple):
    """Messages of one queue, `end` exclusive."""

    queue: QueueFiles
    first: int
    end: int

    def between(self, start: int, end: int) -> QueueSlice:
        """The messages within this stretch of the log."""
        first = self.queue.search(start, self.first, self.end)
        return QueueSlice(self.queue, first, self.queue.search(end, first, self.end))

    def near(self, start: int, end: int) -> QueueSlice:
        """At least the messages within this stretch of the log, without other files: less for a task to carry."""
        queue = self.queue
        if len(queue.files) == 1:
            return self
        firsts = [real(queue.entries(file[0] // ENTRY.size, file[0] // ENTRY.size + 1)) for file in queue.files]
        begins = [int(found["physical_offset"][0]) if len(found) else -1 for found in firsts]
        files = tuple(
            file
            for number, file in enumerate(queue.files)
            if begins[number] < end and (number + 1 == len(begins) or not 0 <= begins[number + 1] <= start)
        )
        low, high = (files[0][0], files[-1][0] + files[-1][2]) if files else (0, 0)
        return QueueSlice(
            QueueFiles(queue.topic, queue.queue_id, files),
            max(self.first, low // ENTRY.size),
            min(self.end, high // ENTRY.size),
        )


def queues_of(root: Path, topics: Iterable[str] | None) -> Iterator[QueueFiles]:
    """The queues of these topics, all topics if None."""
    wanted = None if topics is None else {*topics}
    for topic, queue_id, folder in queue_folders(root, CONSUME_QUEUE):
        if wanted is None or topic in wanted:
            entries = sorted((entry for entry in os.scandir(folder)), key=lambda entry: entry.name)
            files = tuple(
                (int(entry.name), entry.path, entry.stat().st_size)
                for entry in entries
                if is_segment_name(entry.name) and entry.is_file()
            )
            if files:
                yield QueueFiles(topic, queue_id, files)


def real(entries: NDArray[np.void]) -> NDArray[np.void]:
    """Entries without fillers."""
    sizes = entries["size"]
    found: NDArray[np.void] = entries[(sizes > 0) & (sizes != PRE_BLANK_SIZE) & (entries["physical_offset"] >= 0)]
    return found


def tag_codes(topic: str, tags: Iterable[str] | None) -> NDArray[np.int64] | None:
    """The tags codes of messages with one of these tags; None if entries cannot tell."""
    if tags is None or topic in TIMED_TOPICS:
        return None
    tags = sorted(tags)
    # Replacement characters for invalid bytes were hashed by the writer, which may have seen a different number.
    return None if any("\ufffd" in tag for tag in tags) else np.array([tags_code(tag) for tag in tags], np.int64)


def may_have_tag(entries: NDArray[np.void], codes: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Which entries have one of these codes, or an address instead."""
    if codes is None:
        return np.ones(len(entries), np.bool_)
    own = entries["tags_code"].astype(np.int64)
    return np.isin(own, codes) | (own <= MAX_EXT_ADDRESS)


def _read(path: str, at: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, at)
    finally:
        os.close(fd)
