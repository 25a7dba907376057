"""Which task of a scan reads which part of a store."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import InputPartition

from pyromq.errors import StoreError
from pyromq.store.format import CONSUME_QUEUE

from .log_files import first_store_time, log_end, log_files
from .queue_files import queues_of, real
from .selection import is_internal_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .log_files import LogFile
    from .options import LogOptions
    from .queue_files import QueueFiles

# A queue is worth its detour as long as its messages are less than half of what a walk would read.
_WORTH_A_DETOUR = 0.5


@dataclass(frozen=True)
class LogPart(InputPartition):
    """The records that begin in a stretch of a file, by physical offsets."""

    file: LogFile
    start: int
    end: int


@dataclass(frozen=True)
class QueuePart(InputPartition):
    """Messages of a queue, by queue offsets, as far as they lie in these files and in front of `log_end`."""

    queue: QueueFiles
    first: int
    end: int
    files: tuple[LogFile, ...]
    log_start: int
    log_end: int


Part: TypeAlias = LogPart | QueuePart


def plan(options: LogOptions) -> list[Part]:
    """The tasks of a scan. Takes a look at the files; what is stored from now on is not part of the scan."""
    root = Path(options.path)
    every = log_files(root)
    end = log_end(every)
    files = _in_time([file for file in every if file.start < end], options)
    start = max(files[0].start, options.starting_physical_offset or 0) if files else 0
    if files:
        end = min(end, files[-1].end)
    if options.ending_physical_offset is not None:
        end = min(end, options.ending_physical_offset)
    files = [file for file in files if file.start < end and file.end > start]
    if not files:
        return []
    via = options.via
    if via != "log" and (root / CONSUME_QUEUE / "CURRENT").exists():
        if via == "queue":
            raise StoreError(f"{root} keeps its queues in RocksDB, which cannot be read; use via=log")
        via = "log"
    if via == "queue" or (via == "auto" and options.topics):
        queues = _queue_parts(root, options, files, start, end)
        queued = sum(size for _, size in queues)
        walked = sum(min(file.end, end) - max(file.start, start) for file in files)
        if via == "queue" or queued < _WORTH_A_DETOUR * walked:
            return [part for part, _ in queues]
    return [*_log_parts(options, files, start, end)]


def _in_time(files: list[LogFile], options: LogOptions) -> list[LogFile]:
    """Without files that hold only older or only younger records: store times ascend along the log."""
    since, until = options.starting_timestamp, options.ending_timestamp
    if since is None and until is None:
        return files
    times = [first_store_time(file) for file in files]
    kept = []
    for (file, begins), (_, ends) in pairwise([*zip(files, times, strict=True), (None, None)]):
        if since is not None and ends is not None and ends < since:
            continue
        if until is not None and begins is not None and begins >= until:
            continue
        if file is not None:
            kept.append(file)
    return kept


def _log_parts(options: LogOptions, files: list[LogFile], start: int, end: int) -> Iterable[LogPart]:
    for file in files:
        low, high = max(file.start, start), min(file.end, end)
        # What "the rest of the file" is must not depend on how it was cut.
        parts = 1 if options.on_corrupt == "stop" else max(1, -(-(high - low) // options.partition_bytes))
        bounds = [low + (high - low) * number // parts for number in range(parts + 1)]
        yield from (LogPart(file, begin, stop) for begin, stop in pairwise(bounds))


def _queue_parts(
    root: Path, options: LogOptions, files: list[LogFile], start: int, end: int
) -> list[tuple[QueuePart, float]]:
    """Parts with the bytes that their messages take, estimated."""
    found = []
    for queue in queues_of(root, options.topics or None):
        if not options.topics and not options.include_internal and is_internal_topic(queue.topic):
            continue
        stop = queue.search(end, queue.end())
        first = queue.search(start, stop)
        mean = queue.mean_size(stop)
        if first >= stop or not mean:
            continue
        per_part = max(1, int(options.partition_bytes / mean))
        parts = -(-(stop - first) // per_part)
        bounds = [first + (stop - first) * number // parts for number in range(parts + 1)]
        found += [
            (_queue_part(queue, low, high, files, start, end), (high - low) * mean) for low, high in pairwise(bounds)
        ]
    return found


def _queue_part(queue: QueueFiles, first: int, end: int, files: list[LogFile], low: int, high: int) -> QueuePart:
    """With those files only that its messages lie in: parts are many, and so may files be."""
    # Physical offsets ascend along a queue.
    begin, stop = real(queue.entries(first, first + 1)), real(queue.entries(end - 1, end))
    lying = [
        file
        for file in files
        if (not len(begin) or file.end > begin["offset"][0]) and (not len(stop) or file.start <= stop["offset"][0])
    ]
    return QueuePart(queue.only(first, end), first, end, tuple(lying), low, high)
