"""Inspects a store by its files, without opening it: writes nothing and takes no lock.

    found = inspect_store(Path("data"))
    found.log.end, sum(queue.messages for queue in found.queues)

RocketMQ's stores work, too. For a store in use, the figures are those of a moment ago. Only the ends of the
queues are read, and the part of the log that no queue has yet; `check_store` tells whether all of it is sound.
"""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, NamedTuple, Self

from pyromq.errors import CorruptRecord, StoreError
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, SIZE_AND_MAGIC, store_timestamp_of

from .check.files import find_segments, listed
from .check.findings import Report
from .check.metadata import check_config, checkpoint_times
from .check.store_check import StoreCheck, user_of
from .format import (
    ABORT,
    CHECKPOINT,
    CONFIG,
    ENTRY,
    INDEX,
    INDEX_HEADER,
    PRE_BLANK,
    PRE_BLANK_SIZE,
    is_index_name,
    queue_folders,
)
from .index.index_file import IndexHeader
from .scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .check.files import FoundSegment
    from .config import StoreConfig
    from .scan import ScannedRecord

_BLOCK = 512  # unit of `st_blocks` in bytes, on any file system
_CHUNK = 1024  # entries per read where many are skipped


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The commit log: its files, and the range of bytes with messages. Times are store times, 0 for none.

    `torn_at` is where it becomes unreadable; more may follow. `bytes_on_disk` is less than the sum of the
    file sizes if files have holes.
    """

    files: int
    file_size: int
    bytes_on_disk: int
    begin: int
    end: int
    first_time: int
    last_time: int
    record_version: int | None
    torn_at: int | None


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A consume queue: its messages still in the log have the offsets from `begin` to before `end`."""

    topic: str
    queue_id: int
    begin: int
    end: int
    first_time: int
    last_time: int

    @property
    def messages(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """The index files. Those without a header are empty."""

    files: int
    slots: int
    room: int
    entries: int
    first_time: int
    last_time: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A store. `user` has it open, "" if nobody does or it is unknown; `is_clean` if it was closed and not killed.

    `checkpoint` has the times up to which log, queues and index are on disk. `topics` and `groups` count those in the
    config files, None without such a file.
    """

    user: str
    is_clean: bool
    log: LogFacts
    queues: tuple[QueueFacts, ...]
    index: IndexFacts
    checkpoint: tuple[int, int, int]
    topics: int | None
    groups: int | None


def inspect_store(root: Path, config: StoreConfig | None = None) -> StoreFacts:
    """Inspect the store at `root`. File sizes are taken from the files. StoreError if it is not a store we know."""
    try:
        return _inspect(root, StoreCheck(root, config, given=()).config)
    except OSError as exc:
        raise StoreError(f"cannot read {exc.filename or root}: {exc.strerror}") from exc


def _inspect(root: Path, config: StoreConfig) -> StoreFacts:
    files = find_segments(config.commit_log_folders, config.commit_log_file_size, Report())
    log = _Log(files, config.commit_log_file_size)
    queues, known = [], _End(log.begin, 0)
    for topic, queue_id, folder in queue_folders(root):
        facts, end = _queue(topic, queue_id, folder, config.consume_queue_file_size, log)
        queues.append(facts)
        known = max(known, end)
    tables = check_config(root / CONFIG, Report())
    return StoreFacts(
        user_of(root),
        not (root / ABORT).exists(),
        log.facts(known),
        tuple(queues),
        _index(root / INDEX, config),
        checkpoint_times(root / CHECKPOINT),
        None if tables.topics is None else len(tables.topics.topic_config_table),
        None if tables.groups is None else len(tables.groups.subscription_group_table),
    )


class _End(NamedTuple):
    """Where a record ends in the log, and when it was stored."""

    physical: int
    store_time: int


class _Log:
    """Finds records of the log by their place."""

    def __init__(self, files: Sequence[FoundSegment], file_size: int) -> None:
        self._files = {file.start: file for file in files}
        self._size = file_size
        self.begin = files[0].start if files else 0

    def store_time(self, physical: int) -> int:
        """When the record at `physical` was stored; 0 if there is no record."""
        head = self._read(physical, MIN_RECORD_SIZE)
        if len(head) < MIN_RECORD_SIZE or SIZE_AND_MAGIC.unpack_from(head)[1] not in (MAGIC_V1, MAGIC_V2):
            return 0
        return store_timestamp_of(memoryview(head))

    def facts(self, known: _End) -> LogFacts:
        """The facts, given that queues have the records up to `known`."""
        end, torn_at = self._end(known)
        head = self._read(self.begin, MIN_RECORD_SIZE)
        magic = SIZE_AND_MAGIC.unpack_from(head)[1] if len(head) >= SIZE_AND_MAGIC.size else 0
        return LogFacts(
            len(self._files),
            self._size,
            sum(file.path.stat().st_blocks * _BLOCK for file in self._files.values()),
            self.begin,
            end.physical,
            self.store_time(self.begin),
            end.store_time,
            {MAGIC_V1: 1, MAGIC_V2: 2}.get(magic),
            torn_at,
        )

    def _end(self, end: _End) -> tuple[_End, int | None]:
        """The end of the last record after `end`, and where the log becomes unreadable, if it does."""
        while (file := self._files.get(end.physical - end.physical % self._size)) is not None:
            try:
                for record in _records(file, end.physical):
                    end = _End(record.physical_offset + record.size, record.store_timestamp)
            except CorruptRecord as exc:
                return end, exc.offset
            # If another file follows, a blank record ends this one.
            following = file.start + self._size
            if not self.store_time(following):
                break
            end = _End(following, end.store_time)
        return end, None

    def _read(self, physical: int, count: int) -> bytes:
        file = self._files.get(physical - physical % self._size) if self._size else None
        return b"" if file is None else _read(file.path, physical - file.start, count)


def _queue(topic: str, queue_id: int, folder: Path, size: int, log: _Log) -> tuple[QueueFacts, _End]:
    """A queue, and where its last record ends in the log."""
    with _Entries(find_segments((folder,), size, Report()), size) as queue:
        end = queue.end()
        begin = queue.search(log.begin, end)
        if begin == end:
            return QueueFacts(topic, queue_id, end, end, 0, 0), _End(0, 0)
        (first, _), (last, length) = queue.entry(begin), queue.entry(end - 1)
    last_time = 0 if length == PRE_BLANK_SIZE else log.store_time(last)
    facts = QueueFacts(topic, queue_id, begin, end, log.store_time(first), last_time)
    # An entry without its record says nothing about the log.
    return facts, _End(last + length, last_time) if last_time else _End(0, 0)


class _Entries:
    """The entries of one queue by number. A context manager that closes its files."""

    def __init__(self, files: Sequence[FoundSegment], size: int) -> None:
        self._files = {file.start: file.path for file in files}
        self._starts = sorted(self._files)
        self._size = size
        self._open: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open.values():
            os.close(fd)

    def entry(self, number: int) -> tuple[int, int]:
        """Place and size of the record; zeros if the entry was never written."""
        data = self._read(number, 1)
        if len(data) < ENTRY.size:
            return 0, 0
        physical, size, _ = ENTRY.unpack(data)
        return physical, size

    def end(self) -> int:
        """The number after the last entry: a file is written from its beginning."""
        for start in reversed(self._starts):
            first = start // ENTRY.size
            numbers = range(first, first + self._size // ENTRY.size)
            used = bisect.bisect_left(numbers, True, key=lambda number: self.entry(number)[1] <= 0)
            if used:
                return first + used
        return self._starts[0] // ENTRY.size if self._starts else 0

    def search(self, physical: int, end: int) -> int:
        """The first entry of a record at or after `physical`; `end` if there is none."""
        low, high = self._first_real(self._starts[0] // ENTRY.size if self._starts else 0, end), end
        while low < high:
            middle = (low + high) // 2
            # A filler, which stands for a lost message, has no place.
            probe = self._first_real(middle, high)
            if probe < high and self.entry(probe)[0] < physical:
                low = probe + 1
            else:
                high = middle
        return self._first_real(low, end)

    def _first_real(self, low: int, high: int) -> int:
        """The first number from `low` on that stands for a message, `high` if there is none before it."""
        count = 1  # usually the very first
        while low < high:
            data = self._read(low, min(count, high - low))
            entries = len(data) // ENTRY.size
            if not entries:  # a file is missing or was cut; the next may be far away
                later = bisect.bisect_right(self._starts, low * ENTRY.size)
                low = self._starts[later] // ENTRY.size if later < len(self._starts) else high
                continue
            if data != PRE_BLANK * entries:
                sizes = (size for _, size, _ in ENTRY.iter_unpack(data[: entries * ENTRY.size]))
                return low + next((at for at, size in enumerate(sizes) if size != PRE_BLANK_SIZE), entries)
            low += entries
            count = _CHUNK
        return min(low, high)

    def _read(self, number: int, count: int) -> bytes:
        """Up to this many entries, never beyond the end of a file."""
        position = number * ENTRY.size
        start = position - position % self._size
        if start not in self._files:
            return b""
        fd = self._open.get(start)
        if fd is None:
            fd = self._open[start] = os.open(self._files[start], os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(fd, min(count * ENTRY.size, start + self._size - position), position - start)


def _records(file: FoundSegment, at: int) -> Iterator[ScannedRecord]:
    if file.length:
        with file.path.open("rb") as opened:
            view = mmap(opened.fileno(), file.length, access=ACCESS_READ)
        # Unmapped once nothing refers to it any more; an error may for a while.
        yield from scan(memoryview(view), at - file.start, file.start, check_crc=False)


def _index(folder: Path, config: StoreConfig) -> IndexFacts:
    headers = []
    for entry in listed(folder, Report()):
        if is_index_name(entry.name):
            data = _read(folder / entry.name, 0, INDEX_HEADER.size)
            headers.append(IndexHeader.unpack(data) if len(data) == INDEX_HEADER.size else IndexHeader())
    return IndexFacts(
        len(headers),
        config.hash_slots,
        config.index_entries,
        sum(header.next_entry - 1 for header in headers),
        min((header.begin_time for header in headers if header.begin_time), default=0),
        max((header.end_time for header in headers), default=0),
    )


def _read(path: Path, at: int, count: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, count, at)
    finally:
        os.close(fd)
