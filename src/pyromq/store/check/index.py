"""Checks the index: each file by itself, and all entries against the keys of the messages in the log.

Entries lie in log order, so both are read once, side by side. Keys are compared by hash, which is all
the index keeps of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyromq.errors import StoreError
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.hashing import index_hash

from ..format import INDEX_HEADER
from ..index.index_file import Geometry, IndexFile, IndexHeader, read_exactly, reading
from ..index.keys import key_hashes
from ..index.writer import ENTRY, SLOT, check
from .context import NEVER, Damage
from .files import first_nonzero
from .findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ..scan import ScannedRecord
    from .context import Surroundings

_CHUNK = 1 << 15  # entries read at once
_BATCH = 4096  # records compared at once
_HASH_BITS = 31
_FAR = 1 << 32  # bytes of the log that a batch of records spans at most
_TAGS = props.TAGS.encode()
_MAX_SECONDS = 2**31 - 1
_GUESS_LIMIT = 64 << 20  # bytes of a file to search for its geometry


@dataclass(frozen=True, slots=True)
class _Piece:
    """Entries of a file, from number `first` on, field by field."""

    file: IndexFile
    first: int
    hashes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    seconds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, end: int) -> _Piece:
        rows = slice(start, end)
        return _Piece(self.file, self.first + start, self.hashes[rows], self.offsets[rows], self.seconds[rows])


class _Batch(NamedTuple):
    """Messages, and their keys in index order; `numbers` says which message each key belongs to."""

    records: Sequence[ScannedRecord]
    offsets: NDArray[np.int64]
    times: NDArray[np.int64]
    hashes: NDArray[np.int64]
    numbers: NDArray[np.intp]


@dataclass(slots=True)
class _Run:
    """Consecutive entries with the same fault; `what` describes the first."""

    fault: str
    path: Path
    first: int
    last: int
    what: str


@dataclass(slots=True)
class _Missing:
    """Consecutive keys without an entry; `last` is the number of the last one, counted along the log."""

    offset: int
    last: int
    count: int


class IndexCheck:
    """Compares the index with the keys of the messages, which come in log order from `log_from` on."""

    def __init__(self, paths: Sequence[Path], geometry: Geometry, log_from: int, store: Surroundings) -> None:
        self._geometry = geometry
        self._log_from = log_from
        self._store = store
        self._folder = paths[0].parent
        # Offsets whose entries are in unreadable files, already reported.
        self._unknown = Damage()
        self._files: list[IndexFile] = []
        self._load(paths)
        self._begin = self._files[0].header.begin_offset if self._files else NEVER
        self._pieces = self._read()
        self._piece = next(self._pieces, None)
        self._pending: list[ScannedRecord] = []
        self._skewed: IndexFile | None = None  # its times are relative to a wrong one
        self._run: _Run | None = None
        self._missing: _Missing | None = None
        self._keys = 0
        self._early = 0  # keys of messages before the first entry

    def _load(self, paths: Sequence[Path]) -> None:
        before, is_unknown = 0, False
        for path in paths:
            file = self._load_file(path, is_last=path is paths[-1])
            if file is None:
                is_unknown = True
                continue
            if file.header.next_entry == 1:  # created just before a crash, and never written to
                self._files.append(file)
                continue
            if is_unknown:
                self._unknown.add(before, file.header.begin_offset + 1)
            elif file.header.begin_offset < before:
                what = f"begins at offset {file.header.begin_offset}, but the file before it ends at {before}"
                self._store.report.error(path, what)
            before, is_unknown = file.header.end_offset, False
            self._files.append(file)
        if is_unknown:
            self._unknown.add(before, NEVER)

    def _load_file(self, path: Path, *, is_last: bool) -> IndexFile | None:
        report = self._store.report
        try:
            file = IndexFile.load(path, self._geometry)
        except StoreError as exc:
            if is_last and path.stat().st_size == 0:
                severity = Severity.NOTE if self._store.is_crashed else Severity.WARNING
                report.add(severity, path, "is empty; it was just being created")
            else:
                report.error(path, str(exc).removeprefix(f"{path} "))
            return None
        if not file.is_plausible:
            report.error(path, "the header is damaged")
            return None
        return file

    def check_files(self) -> Iterator[None]:
        """Check each file by itself, one per step: header, chains, slots."""
        report = self._store.report
        for file in self._files:
            try:
                for sentence in check(file):
                    report.error(file.path, sentence.removeprefix(f"{file.path}: "))
                with reading(file.path) as fd:
                    end = self._geometry.entry_at(file.header.next_entry)
                    written = first_nonzero(fd, self._geometry.entry_at(0), self._geometry.entry_at(1))
                    written = first_nonzero(fd, end, self._geometry.size) if written is None else written
            except StoreError as exc:
                report.error(file.path, str(exc))
            else:
                if written is not None:
                    severity = Severity.NOTE if self._store.is_crashed else Severity.WARNING
                    report.add(severity, file.path, f"byte {written} is not zero, although it holds no entry")
            yield

    # Entries, in log order

    def _read(self) -> Iterator[_Piece]:
        """The entries of messages from `log_from` on."""
        for number, file in enumerate(self._files):
            last = file.header.begin_offset
            for piece in self._read_file(file):
                offsets = piece.offsets
                if offsets[0] < last or offsets[-1] > file.header.end_offset or (np.diff(offsets) < 0).any():
                    # Reported when the file was checked; what it holds from here on is unknown.
                    following = self._files[number + 1 :]
                    self._unknown.add(last, following[0].header.begin_offset + 1 if following else NEVER)
                    break
                last = int(offsets[-1])
                if last >= self._log_from:
                    yield piece

    def _read_file(self, file: IndexFile) -> Iterator[_Piece]:
        for first in range(1, file.header.next_entry, _CHUNK):
            size = min(_CHUNK, file.header.next_entry - first) * ENTRY.itemsize
            try:
                with reading(file.path) as fd:
                    data = read_exactly(fd, size, self._geometry.entry_at(first), file.path)
            except StoreError:  # reported when the file was checked
                return
            entries = np.frombuffer(data, ENTRY)
            hashes, offsets, seconds = (
                entries[name].astype(np.int64) for name in ("hash", "physical_offset", "seconds")
            )
            yield _Piece(file, first, hashes, offsets, seconds)

    def _take(self, end: int) -> Iterator[_Piece]:
        """The next entries, up to those of messages at `end`."""
        while (piece := self._piece) is not None:
            count = int(piece.offsets.searchsorted(end))
            if count:
                yield piece.part(0, count)
            if count < len(piece):
                self._piece = piece.part(count, len(piece))
                return
            self._piece = next(self._pieces, None)

    # Comparing

    def add(self, records: Sequence[ScannedRecord]) -> None:
        """The next messages of the log."""
        if self._pending and records[-1].physical_offset - self._pending[0].physical_offset >= _FAR:
            self._compare()
        self._pending += records
        if len(self._pending) >= _BATCH:
            self._compare()

    def _compare(self) -> None:
        """Compare the keys of all added messages with the next entries."""
        records, self._pending = self._pending, []
        start, end = records[0].physical_offset, records[-1].physical_offset + records[-1].size
        batch = _batch([record for record in records if record.sys_flag & sysflag.ROLLBACK != sysflag.ROLLBACK])
        # Offset and hash as one number: a batch of records is not so long.
        wanted = (batch.offsets[batch.numbers] - start) << _HASH_BITS | batch.hashes
        found = np.zeros(len(wanted), np.bool_)
        for piece in self._take(end):
            has = (piece.offsets - start) << _HASH_BITS | piece.hashes
            if np.array_equal(has, wanted):  # the usual case
                found[:] = True
                self._look_at_times(piece, np.arange(len(has)), batch)
                continue
            found |= np.isin(wanted, has)
            is_wanted = np.isin(has, wanted)
            self._look_at_times(piece, is_wanted.nonzero()[0], batch)
            self._look_at_others(piece, (~is_wanted).nonzero()[0].tolist(), batch.records)
        if not found.all():
            self._look_at_missing(batch.offsets[batch.numbers], ~found)
        self._keys += len(wanted)

    def _look_at_times(self, piece: _Piece, rows: NDArray[np.intp], batch: _Batch) -> None:
        """Compare the times of matching entries with those of their messages."""
        if not len(rows):
            return
        header = piece.file.header
        numbers = rows + piece.first
        times = batch.times[batch.offsets.searchsorted(piece.offsets[rows])]
        # A lookup skips files by their headers. Cutting a file back leaves whole seconds.
        if numbers[0] == 1 and times[0] != header.begin_time:
            what = f"begins at time {header.begin_time}, but its first message was stored at {times[0]}"
            self._store.report.warning(piece.file.path, what)
            self._skewed = piece.file
        if numbers[-1] == header.next_entry - 1 and not times[-1] <= header.end_time < times[-1] + 1000:
            what = f"ends at time {header.end_time}, but its last message was stored at {times[-1]}"
            self._store.report.warning(piece.file.path, what)
        if piece.file is not self._skewed:
            seconds = np.minimum(np.maximum((times - header.begin_time) // 1000, 0), _MAX_SECONDS)
            # The first entry of a file is relative to the end of the previous file.
            wrong = (piece.seconds[rows] != seconds) & (numbers > 1)
            for row in rows[wrong].tolist():
                self._fault(piece, row, "time", "the entry and its message have different times")

    def _look_at_others(self, piece: _Piece, rows: Sequence[int], records: Sequence[ScannedRecord]) -> None:
        """Report entries that match no key of `records`."""
        if not rows:
            return
        store = self._store
        by_offset = {record.physical_offset: record for record in records}
        for row in rows:
            offset = int(piece.offsets[row])
            record = by_offset.get(offset)
            if record is not None:
                # RocketMQ 5.5 indexes tags too.
                tags = props.find(record.properties, _TAGS)
                if tags is None or index_hash(f"{record.topic}#T#{props.decode(tags)}") != piece.hashes[row]:
                    self._fault(piece, row, "key", f"the entry points to {offset}, where the message has no such key")
            elif offset >= store.log_start and not store.damage.covers(offset):
                self._fault(piece, row, "place", f"the entry points to {offset}, where no message begins")

    def _look_at_missing(self, offsets: NDArray[np.int64], which: NDArray[np.bool_]) -> None:
        for row in which.nonzero()[0].tolist():
            offset, number = int(offsets[row]), self._keys + row
            if self._unknown.covers(offset):
                continue
            if offset < self._begin:
                self._early += 1
            elif self._missing is not None and self._missing.last + 1 == number:
                self._missing.last = number
                self._missing.count += 1
            else:
                self._end_missing()
                self._missing = _Missing(offset, number, 1)

    def finish(self, log_end: int) -> None:
        """After the last message."""
        store = self._store
        if self._pending:
            self._compare()
        for piece in self._take(NEVER):
            for row, offset in enumerate(piece.offsets.tolist()):
                if offset >= log_end and not store.damage.covers(offset):
                    self._fault(piece, row, "beyond", f"the entry points to {offset}, but the log ends at {log_end}")
        self._end_run()
        self._end_missing()
        if self._early:
            store.report.note(
                self._folder, f"{self._early} keys of messages before offset {self._begin} were never indexed"
            )

    def _fault(self, piece: _Piece, row: int, fault: str, what: str) -> None:
        number, path = piece.first + row, piece.file.path
        run = self._run
        if run is not None and run.fault == fault and run.path == path and run.last + 1 == number:
            run.last = number
            return
        self._end_run()
        self._run = _Run(fault, path, number, number, what)

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            is_dropped = run.fault == "beyond" and self._store.is_crashed
            severity = Severity.NOTE if is_dropped else Severity.WARNING if run.fault == "time" else Severity.ERROR
            more = "" if run.first == run.last else f"; the same up to entry {run.last}"
            self._store.report.add(severity, run.path, f"entry {run.first}: {run.what}{more}")

    def _end_missing(self) -> None:
        missing, self._missing = self._missing, None
        if missing is not None:
            severity = Severity.NOTE if missing.offset >= self._store.redone_from else Severity.WARNING
            more = f", nor do the {missing.count - 1} keys after it" if missing.count > 1 else ""
            what = f"a key of the message at {missing.offset} has no entry{more}; lookups do not find them"
            self._store.report.add(severity, self._folder, what)


def _batch(records: Sequence[ScannedRecord]) -> _Batch:
    hashes, numbers = key_hashes([record.topic for record in records], [record.properties for record in records])
    offsets = np.array([record.physical_offset for record in records], np.int64)
    times = np.array([record.store_timestamp for record in records], np.int64)
    return _Batch(records, offsets, times, hashes, numbers)


# Geometry, which no file records


def guess_geometry(paths: Sequence[Path]) -> Geometry | None:
    """How many slots and entries the index files seem to have; None if that cannot be determined.

    With the right numbers the first and the last entry have the offsets that the header says, and as many slots are in
    use. RocketMQ's own proportion, four entries for a slot, is tried first.
    """
    for path in reversed(paths):
        try:
            size = path.stat().st_size
            if INDEX_HEADER.size < size <= _GUESS_LIMIT:
                data = path.read_bytes()
                geometry = next((geometry for geometry in _candidates(data) if _fits(geometry, data)), None)
                if geometry is not None:
                    return geometry
        except OSError:
            continue
    return None


def _candidates(data: bytes) -> Iterator[Geometry]:
    units = (len(data) - INDEX_HEADER.size) // SLOT.itemsize
    per_entry = ENTRY.itemsize // SLOT.itemsize
    slots, rest = divmod(units, 1 + 4 * per_entry)
    if not rest:
        yield Geometry(slots, 4 * slots)
    header = IndexHeader.unpack(data[: INDEX_HEADER.size])
    used = header.next_entry - 1
    # The file ends with an entry, whatever the geometry: so it is known where entries may begin.
    entries = np.frombuffer(data[INDEX_HEADER.size + (len(data) - INDEX_HEADER.size) % ENTRY.itemsize :], ENTRY)
    offsets = entries["physical_offset"]
    if 0 < used < len(entries):
        zeroth = np.arange(len(entries) - used)
        fits = (offsets[zeroth + 1] == header.begin_offset) & (offsets[zeroth + used] == header.end_offset)
        for at in zeroth[fits].tolist():
            slots = units - (len(entries) - at) * per_entry
            if slots > 0:
                yield Geometry(slots, len(entries) - at)


def _fits(geometry: Geometry, data: bytes) -> bool:
    header = IndexHeader.unpack(data[: INDEX_HEADER.size])
    if geometry.slots < 1 or geometry.size != len(data) or not 1 <= header.next_entry <= geometry.entries:
        return False
    slots = np.frombuffer(data, SLOT, geometry.slots, geometry.slot_at(0))
    zeroth, first = (data[geometry.entry_at(number) :][: ENTRY.itemsize] for number in (0, 1))
    return (
        int(np.count_nonzero(slots)) == header.slots_used
        and int(slots.max()) == header.next_entry - 1
        and not any(zeroth)
        and (header.next_entry == 1 or any(first))
    )
