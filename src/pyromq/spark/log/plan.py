"""Plans a scan: which task reads which part of a store.

A message can be found in three ways: along the log, by its queue entry, and by the index. A part says
where to look and which records are wanted, so a task needs nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import InputPartition

from pyromq.errors import ConfigError, StoreError
from pyromq.store.format import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, queue_folders

from ..decode.selection import is_internal_topic
from ..moments import shown
from .files import first_since, first_store_time, log_end, log_files, queues_written_until
from .filters import LogFilters
from .index import IndexedKeys, find
from .queue_files import QueueSlice, may_have_tag, queues_of, real, tag_codes
from .store_facts import check_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..decode.selection import Selection
    from ..options import LogOptions
    from .files import LogFile
    from .queue_files import QueueFiles

logger = logging.getLogger(__name__)

# Reading by queue pays as long as its messages are less than half of what a walk would read.
_WORTH_A_DETOUR = 0.5
# Even a small scan uses a few tasks, unless it is not worth the cost of a task.
_FEW, _WORTH_A_TASK = 8, 16 << 20
_PLACES = 10_000  # worth a task
_LEAST_SHARE = 1e-3  # share of messages with a tag, if a sample has none


@dataclass(frozen=True)
class LogPart(InputPartition):
    """The wanted records that begin in a stretch of a file, by physical offsets."""

    file: LogFile
    start: int
    end: int
    selection: Selection


@dataclass(frozen=True)
class QueuePart(InputPartition):
    """The wanted messages of queues within a stretch of the log, which these files cover."""

    queues: tuple[QueueSlice, ...]
    files: tuple[LogFile, ...]
    start: int
    end: int
    selection: Selection


@dataclass(frozen=True)
class PlacesPart(InputPartition):
    """The wanted records among those that may begin at these physical offsets."""

    files: tuple[LogFile, ...]
    places: tuple[int, ...]
    selection: Selection


Part: TypeAlias = LogPart | QueuePart | PlacesPart


def plan(options: LogOptions, filters: LogFilters | None = None) -> list[Part]:
    """The tasks of a scan. Looks at the files; messages stored from now on are not part of the scan."""
    filters = filters or LogFilters()
    filters = filters.within(options.starting_physical_offset, options.ending_physical_offset)
    selection = filters.selection(options)
    brokers = filters.pushed.brokers
    if selection.chooses_nothing or (brokers is not None and options.broker_name not in brokers):
        return []
    root = Path(options.path)
    every = log_files(root)
    check_topics(root, options)
    end = log_end(every)
    _check_start(options, every, end)
    files = _in_time([file for file in every if file.start < end], selection)
    start = max(files[0].start, filters.start or 0) if files else 0
    if files:
        end = min(end, files[-1].end)
    if filters.end is not None:
        end = min(end, filters.end)
    files = [file for file in files if file.start < end and file.end > start]
    if not files:
        return []
    return Plan(root, options, filters, selection, files, start, end).parts()


def _check_start(options: LogOptions, files: list[LogFile], end: int) -> None:
    """A start beyond the end reads nothing: say so."""
    first = options.starting_physical_offset
    if first is not None and first > end:
        raise ConfigError(f"startingPhysicalOffset {first} is beyond the end of the log, {end}")
    since = options.starting_timestamp
    if since is not None and files and first_since(files, since, end) >= end:
        logger.warning("startingTimestamp: nothing was stored at %s or later in %s", shown(since), options.path)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read: records that begin from `start` on and before `end`, all in `files`."""

    root: Path
    options: LogOptions
    filters: LogFilters
    selection: Selection
    files: list[LogFile]
    start: int
    end: int

    def parts(self) -> list[Part]:
        via = self.options.via
        if via != "log" and (self.root / CONSUME_QUEUE / "CURRENT").exists():
            if via == "queue":
                raise StoreError(f"{self.root} keeps its queues in RocksDB, which cannot be read; use via=log")
            via = "log"
        if via == "auto" and not self._queues_tell_all():
            via = "log"
        if via == "auto" and (indexed := self._by_index()) is not None:
            return indexed
        if via == "queue" or (via == "auto" and self.selection.names_queues):
            queued = self.queued_end()
            slices = [(each, size) for each, size in self._slices(queued) if size]
            sizes = self._length(queued, self.end) + sum(size for _, size in slices)
            if via == "queue" or sizes < _WORTH_A_DETOUR * self._length(self.start, self.end):
                return [*self.queue_parts(slices, queued), *self._log_parts(queued, self.end)]
        return [*self._log_parts(self.start, self.end)]

    # Along the log

    def _log_parts(self, start: int, end: int) -> Iterable[LogPart]:
        for file in self._files(start, end):
            low, high = max(file.start, start), min(file.end, end)
            # "The rest of the file" must not depend on how the scan was split.
            size = high - low if self.options.on_corrupt == "stop" else self.options.partition_bytes
            for begin, stop in pairwise(_even_cuts(low, high, size)):
                yield LogPart(file, begin, stop, self.selection)

    def _files(self, start: int, end: int) -> list[LogFile]:
        return [file for file in self.files if file.start < end and file.end > start] if start < end else []

    def _length(self, start: int, end: int) -> int:
        return sum(min(file.end, end) - max(file.start, start) for file in self._files(start, end))

    # By queues

    def _queues_tell_all(self) -> bool:
        """Whether each wanted topic has readable queues. One without any may have lost them.

        Queues of undivided batches, of 5.x, cannot.
        """
        known = {topic for topic, _, _ in queue_folders(self.root)}
        batches = {topic for topic, _, _ in queue_folders(self.root, BATCH_CONSUME_QUEUE)}
        wanted = self.selection.topics
        if wanted is None:
            return bool(known) and not batches
        return wanted <= known and not wanted & batches

    def queued_end(self) -> int:
        """Records before this place have entries in their queue files; later ones may not yet."""
        until = queues_written_until(self.root)
        return self.end if until is None else max(self.start, first_since(self.files, until, self.end))

    def _slices(self, queued: int) -> Iterable[tuple[QueueSlice, float]]:
        """The wanted messages of each queue, with their estimated bytes."""
        selection = self.selection
        for queue in queues_of(self.root, selection.topics):
            if selection.queue_ids is not None and queue.queue_id not in selection.queue_ids:
                continue
            if selection.topics is None and not selection.internal and is_internal_topic(queue.topic):
                continue
            whole = QueueSlice(queue, queue.first, queue.end()).between(self.start, queued)
            first, end = max(whole.first, selection.least_offset), whole.end
            if selection.most_offset is not None:
                end = min(end, selection.most_offset)
            if first < end:
                yield QueueSlice(queue, first, end), (end - first) * self.mean_size(queue, end)

    def mean_size(self, queue: QueueFiles, end: int) -> float:
        """Mean bytes per message of the queue, wanted or not."""
        found = queue.sample(end)
        if not len(found):
            return 0.0
        has_tag = may_have_tag(found, tag_codes(queue.topic, self.selection.tags))
        return float(found["size"].mean()) * max(float(has_tag.mean()), _LEAST_SHARE)

    def queue_parts(self, slices: Sequence[tuple[QueueSlice, float]], queued: int) -> Iterable[QueuePart]:
        """One part per stretch of the log, for all queues together, so that every page is read once."""
        total = sum(size for _, size in slices)
        size = min(self.options.partition_bytes, max(total / _FEW, _WORTH_A_TASK))
        for start, end in pairwise([self.start, *self._cuts(slices, size), queued]):
            queues = tuple(near for each, _ in slices if (near := each.near(start, end)).first < near.end)
            if queues:
                yield QueuePart(queues, tuple(self._files(start, end)), start, end, self.selection)

    def _cuts(self, slices: Sequence[tuple[QueueSlice, float]], size: float) -> list[int]:
        """Where to cut the log so that each piece has about `size` bytes of wanted messages."""
        samples = []
        for (queue, first, end), bytes_ in slices:
            steps = min(end - first, max(1, -(-int(2 * bytes_) // max(1, int(size)))))
            for number in range(steps):
                at = first + (end - first) * number // steps
                samples += [
                    (int(entry["physical_offset"]), bytes_ / steps) for entry in real(queue.entries(at, at + 1))
                ]
        cuts: list[int] = []
        taken = 0.0
        for offset, bytes_ in sorted(samples):
            if taken >= size and offset > (cuts[-1] if cuts else self.start):
                cuts.append(offset)
                taken = 0.0
            taken += bytes_
        return cuts

    # By the index

    def _by_index(self) -> list[Part] | None:
        """Parts for keys or ids that a filter names; None if the index cannot find them."""
        filters, selection = self.filters, self.selection
        if filters.keys is None and filters.msg_ids is None:
            return None
        if selection.internal:  # rolled-back messages are not indexed
            return None
        topics = selection.topics or {topic for topic, _, _ in queue_folders(self.root)}
        wanted = IndexedKeys(topics, filters.keys, filters.msg_ids)
        found = find(self.root, wanted, self.files, self.start, self.end)
        if found is None:
            return None
        parts: list[Part] = []
        for at in range(0, len(found.places), _PLACES):
            places = tuple(found.places[at : at + _PLACES])
            parts.append(PlacesPart(tuple(self._files(places[0], places[-1] + 1)), places, selection))
        for start, end in found.unindexed:
            parts += self._log_parts(start, end)
        return parts


def _even_cuts(low: int, high: int, size: int) -> list[int]:
    parts = max(1, -(-(high - low) // size))
    return [low + (high - low) * number // parts for number in range(parts + 1)]


def _in_time(files: list[LogFile], selection: Selection) -> list[LogFile]:
    """The files without those that hold only older or only newer records: store times ascend along the log."""
    since, until = selection.since, selection.until
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
