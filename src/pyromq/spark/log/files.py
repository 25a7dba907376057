"""Reads the files of a commit log without a store: finds where records begin, even after damage, and where they end.

A record can be found without any index: search for its magic, and it is one if its own physical offset matches
its place. A message that contains such bytes by chance would have to guess its own place in the log.
"""

from __future__ import annotations

import bisect
import mmap
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import CorruptRecord
from pyromq.protocol.record import (
    MAGIC,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    OFFSET,
    PHYSICAL_OFFSET_AT,
    SIZE_AND_MAGIC,
    TOTAL_SIZE,
    HeadKind,
    decode_record,
    read_head,
    store_timestamp_of,
)
from pyromq.store.format import ABORT, CHECKPOINT, CHECKPOINT_TIMES, COMMIT_LOG, is_segment_name

from .store_facts import not_a_store

if TYPE_CHECKING:
    from pathlib import Path

_MAGICS = {MAGIC.pack(MAGIC_V1), MAGIC.pack(MAGIC_V2)}
_COMMON = MAGIC.pack(MAGIC_V1)[:3]  # of both versions, which differ in the last byte
_BLOCK = 64 << 10
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_PROBE = 4096  # bytes of each later chunk
_LOOKED_AT = 8 << 20  # bytes after the end
_STEP_BACK = 256 << 10  # more than most messages
_WRITER_TAKES = 0.05  # seconds; a record being written is whole long before


class LogFile(NamedTuple):
    """A file of the log: its first byte has the physical offset `start`."""

    start: int
    path: str
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


def log_files(root: Path) -> list[LogFile]:
    """The log files of the store at `root`, in order, without empty ones."""
    folder = root / COMMIT_LOG
    if not folder.is_dir():
        raise not_a_store(root)
    files = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if is_segment_name(entry.name) and entry.is_file():
            try:
                length = entry.stat().st_size
            except FileNotFoundError:  # deleted meanwhile
                continue
            if length:
                files.append(LogFile(int(entry.name), entry.path, length))
    return files


def mapped(file: LogFile) -> mmap.mmap:
    """The bytes of a file, mapped. OSError if it no longer exists."""
    with open(file.path, "rb") as opened:  # noqa: PTH123 - a path for executors is a string
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def next_record(data: mmap.mmap | bytes, at: int, origin: int, stop: int | None = None) -> int | None:
    """Where the first record from `at` on begins in `data`, whose first byte has the physical offset `origin`.

    None if there is none before `stop`.
    """
    last = len(data) if stop is None else min(len(data), stop - 1 + MAGIC_AT + len(_COMMON))
    found = data.find(_COMMON, at + MAGIC_AT, last)
    while found >= 0:
        pos = found - MAGIC_AT
        if data[found : found + MAGIC.size] in _MAGICS and is_record(data, pos, origin):
            return pos
        found = data.find(_COMMON, found + 1, last)
    return None


def is_record(data: mmap.mmap | bytes, pos: int, origin: int) -> bool:
    """Whether a whole record that belongs there begins at `pos`; its body may be damaged."""
    if len(data) - pos < MIN_RECORD_SIZE or OFFSET.unpack_from(data, pos + PHYSICAL_OFFSET_AT)[0] != origin + pos:
        return False
    try:
        decode_record(data, pos, check_crc=False)
    except CorruptRecord:
        return False
    return True


def head_at(data: mmap.mmap | bytes, pos: int, origin: int) -> HeadKind:
    """The head of the record at `pos`. CorruptRecord names the physical offset."""
    try:
        return read_head(data, pos)[0]
    except CorruptRecord as exc:
        raise CorruptRecord(exc.reason, origin + pos) from exc


def record_size_at(data: mmap.mmap | bytes, pos: int) -> int:
    return int(TOTAL_SIZE.unpack_from(data, pos)[0])


