"""Finds the files of a store for a check: reports what does not belong there, and keeps the rest readable."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..format import CONSUME_QUEUE_EXT, INDEX, index_size, is_index_name, is_segment_name, queue_folders
from .findings import Report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..config import StoreConfig

_QUEUES_TO_ASK = 200  # to determine the common file size
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


class FoundSegment(NamedTuple):
    """A segment on disk. `length` is how many bytes can be read: less than its size if it was cut."""

    start: int
    path: Path
    length: int


def listed(folder: Path, report: Report) -> list[os.DirEntry[str]]:
    """The content of `folder`, sorted by name; empty if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as exc:
        report.error(folder, f"cannot be read: {exc.strerror}")
        return []


def find_segments(folders: Iterable[Path], size: int, report: Report) -> list[FoundSegment]:
    """The segments in `folders`, in order. Reports stray files, wrong sizes and gaps."""
    found: dict[int, FoundSegment] = {}
    for folder in folders:
        for entry in listed(folder, report):
            path = folder / entry.name
            if entry.is_dir():
                report.warning(path, "is a folder among segments; RocketMQ 4.9 does not start with it")
            elif not is_segment_name(entry.name):
                report.error(path, "is not a segment; move it away, or brokers will not start")
            elif (start := int(entry.name)) % size:
                report.error(path, f"does not begin at a multiple of {size}, the size of segments")
            elif start in found:
                report.error(path, f"is the same segment as {found[start].path}")
            elif (length := _length(entry)) is not None:
                if length != size:
                    report.error(path, f"has {length} bytes where segments have {size}")
                found[start] = FoundSegment(start, path, min(length, size))
    segments = [found[start] for start in sorted(found)]
    for before, after in pairwise(segments):
        if after.start != before.start + size:
            report.error(after.path, f"begins at {after.start}, but the file before it ends at {before.start + size}")
    return segments


def next_data(fd: int, at: int, end: int) -> tuple[int, int]:
    """The next stretch from `at` on, up to `end`, that may have been written; empty if there is none.

    Unwritten parts read as zeros, but reading them costs time and page cache.
    """
    try:
        start = os.lseek(fd, at, os.SEEK_DATA)
        return min(start, end), min(os.lseek(fd, start, os.SEEK_HOLE), end)
    except OSError as exc:
        # A hole up to the end of the file, or a file system that cannot tell holes from zeros.
        return end if exc.errno == errno.ENXIO else at, end


def first_nonzero(fd: int, start: int, end: int) -> int | None:
    """The first byte from `start` on, before `end`, that is not zero."""
    at = start
    while at < end:
        at, stop = next_data(fd, at, end)
        while at < stop:
            chunk = os.pread(fd, min(_CHUNK, stop - at), at)
            if not chunk:
                return None
            if chunk != _ZEROS and (rest := chunk.lstrip(b"\0")):
                return at + len(chunk) - len(rest)
            at += len(chunk)
    return None


def _length(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_size
    except OSError:  # deleted meanwhile: the store is in use
        return None


# Sizes, which no file records


def fitted(config: StoreConfig, given: Collection[str] = ()) -> StoreConfig:
    """`config` with the sizes that the files in its root seem to have; fields in `given` stay."""
    root = Path(config.root)
    queues = islice(queue_folders(root), _QUEUES_TO_ASK)
    ext = islice(queue_folders(root, CONSUME_QUEUE_EXT), _QUEUES_TO_ASK)
    sizes = {
        "commit_log_file_size": usual_size(config.commit_log_folders),
        "consume_queue_file_size": usual_size(folder for _, _, folder in queues),
        "consume_queue_ext_file_size": usual_size(folder for _, _, folder in ext),
    }
    if not {"hash_slots", "index_entries"} & set(given):
        sizes |= _index_sizes(root / INDEX, config)
    known = {name: size for name, size in sizes.items() if size > 0 and name not in given}
    return dataclasses.replace(config, **known)  # type: ignore[arg-type]  # these fields are integers


def usual_size(folders: Iterable[Path]) -> int:
    """The size of most segments that fits their names; 0 if there are none."""
    entries = [entry for folder in folders for entry in listed(folder, Report()) if is_segment_name(entry.name)]
    lengths = Counter(length for entry in entries if (length := _length(entry)))
    starts = [int(entry.name) for entry in entries]

    def rank(size: int) -> tuple[int, int, int]:
        return sum(start % size == 0 for start in starts), lengths[size], size

    return max(lengths, key=rank, default=0)


def _index_sizes(folder: Path, config: StoreConfig) -> dict[str, int]:
    paths = [folder / entry.name for entry in listed(folder, Report()) if is_index_name(entry.name)]
    if not paths or index_size(config.hash_slots, config.index_entries) in {path.stat().st_size for path in paths}:
        return {}
    from .index import guess_geometry

    geometry = guess_geometry(paths)
    return {} if geometry is None else {"hash_slots": geometry.slots, "index_entries": geometry.entries}
