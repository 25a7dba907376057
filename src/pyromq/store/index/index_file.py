"""Reads one index file: a hash table on disk whose chains run through its entries, newest first.

    header | a slot per hash: number of its newest entry | entries, in the order of the commit log

Layouts are in `format`. The file does not record how many slots it has: with a wrong number it is misread, and
nothing shows it. This module only reads; `writer` has the file that still grows.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from pyromq.errors import StoreError

from ..format import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Entries read at once. A frequent key has its entries close together.
_BLOCK = 200


class Geometry(NamedTuple):
    """How many slots and entries an index file has room for; entry 0 is never used. Fixed once a store exists."""

    slots: int
    entries: int

    @property
    def size(self) -> int:
        return index_size(self.slots, self.entries)

    @staticmethod
    def slot_at(slot: int) -> int:
        return INDEX_HEADER.size + slot * INDEX_SLOT.size

    def entry_at(self, number: int) -> int:
        return INDEX_HEADER.size + self.slots * INDEX_SLOT.size + number * INDEX_ENTRY.size


@dataclass(slots=True)
class IndexHeader:
    """Store times in milliseconds and commit log offsets of the first and the last entry."""

    begin_time: int = 0
    end_time: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_used: int = 0
    next_entry: int = 1

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        header = cls(*INDEX_HEADER.unpack(data))
        header.next_entry = header.next_entry or 1  # a file that was never written to
        return header

    def pack(self) -> bytes:
        return INDEX_HEADER.pack(
            self.begin_time, self.end_time, self.begin_offset, self.end_offset, self.slots_used, self.next_entry
        )


class IndexFile:
    """A complete index file. It is opened for each lookup and keeps no descriptor."""

    def __init__(self, path: Path, geometry: Geometry, header: IndexHeader) -> None:
        self.path = path
        self.geometry = geometry
        self.header = header

    @classmethod
    def load(cls, path: Path, geometry: Geometry) -> IndexFile:
        """The file at `path`. StoreError if it cannot be read or has another size than `geometry` says."""
        with reading(path) as fd:
            length = os.fstat(fd).st_size
            if length != geometry.size:
                raise StoreError(
                    f"{path} has {length} bytes where index files have {geometry.size}; were maxHashSlotNum or "
                    "maxIndexNum changed?"
                )
            return cls(path, geometry, IndexHeader.unpack(read_exactly(fd, INDEX_HEADER.size, 0, path)))

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name} {self.header.next_entry - 1} entries>"

    @property
    def is_full(self) -> bool:
        return self.header.next_entry >= self.geometry.entries

    @property
    def is_plausible(self) -> bool:
        """Whether the header is plausible."""
        header = self.header
        return (
            1 <= header.next_entry <= self.geometry.entries
            and 0 <= header.slots_used < header.next_entry
            and 0 <= header.begin_offset <= header.end_offset
        )

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether messages stored from `begin` to `end` may be in this file."""
        return begin <= self.header.end_time and end >= self.header.begin_time

    def find(self, key_hash: int, limit: int, begin: int, end: int) -> list[int]:
        """Up to `limit` offsets of messages with this hash, stored from `begin` to `end`, the newest first.

        Times are whole seconds after the file's first entry, so they are up to a second early. Damage can
        make the result wrong or raise StoreError, but cannot cause an endless loop.
        """
        with reading(self.path) as fd:
            return self._walk(fd, key_hash, limit, begin, end)

    def _walk(self, fd: int, key_hash: int, limit: int, begin: int, end: int) -> list[int]:
        found: list[int] = []
        number = self._newest(fd, key_hash % self.geometry.slots)
        block, first = b"", number + 1
        # Entries are only ever chained to older ones: a chain that climbs is damaged.
        ceiling = self.header.next_entry
        while 0 < number < ceiling and len(found) < limit:
            if number < first:
                block, first = self._entries_up_to(fd, number)
            entry_hash, offset, seconds, previous = INDEX_ENTRY.unpack_from(block, (number - first) * INDEX_ENTRY.size)
            time = self.header.begin_time + seconds * 1000
            if seconds < 0:
                break
            if entry_hash == key_hash and begin <= time <= end:
                found.append(offset)
            if time < begin:
                break
            number, ceiling = previous, number
        return found

    def _newest(self, fd: int, slot: int) -> int:
        """The number of the newest entry of a slot; 0 for none."""
        data = read_exactly(fd, INDEX_SLOT.size, self.geometry.slot_at(slot), self.path)
        return int(INDEX_SLOT.unpack(data)[0])

    def _entries_up_to(self, fd: int, number: int) -> tuple[bytes, int]:
        """Some entries, the last of which is `number`, and the number of the first."""
        first = max(1, number - _BLOCK + 1)
        size = (number - first + 1) * INDEX_ENTRY.size
        return read_exactly(fd, size, self.geometry.entry_at(first), self.path), first


@contextlib.contextmanager
def reading(path: Path) -> Iterator[int]:
    """A descriptor to read `path`. System errors become StoreError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc.strerror}") from exc


def read_exactly(fd: int, size: int, at: int, path: Path) -> bytes:
    data = os.pread(fd, size, at)
    if len(data) != size:
        raise StoreError(f"{path} ends before byte {at + size}")
    return data
