"""Checks the commit log: every file from its first record to its end, even past damage.

Recovery stops at the first record that is not whole; a check wants to know what follows. The next record is
found by its magic and its physical offset, which says where it belongs. Files are read piece by piece: a map
of a file on a failing disk would kill the process.
"""

from __future__ import annotations

import os
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import CorruptRecord
from pyromq.protocol import properties as props
from pyromq.protocol import record_crc
from pyromq.protocol.record import (
    MAGIC,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    OFFSET,
    PHYSICAL_OFFSET_AT,
    SIZE_AND_MAGIC,
    store_timestamp_of,
)

from ..scan import scan
from .files import first_nonzero, next_data
from .findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ..scan import ScannedRecord
    from .context import Surroundings
    from .files import FoundSegment

_WINDOW = 256 << 10  # fits into the processor's cache
_HEAD = SIZE_AND_MAGIC.size
_MAGICS = tuple(MAGIC.pack(magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
_PLACE_END = PHYSICAL_OFFSET_AT + OFFSET.size
_RECORD_CRC = f"{props.CRC32}{props.NAME_VALUE_SEPARATOR}".encode()
_store_time = attrgetter("store_timestamp")


class _Trouble(NamedTuple):
    """A finding that is reported as `last` if no log follows it, and as an error otherwise."""

    last: Severity
    path: Path
    what: str


class _Window:
    """Part of a file in memory: `data` begins at byte `base` of the file, and `more` bytes follow it there."""

    def __init__(self, fd: int, length: int) -> None:
        self.fd = fd
        self._length = length
        self.data = b""
        self.base = 0

    @property
    def more(self) -> int:
        return self._length - self.base - len(self.data)

    def fetch(self, at: int, size: int) -> bool:
        """Load the `size` bytes at `at`; False if the file ends before. OSError if it cannot be read."""
        if at < self.base or at + size > self.base + len(self.data):
            self.data = os.pread(self.fd, min(max(size, _WINDOW), self._length - at), at)
            self.base = at
        return at + size <= self.base + len(self.data)


class LogCheck:
    """Walks the log. `end` is where its records end so far, `newest` the store time of the last one."""

    def __init__(self, files: Sequence[FoundSegment], file_size: int, largest: int, store: Surroundings) -> None:
        """A record that claims to be larger than `largest` is damaged."""
        self._files = files
        self._file_size = file_size
        self._report = store.report
        self._damage = store.damage
        self._is_crashed = store.is_crashed
        self._largest = largest
        self.start = files[0].start if files else 0
        self.end = self.start
        self.newest = 0
        self.records = 0
        # Bytes walked so far, and in total.
        self.done = 0
        self.total = len(files) * file_size
        self.is_torn = False  # it ended in bytes that may have been newer records
        # Whether the log seems to end at `end` in the middle of a file, and whether that was reported.
        self._has_ended = False
        self._is_reported = False
        self._troubles: list[_Trouble] = []
        for before, after in pairwise(files):
            if after.start != before.start + file_size:
                self._damage.add(before.start + file_size, after.start)

    def walk(self) -> Iterator[list[ScannedRecord]]:
        """All readable records in order, including those whose bodies do not match their CRCs."""
        for number, file in enumerate(self._files):
            self.done = number * self._file_size
            try:
                fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as exc:
                self._unreadable(file, 0, exc)
                continue
            try:
                if self._is_spare(file, fd):
                    continue
                for records in self._walk_file(file, fd):
                    self.done = number * self._file_size + self.end - file.start
                    yield records
            except OSError as exc:
                self._unreadable(file, max(0, self.end - file.start), exc)
            finally:
                os.close(fd)
        self._settle(at_end=True)
        self.done = self.total

    def _walk_file(self, file: FoundSegment, fd: int) -> Iterator[list[ScannedRecord]]:
        window = _Window(fd, file.length)
        at: int | None = 0
        while at is not None and window.fetch(at, _HEAD):
            records, reason = self._scan(file, window, at)
            if records:
                at = records[-1].physical_offset + records[-1].size - file.start
                self.end = file.start + at
                yield records
            elif reason:
                at = self._behind(file, window, at, reason)
            else:
                at = self._behind_head(file, window, at)
        if at is not None:
            self._break_off(file, at, f"the file ends {file.length - at} bytes after the last record")

    def _scan(self, file: FoundSegment, window: _Window, at: int) -> tuple[list[ScannedRecord], str]:
        """The records from `at` on as far as they are whole; none, and the error, if the first is damaged."""
        start = file.start + window.base
        records: list[ScannedRecord] = []
        try:
            # The records before the damaged one stay in the list.
            records += scan(window.data, at - window.base, start, check_crc=True, more=window.more)
        except CorruptRecord as exc:
            if not records:
                return self._with_bad_crc(file, window, at, exc.reason)
        if records:
            self._settle()
            self._look_at(records, file, window)
        return records, ""

    def _with_bad_crc(
        self, file: FoundSegment, window: _Window, at: int, reason: str
    ) -> tuple[list[ScannedRecord], str]:
        """The record at `at` if only its body is damaged: it keeps its place in the log and in its queue."""
        start = file.start + window.base
        try:
            record = next(scan(window.data, at - window.base, start, check_crc=False, more=window.more), None)
        except CorruptRecord:
            return [], reason
        if record is None:
            return [], reason
        self._trouble(Severity.ERROR, file, f"record at {record.physical_offset}: {reason}")
        self.records += 1
        self.newest = max(self.newest, record.store_timestamp)
        return [record], ""

    def _look_at(self, records: list[ScannedRecord], file: FoundSegment, window: _Window) -> None:
        """Report what is wrong with whole records."""
        self.records += len(records)
        times = [self.newest, *map(_store_time, records)]
        if times != sorted(times):
            for record, (before, after) in zip(records, pairwise(times), strict=True):
                if after < before:
                    self._report.warning(
                        file.path,
                        f"record at {record.physical_offset}: stored at {after}, the one before it at {before}",
                    )
        self.newest = times[-1]
        for record in records:
            if record.properties.startswith(_RECORD_CRC, -record_crc.LENGTH):
                at = record.physical_offset - file.start - window.base
                if not record_crc.verify(window.data[at : at + record.size]):
                    self._report.error(
                        file.path, f"record at {record.physical_offset}: does not match the CRC in its properties"
                    )

    # Places without a record

    def _behind_head(self, file: FoundSegment, window: _Window, at: int) -> int | None:
        """Where the log continues if a scan ended at `at` without an error; None if not in this file."""
        size, magic = SIZE_AND_MAGIC.unpack_from(window.data, at - window.base)
        if magic == MAGIC_BLANK:
            left = self._file_size - at
            if size != left:
                self._report.error(
                    file.path, f"blank record at {file.start + at}: says {size} bytes where {left} are left"
                )
            self._settle()
            self.end = file.start + self._file_size
            return None
        if magic == 0:
            return self._behind_zeros(file, window, at)
        if size > self._largest:
            return self._behind(file, window, at, f"record of {size} bytes, larger than any message")
        # It continues after the window.
        if not window.fetch(at, size):
            return self._behind(file, window, at, "the file has shrunk")
        return at

    def _behind_zeros(self, file: FoundSegment, window: _Window, at: int) -> int | None:
        written = first_nonzero(window.fd, at, file.length)
        if written is None:
            self._end_here(file, at)
            return None
        # A record may begin with zeros: its size comes first.
        following = self._next_record(file, window, max(at + 1, written - MAGIC_AT + 1))
        if following is None:
            self._end_here(file, at, is_reported=True)
            self._trouble(
                Severity.WARNING,
                file,
                f"bytes after the end of the log are not zero: it ends at {file.start + at}, they begin at "
                f"{file.start + written}",
            )
            return None
        self._report.error(file.path, f"{following - at} zero bytes at {file.start + at} where a record should be")
        self._damage.add(file.start + at, file.start + following)
        return following

    def _behind(self, file: FoundSegment, window: _Window, at: int, reason: str) -> int | None:
        """Where the next record begins after bytes that are not one; None if not in this file."""
        following = self._next_record(file, window, at + 1)
        if following is None:
            self._break_off(file, at, f"record at {file.start + at}: {reason}; no other record follows in this file")
            return None
        self._report.error(
            file.path, f"record at {file.start + at}: {reason}; the next one begins at {file.start + following}"
        )
        self._damage.add(file.start + at, file.start + following)
        return following

    def _next_record(self, file: FoundSegment, window: _Window, at: int) -> int | None:
        """The first place from `at` on where a record or a blank record begins that belongs there."""
        while window.fetch(at, _HEAD):
            for head in _heads(window.data, at - window.base):
                at = window.base + head
                size, magic = SIZE_AND_MAGIC.unpack_from(window.data, head)
                if magic == MAGIC_BLANK:
                    if size == self._file_size - at:
                        return at
                elif window.fetch(at, _PLACE_END) and _place(window.data, at - window.base) == file.start + at:
                    return at
                elif window.base == at:
                    break  # it was at the edge, and the window has moved on
            else:
                at = window.base + len(window.data) - _HEAD
                # A head may begin with zeros that were never written.
                at = max(at, next_data(window.fd, at, file.length)[0] - _HEAD)
            at += 1
        return None

    # The end

    def _end_here(self, file: FoundSegment, at: int, *, is_reported: bool = False) -> None:
        self.end = file.start + at
        self._has_ended = True
        self._is_reported = is_reported

    def _break_off(self, file: FoundSegment, at: int, what: str) -> None:
        """The rest of this file from `at` on is lost, unless this is the torn end of the log."""
        self._end_here(file, at, is_reported=True)
        self.is_torn = True
        self._damage.add(self.end, file.start + self._file_size)
        if file.length == self._file_size:
            self._trouble(Severity.ERROR, file, what)
        # Otherwise the file's wrong length was reported, which explains it.

    def _is_spare(self, file: FoundSegment, fd: int) -> bool:
        """Whether a file lies beyond the end of the log; only files created in advance may."""
        if not self._has_ended:
            return False
        if first_nonzero(fd, 0, file.length) is None:
            self._report.add(
                Severity.NOTE if self._is_crashed else Severity.WARNING,
                file.path,
                f"holds nothing; the log ends at {self.end}, in a file before it",
            )
            return True
        self._has_ended = self.is_torn = False
        if not self._is_reported:
            self._report.error(file.path, f"continues the log, which broke off at {self.end} without a blank record")
        self._damage.add(self.end, file.start)
        self._settle()
        return False

    def _unreadable(self, file: FoundSegment, at: int, exc: OSError) -> None:
        self._report.error(file.path, f"cannot be read from {file.start + at} on: {exc.strerror}")
        self._damage.add(file.start + at, file.start + self._file_size)
        self._has_ended = False

    def _trouble(self, last: Severity, file: FoundSegment, what: str) -> None:
        if last is Severity.ERROR and not self._is_crashed:
            self._report.error(file.path, what)
            return
        self._troubles.append(_Trouble(Severity.NOTE if self._is_crashed else last, file.path, what))

    def _settle(self, *, at_end: bool = False) -> None:
        """Report the findings so far: more log follows them, or this is the end."""
        for last, path, what in self._troubles:
            self._report.add(last if at_end else Severity.ERROR, path, what)
        self._troubles.clear()


def first_store_time(file: FoundSegment) -> int:
    """When the first record of a file was stored; 0 if there is none or it cannot be read."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            head = os.pread(fd, MIN_RECORD_SIZE, 0)
        finally:
            os.close(fd)
    except OSError:
        return 0
    if len(head) < MIN_RECORD_SIZE or SIZE_AND_MAGIC.unpack_from(head)[1] not in (MAGIC_V1, MAGIC_V2):
        return 0
    return store_timestamp_of(memoryview(head))


def _place(data: bytes, at: int) -> int:
    """The physical offset in the record at `at`."""
    return int(OFFSET.unpack_from(data, at + PHYSICAL_OFFSET_AT)[0])


def _heads(data: bytes, at: int) -> Iterator[int]:
    """Where records may begin in `data` from `at` on, by their magics, in order."""
    found = {magic: data.find(magic, at + MAGIC_AT) for magic in _MAGICS}
    while found := {magic: place for magic, place in found.items() if place >= 0}:
        magic = min(found, key=found.__getitem__)
        yield found[magic] - MAGIC_AT
        found[magic] = data.find(magic, found[magic] + 1)