def first_store_time(file: LogFile) -> int | None:
    """When the first record of a file was stored; None if there is none."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        head = os.pread(fd, MIN_RECORD_SIZE, 0)
    finally:
        os.close(fd)
    if len(head) < MIN_RECORD_SIZE or head[MAGIC_AT : MAGIC_AT + MAGIC.size] not in _MAGICS:
        return None
    return _store_time(head, 0)


def _store_time(data: mmap.mmap | bytes, pos: int) -> int:
    return store_timestamp_of(data, pos)


def first_since(files: list[LogFile], time_: int, end: int) -> int:
    """Where the first record stored at this time or later lies, if times ascend; `end` if there is none."""
    older = [file for file in files if (first := first_store_time(file)) is not None and first < time_]
    if not older:
        return files[0].start if files else end
    file = older[-1]
    with mapped(file) as data:
        limit = min(file.length, end - file.start)

        def is_late(at: int) -> bool:
            found = next_record(data, at, file.start, limit)
            return found is None or _store_time(data, found) >= time_

        at = bisect.bisect_left(range(limit), True, key=is_late)
        found = next_record(data, at, file.start, limit)
    return min(end, file.end if found is None else file.start + found)


def queues_written_until(root: Path) -> int | None:
    """The store time up to which queue files are certainly complete; None if they are complete.

    A running broker may keep entries in memory for a minute after its checkpoint, and a killed one lost them.
    """
    if not (root / ABORT).exists():  # the store was closed, or never opened
        return None
    try:
        data = (root / CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return 0
    return int(CHECKPOINT_TIMES.unpack_from(data)[1]) if len(data) >= CHECKPOINT_TIMES.size else 0


def log_end(files: list[LogFile]) -> int:
    """The physical offset where the written part of the log ends, as of now.

    A scan is planned up to here, so that a repeated task reads the same, and nothing still being written. If
    the log ends in damage, the scan deals with it: its last file then counts as a whole.
    """
    while files:
        last = files[-1]
        end = _file_end(last)
        if end is None:
            time.sleep(_WRITER_TAKES)
            end = _file_end(last)
        if end != 0:
            return last.end if end is None else last.start + end
        files = files[:-1]  # made in advance
    return 0


def _file_end(file: LogFile) -> int | None:
    """How many bytes of the last file are written; None if its records end in damage."""
    with mapped(file) as data:
        pos = _record_near_the_end(data, _last_written(data), file.start)
        try:
            while len(data) - pos >= SIZE_AND_MAGIC.size:
                kind, size = read_head(data, pos)
                if kind is HeadKind.BLANK:
                    return file.length
                if kind is HeadKind.END:
                    return pos if _is_unwritten(file, data, pos) else None
                if not is_record(data, pos, file.start):
                    return None
                pos += size
        except CorruptRecord:
            return None
        return pos


def _last_written(data: mmap.mmap) -> int:
    """Roughly where the written part ends; earlier if a message contains that many zeros."""
    low, high = 0, -(-len(data) // _BLOCK)
    while low < high:
        middle = (low + high) // 2
        if data[middle * _BLOCK : (middle + 1) * _BLOCK].strip(b"\0"):
            low = middle + 1
        else:
            high = middle
    return min(low * _BLOCK, len(data))


def _record_near_the_end(data: mmap.mmap, end: int, origin: int) -> int:
    """A place shortly before `end` where a record begins; 0 if none is found."""
    step = _STEP_BACK
    while step < end:
        pos = next_record(data, end - step, origin)
        if pos is not None and pos < end:
            return pos
        step *= 4
    return 0


def _is_unwritten(file: LogFile, data: mmap.mmap, pos: int) -> bool:
    """Whether no record follows the zeros at `pos`, judged by the bytes right after them and by samples.

    A broker takes the first zeros for the end. The rest of a file of 1 GiB takes half a second to read.
    """
    far = pos + _LOOKED_AT
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while pos < file.length:
            near = min(_CHUNK, file.length - pos)
            chunk = os.pread(fd, near if pos < far else _PROBE, pos)
            if chunk != _ZEROS[: len(chunk)]:
                # A record itself begins with zeros: its size comes first.
                return next_record(data, max(0, pos - SIZE_AND_MAGIC.size), file.start) is None
            pos += near
        return True
    finally:
        os.close(fd)
