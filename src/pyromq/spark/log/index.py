"""Looks up keys in the index files of a store, without opening it.

    header | slots: number of the newest entry of each hash | entry 0, never used | entry 1 | entry 2 …

An entry has Java's hash of `topic#key`, so the results are candidates. Their number is not capped, and what no index
file covers is reported as well: together that is complete. The layouts are in `store.format`.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq.errors import CorruptRecord
from pyromq.protocol.hashing import index_hash
from pyromq.protocol.record import HeadKind, read_head
from pyromq.store.format import (
    INDEX,
    INDEX_ENTRY,
    INDEX_ENTRY_LAYOUT,
    INDEX_HEADER,
    INDEX_SLOT,
    index_size,
    is_index_name,
)

from .files import is_record, mapped, record_size_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from .files import LogFile

_ENTRY_TYPE = INDEX_ENTRY_LAYOUT.dtype()
_DEFAULT_SLOTS = 5_000_000
# With longer chains, the index saves nothing.
_MOST_STEPS = 100_000
# Most candidates for where entries begin. A sound file has few; one full of zeros has millions.
_MOST_PLACES = 1000
# Bytes of log between two index files; usually just the last message of the first.
_SHORT = 1 << 20
_ID_LENGTHS = (32, 56)  # hexadecimal digits of host, port and physical offset, for IPv4 and IPv6
_OFFSET_DIGITS = 16


@dataclass(frozen=True, slots=True)
class IndexedKeys:
    """The lookup: messages of these topics with exactly these KEYS, or with these ids. None means any."""

    topics: Collection[str]
    keys: Collection[str] | None
    msg_ids: Collection[str] | None

    def hashes(self) -> set[int] | None:
        """Hashes under which each of them can be found; None if one is not indexed."""
        words = self.msg_ids
        if words is None:
            # A message is indexed under each word of its KEYS, so the first will do.
            parts = [key.split(" ") for key in self.keys or ()]
            if not all(map(any, parts)):
                return None
            words = [next(filter(None, part)) for part in parts]
        return {index_hash(f"{topic}#{word}") for topic in self.topics for word in words}

    def named_places(self) -> Iterable[int]:
        """Places named by the ids themselves: a message without a unique key has an id made from its place."""
        for name in self.msg_ids or ():
            if len(name) in _ID_LENGTHS:
                try:
                    yield int(name[-_OFFSET_DIGITS:], 16)
                except ValueError:
                    continue


class Found(NamedTuple):
    """Where messages may begin, in order, and the unindexed stretches of the log."""

    places: list[int]
    unindexed: list[tuple[int, int]]


def find(root: Path, wanted: IndexedKeys, files: Sequence[LogFile], start: int, end: int) -> Found | None:
    """Where to look for messages between these physical offsets. None if the index is no help.

    Damage to the index only costs time: what cannot be read counts as not indexed.
    """
    hashes = wanted.hashes()
    if hashes is None:
        return None
    places = {place for place in wanted.named_places() if start <= place < end}
    covered = []
    for path in _index_paths(root):
        index = _IndexFile.open(path)
        if index is None:
            continue
        with index.data:
            candidates = index.places(hashes)
        if candidates is None or len(candidates) + len(places) > _MOST_STEPS:
            return None
        places.update(place for place in candidates if start <= place < end)
        covered.append((index.begin, index.end))
    if not covered:
        return None
    unindexed = []
    for low, high in _between(covered, start, end):
        there = [file for file in files if file.start < high and file.end > low]
        records = [_records(file, low, high) for file in there] if high - low <= _SHORT else [None]
        if None in records:
            unindexed.append((low, high))
        places.update(place for found in records for place in found or ())
    return Found(sorted(places), unindexed)


def _index_paths(root: Path) -> list[Path]:
    folder = root / INDEX
    return sorted(path for path in folder.iterdir() if is_index_name(path.name)) if folder.is_dir() else []


def _between(covered: Iterable[tuple[int, int]], start: int, end: int) -> Iterable[tuple[int, int]]:
    """The rest of the log without these stretches."""
    at = start
    for low, high in sorted(covered):
        if min(low, end) > at:
            yield at, min(low, end)
        at = max(at, high)
    if at < end:
        yield at, end


def _records(file: LogFile, low: int, high: int) -> list[int] | None:
    """Where records of a file begin, from `low` on and before `high`; None if they do not lie back to back."""
    low, high = max(low, file.start), min(high, file.end)
    places = []
    with mapped(file) as data:
        while low < high and not _is_blank(data, low - file.start):
            if not is_record(data, low - file.start, file.start):
                return None
            places.append(low)
            low += record_size_at(data, low - file.start)
    return places


def _is_blank(data: mmap.mmap, pos: int) -> bool:
    try:
        return read_head(data, pos)[0] is HeadKind.BLANK
    except CorruptRecord:
        return False


@dataclass(frozen=True, slots=True)
class _IndexFile:
    """One file: it has every key of the messages from `begin` on and before `end`."""

    data: mmap.mmap
    begin: int
    end: int
    entries_at: int  # where entry 0 would be
    next_entry: int

    @classmethod
    def open(cls, path: Path) -> _IndexFile | None:
        """The file; None if it cannot be read or is still empty."""
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # gone, or empty
            return None
        if len(data) >= INDEX_HEADER.size:
            _, _, begin, end, _, next_entry = INDEX_HEADER.unpack_from(data)
            entries_at = _entries_at(data, begin, end, next_entry - 1)
            # The last message may have more keys, which are yet to come or in the next file.
            if entries_at is not None:
                return cls(data, begin, end, entries_at, next_entry)
        data.close()
        return None

    def places(self, hashes: Iterable[int]) -> list[int] | None:
        """Where messages with these hashes lie; None if there is too much to search."""
        found = []
        steps = 0
        slots = (self.entries_at - INDEX_HEADER.size) // INDEX_SLOT.size
        for wanted in hashes:
            (number,) = INDEX_SLOT.unpack_from(self.data, INDEX_HEADER.size + wanted % slots * INDEX_SLOT.size)
            # Entries are only ever chained to older ones: a chain that climbs is damaged.
            ceiling = self.next_entry
            while 0 < number < ceiling:
                at = self.entries_at + number * INDEX_ENTRY.size
                own, offset, _, previous = INDEX_ENTRY.unpack_from(self.data, at)
                if own == wanted:
                    found.append(offset)
                number, ceiling = previous, number
                steps += 1
                if steps > _MOST_STEPS:
                    return None
        return found


def _entries_at(data: mmap.mmap, begin: int, end: int, count: int) -> int | None:
    """Where the entries of a file begin: after the slots, whose number the file does not record.

    But its header has the number of entries and the places of the first and the last message, and
    the slot of the first entry must lead to an entry of that slot. None unless all of that holds at exactly one place.
    """
    size, step = len(data), INDEX_ENTRY.size
    if not 0 < count < size // step or not 0 <= begin <= end:
        return None
    shift = size % step  # entries reach up to the end of the file
    entries: NDArray[np.void] = np.ndarray((size // step,), _ENTRY_TYPE, data, shift)
    usual = (index_size(_DEFAULT_SLOTS, 0) - shift) // step
    if usual + count < len(entries) and _fits(entries, data, shift, usual, (begin, end), count):
        return int(usual * step + shift)
    offsets = entries["physical_offset"]
    likely = np.flatnonzero((offsets[1 : len(offsets) - count + 1] == begin) & (offsets[count:] == end))
    if len(likely) > _MOST_PLACES:
        return None
    places = [at for at in likely.tolist() if _fits(entries, data, shift, at, (begin, end), count)]
    return int(places[0] * step + shift) if len(places) == 1 else None


def _fits(
    entries: NDArray[np.void], data: mmap.mmap, shift: int, at: int, messages: tuple[int, int], count: int
) -> bool:
    """Whether entries may begin at the `at`-th multiple of an entry's size.

    `messages` are the places of the first and the last entry's messages.
    """
    begin, end = messages
    slots, rest = divmod(at * entries.itemsize + shift - INDEX_HEADER.size, INDEX_SLOT.size)
    if (
        rest
        or slots < 1
        or entries["physical_offset"][at + 1] != begin
        or entries["physical_offset"][at + count] != end
    ):
        return False
    first = int(entries["hash"][at + 1])
    if first < 0 or entries[at].tobytes().strip(b"\0"):
        return False
    (newest,) = INDEX_SLOT.unpack_from(data, INDEX_HEADER.size + first % slots * INDEX_SLOT.size)
    return bool(0 < newest <= count and entries["hash"][at + newest] % slots == first % slots)
