"""Consume queues, read without a store: arrays of entries that say where messages lie in the log."""

from __future__ import annotations

import bisect
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq.store.format import CONSUME_QUEUE, ENTRY, PRE_BLANK_SIZE, is_segment_name, queue_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_ENTRY_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
assert _ENTRY_TYPE.itemsize == ENTRY.size
_SAMPLE = 1000


class QueueFiles(NamedTuple):
    """The files of one queue, each with the byte of the queue that it begins with and its length."""

    topic: str
    queue_id: int
    files: tuple[tuple[int, str, int], ...]

    def end(self) -> int:
        """The offset behind the last message: what is written is a beginning of the last file."""
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
        """Entries of the messages from `first` on, before `end`. OSError if a file is not there any more."""
        parts = []
        for start, path, length in self.files:
            begin = max(first * ENTRY.size - start, 0)
            size = min(end * ENTRY.size - start, length) - begin
            if size > 0:
                parts.append(_read(path, begin, size))
        return np.frombuffer(b"".join(parts), _ENTRY_TYPE)

    def search(self, physical: int, end: int) -> int:
        """The first message before `end` that lies at or behind a physical offset: entries ascend."""

        def is_behind(index: int) -> bool:
            found = self.entries(index, index + 1)
            return bool(len(found) and found["size"][0] != PRE_BLANK_SIZE and found["offset"][0] >= physical)

        return bisect.bisect_left(range(self.first, end), True, key=is_behind) + self.first

    def only(self, first: int, end: int) -> QueueFiles:
        """Without files that hold nothing of these messages, for a task to carry."""
        low, high = first * ENTRY.size, end * ENTRY.size
        files = tuple(file for file in self.files if file[0] < high and file[0] + file[2] > low)
        return QueueFiles(self.topic, self.queue_id, files)

    def mean_size(self, end: int) -> float:
        """The mean size of records, of a sample of the newest."""
        found = real(self.entries(max(self.first, end - _SAMPLE), end))
        return float(found["size"].mean()) if len(found) else 0.0


def queues_of(root: Path, topics: Iterable[str] | None) -> Iterator[QueueFiles]:
    """The queues of these topics, of all if None."""
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
    """Without the fillers that stand for messages that are not in the queue."""
    sizes = entries["size"]
    found: NDArray[np.void] = entries[(sizes > 0) & (sizes != PRE_BLANK_SIZE) & (entries["offset"] >= 0)]
    return found


def _read(path: str, at: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, at)
    finally:
        os.close(fd)
