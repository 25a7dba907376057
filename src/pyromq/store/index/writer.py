"""Writes the growing index file; also cuts a file back and checks one, which read it as a whole.

Nothing is written through a map: on a full disk that would kill the process. The slot table is in memory, entries are
collected and written in order, and the changed parts of the table follow with the header when the file
is written out. So a crash may leave entries without slots, or slots without entries; `cut_back` makes the file whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import failpoints
from ..format import INDEX_ENTRY_LAYOUT, INDEX_SLOT_LAYOUT
from .index_file import IndexFile, IndexHeader, read_exactly, reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ..disk import Disk
    from .index_file import Geometry

ENTRY = INDEX_ENTRY_LAYOUT.dtype()
SLOT = INDEX_SLOT_LAYOUT.dtype()["newest"]

_GATHERED = 4096  # most entries in memory
_PAGE = 1024  # slots written together, 4 KiB
_CHUNK = 1 << 16  # entries per read of a whole file
_MAX_SECONDS = 2**31 - 1


class GrowingIndexFile(IndexFile):
    """The last index file while it has room. Keeps one descriptor, and the slot table: 20 MB by default.

    Added keys can be found at once. Once `write_out` returned, the system has everything; the caller syncs.
    """

    def __init__(self, path: Path, geometry: Geometry, header: IndexHeader, fd: int, disk: Disk) -> None:
        super().__init__(path, geometry, header)
        self._fd = fd
        self._disk = disk
        self._slots: NDArray[np.int32] = np.zeros(geometry.slots, SLOT)
        self._dirty = np.zeros(-(-geometry.slots // _PAGE), np.bool_)  # by page
        self._header_dirty = False
        self._gathered: NDArray[np.void] = np.zeros(min(_GATHERED, geometry.entries), ENTRY)
        self._hashes = self._gathered["hash"]
        self._offsets = self._gathered["physical_offset"]
        self._seconds = self._gathered["seconds"]
        self._previous = self._gathered["previous"]
        self._first = header.next_entry  # number of the first gathered entry

    @classmethod
    def create(cls, path: Path, geometry: Geometry, seed: IndexHeader, disk: Disk) -> GrowingIndexFile:
        """A new file that continues after the one with the header `seed`. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sparse: most files of a small store never use their 420 MB.
        fd = disk.create(path, geometry.size, reserve=False)
        try:
            failpoints.hit("index.create")
            header = IndexHeader(seed.end_time, seed.end_time, seed.end_offset, seed.end_offset)
            # At once: after a crash RocketMQ deletes files by the time in the header, and would keep one without
            # a time and index once more what earlier files have.
            disk.write(fd, header.pack(), 0)
            disk.sync_folder(path.parent)
            return cls(path, geometry, header, fd, disk)
        except BaseException:
            os.close(fd)
            disk.delete(path)
            raise

    @classmethod
    def continuing(cls, file: IndexFile, disk: Disk) -> GrowingIndexFile:
        """Continue a file that has room. OSError or StoreError if it cannot be read."""
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            growing = cls(file.path, file.geometry, file.header, fd, disk)
            growing._load_slots()
        except BaseException:
            os.close(fd)
            raise
        return growing

    def _load_slots(self) -> None:
        slots = _read_slots(self._fd, self)
        # A slot that points past the last entry would chain the next entry to itself.
        wrong = ((slots < 0) | (slots >= self.header.next_entry)).nonzero()[0]
        slots[wrong] = 0
        self._dirty[wrong // _PAGE] = True
        self._slots = slots

    # Adding

    @property
    def _count(self) -> int:
        """How many entries are gathered."""
        return self.header.next_entry - self._first

    def add(self, hashes: NDArray[np.int64], offsets: NDArray[np.int64], times: NDArray[np.int64]) -> int:
        """Add as many of these keys as fit, and return how many: 0 if the file is full.

        OSError if collected entries could not be written; then nothing was added and everything can be found as before.
        """
        if self._count == len(self._gathered):
            self._write_entries()
        header = self.header
        count = min(len(hashes), self.geometry.entries - header.next_entry, len(self._gathered) - self._count)
        if count <= 0:
            return 0
        hashes, offsets, times = hashes[:count], offsets[:count], times[:count]
        numbers = np.arange(header.next_entry, header.next_entry + count)
        slots = hashes % self.geometry.slots
        previous = link(self._slots, slots, numbers)
        self._dirty[slots // _PAGE] = True

        place = slice(self._count, self._count + count)
        self._hashes[place] = hashes
        self._offsets[place] = offsets
        self._previous[place] = previous
        if header.next_entry == 1:
            # RocketMQ stores the first entry's time relative to the end of the previous file.
            first = _seconds_after(header.begin_time, times[:1])
            header.begin_time, header.begin_offset = int(times[0]), int(offsets[0])
            self._seconds[place] = _seconds_after(header.begin_time, times)
            self._seconds[:1] = first
        else:
            self._seconds[place] = _seconds_after(header.begin_time, times)
        header.end_time, header.end_offset = int(times[-1]), int(offsets[-1])
        header.slots_used += count - int(np.count_nonzero(previous))
        header.next_entry += count
        self._header_dirty = True
        return count

    # Writing

    def write_out(self) -> bool:
        """Hand everything to the system; False if there was nothing new. OSError leaves the rest for the next call."""
        self._write_entries()
        failpoints.hit("index.write.entries")
        pages = self._dirty.nonzero()[0]
        if not len(pages) and not self._header_dirty:
            return False
        for first, last in _runs(pages, len(self._dirty)):
            slots = self._slots[first * _PAGE : (last + 1) * _PAGE]
            self._disk.write(self._fd, _octets(slots), self.geometry.slot_at(first * _PAGE))
            self._dirty[first : last + 1] = False
        failpoints.hit("index.write.slots")
        # The header last: then what it counts is there.
        self._disk.write(self._fd, self.header.pack(), 0)
        self._header_dirty = False
        failpoints.hit("index.write.header")
        return True

    def _write_entries(self) -> None:
        if count := self._count:
            self._disk.write(self._fd, _octets(self._gathered[:count]), self.geometry.entry_at(self._first))
            self._first += count

    def close(self) -> None:
        """Close the file and free its memory. What was not written out is lost."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def closed(self) -> IndexFile:
        """The same file, closed, as a complete one."""
        self.close()
        return IndexFile(self.path, self.geometry, self.header)

    # Reading

    def find(self, key_hash: int, limit: int, begin: int, end: int) -> list[int]:
        return self._walk(self._fd, key_hash, limit, begin, end)

    def _newest(self, fd: int, slot: int) -> int:
        return int(self._slots[slot])

    def _entries_up_to(self, fd: int, number: int) -> tuple[bytes, int]:
        if number < self._first:
            return super()._entries_up_to(fd, number)
        return self._gathered[: number - self._first + 1].tobytes(), self._first


def link(table: NDArray[np.int32], slots: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """Make entries the newest of their slots, one after the other. Returns which entry each is chained to."""
    previous = table[slots]
    table[slots] = numbers  # of equal slots the last one stays
    if (table[slots] != numbers).any():
        # Some share a slot: each but the first is chained to the previous one.
        order = slots.argsort(kind="stable")
        shared = (slots[order[1:]] == slots[order[:-1]]).nonzero()[0]
        previous[order[shared + 1]] = numbers[order[shared]]
    return previous


def _octets(values: NDArray[Any]) -> memoryview:
    return values.view(np.uint8).data


def _seconds_after(begin: int, times: NDArray[np.int64]) -> NDArray[np.int64]:
    if begin <= 0:
        return np.zeros(len(times), np.int64)
    # np.clip says the same and takes 4 µs longer.
    return np.minimum(np.maximum((times - begin) // 1000, 0), _MAX_SECONDS)


def _runs(pages: NDArray[np.intp], total: int) -> Iterator[tuple[int, int]]:
    """First and last page of each stretch to write together; everything at once if most pages changed."""
    if len(pages) * 8 >= total:
        yield int(pages[0]), int(pages[-1])
    elif len(pages):
        gaps = (np.diff(pages) > 1).nonzero()[0]
        firsts = np.concatenate((pages[:1], pages[gaps + 1]))
        lasts = np.concatenate((pages[gaps], pages[-1:]))
        yield from zip(firsts.tolist(), lasts.tolist(), strict=True)


# Whole files


def cut_back(file: IndexFile, offset: int, disk: Disk) -> bool:
    """Keep only the entries of messages before `offset`; False, with nothing changed, if none is left.

    Only what makes sense is kept: entries are in log order, so the file ends at the first that is not, or
    was never written. Slots, chains and header are rebuilt, the rest is zeroed;
    all of it is on disk when this returns.
    """
    geometry = file.geometry
    old = file.header
    limit = old.next_entry if file.is_plausible else geometry.entries
    table: NDArray[np.int32] = np.zeros(geometry.slots, SLOT)
    fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        header = IndexHeader(begin_time=old.begin_time)
        for first, entries in _read_entries(fd, file, limit):
            entries = entries[: _sound(entries, header.end_offset, offset)]
            if not len(entries):
                break
            if first == 1:
                header.begin_offset = int(entries["physical_offset"][0])
            numbers = np.arange(first, first + len(entries))
            previous = link(table, entries["hash"] % geometry.slots, numbers)
            if (entries["previous"] != previous).any():
                entries["previous"] = previous
                disk.write(fd, _octets(entries), geometry.entry_at(first))
            header.next_entry = first + len(entries)
            header.end_offset = int(entries["physical_offset"][-1])
            # Within the second that the entry states; a lookup must not skip the file.
            header.end_time = min(old.end_time, old.begin_time + int(entries["seconds"][-1]) * 1000 + 999)
            if len(entries) < _CHUNK:
                break
        if header.next_entry == 1:
            return False
        header.slots_used = int(np.count_nonzero(table))
        header.end_time = max(header.begin_time, header.end_time)
        disk.write(fd, _octets(table), geometry.slot_at(0))
        failpoints.hit("index.cut_back")
        disk.zero(fd, geometry.entry_at(header.next_entry), geometry.size)
        disk.write(fd, header.pack(), 0)
        disk.sync(fd)
    finally:
        os.close(fd)
    file.header = header
    return True


def _sound(entries: NDArray[np.void], after: int, before: int) -> int:
    """How many leading entries belong to messages from `after` on and before `before`, in order."""
    offsets = entries["physical_offset"].astype(np.int64)
    good = (offsets < before) & (entries["hash"] >= 0) & (entries["seconds"] >= 0)
    good[0] &= offsets[0] >= after
    good[1:] &= offsets[1:] >= offsets[:-1]
    # Offset 0 is valid; all fields 0 means an entry that was never written.
    good &= (offsets != 0) | (entries["hash"] != 0) | (entries["previous"] != 0)
    return len(good) if good.all() else int(good.argmin())


def check(file: IndexFile) -> Iterator[str]:
    """What is wrong with the file, a sentence each. Reads all of it."""
    header = file.header
    if not file.is_plausible:
        yield f"{file.path}: the header is damaged"
        return
    table: NDArray[np.int32] = np.zeros(file.geometry.slots, SLOT)
    after = header.begin_offset
    with reading(file.path) as fd:
        for first, entries in _read_entries(fd, file, header.next_entry):
            sound = _sound(entries, after, header.end_offset + 1)
            if sound < len(entries):
                yield f"{file.path}: entry {first + sound} is damaged or out of order"
                return
            after = int(entries["physical_offset"][-1])
            if first == 1 and entries["physical_offset"][0] != header.begin_offset:
                begin = entries["physical_offset"][0]
                yield f"{file.path}: begins at offset {begin}, but its header says {header.begin_offset}"
            previous = link(table, entries["hash"] % file.geometry.slots, np.arange(first, first + len(entries)))
            wrong = (entries["previous"] != previous).nonzero()[0]
            if len(wrong):
                yield f"{file.path}: {len(wrong)} entries are chained wrongly, the first is {first + wrong[0]}"
        wrong = (_read_slots(fd, file) != table).nonzero()[0]
    if len(wrong):
        yield f"{file.path}: {len(wrong)} slots point to the wrong entry, the first is {wrong[0]}"
    if header.next_entry > 1 and after != header.end_offset:
        yield f"{file.path}: ends at offset {after}, but its header says {header.end_offset}"
    if (used := np.count_nonzero(table)) != header.slots_used:
        yield f"{file.path}: {used} slots are in use, but its header says {header.slots_used}"


def _read_slots(fd: int, file: IndexFile) -> NDArray[np.int32]:
    size = file.geometry.slots * SLOT.itemsize
    return np.frombuffer(bytearray(read_exactly(fd, size, file.geometry.slot_at(0), file.path)), SLOT)


def _read_entries(fd: int, file: IndexFile, end: int) -> Iterator[tuple[int, NDArray[np.void]]]:
    """The entries before number `end`, many at a time, each batch with the number of its first."""
    for first in range(1, end, _CHUNK):
        size = min(_CHUNK, end - first) * ENTRY.itemsize
        data = read_exactly(fd, size, file.geometry.entry_at(first), file.path)
        yield first, np.frombuffer(bytearray(data), ENTRY)
