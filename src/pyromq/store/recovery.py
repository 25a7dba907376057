"""Recovery: finds where the commit log really ends, and rebuilds what queues and index lack.

After a clean stop the last files of the log are read, to find its end, and whatever the queues lack. After a crash the
log is replayed from a point that was certainly on disk; what queues and index have of later records is thrown
away and rebuilt, since pages of it may be missing or torn.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord
from pyromq.protocol.record import SIZE_AND_MAGIC, HeadKind, read_head

from . import failpoints
from .dispatch import Dispatch
from .format import PhysicalOffset, QueueOffset
from .queues.consume_queue import Gap
from .scan import ScannedRecord, scan, scan_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .commit_log import CommitLog
    from .index.index import IndexFiles
    from .queues.consume_queues import ConsumeQueues
    from .queues.queue_ends import QueueEnd, QueueEnds
    from .segment import Segment
    from .tags import TagsCodes

logger = logging.getLogger(__name__)

_SECTOR = 512  # what a disk writes as a whole, at least


class Recovery:
    """Makes log, queues and index consistent. All files are loaded; after an OSError it must start over."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexFiles | None,
        tags: TagsCodes,
        *,
        deleted: Mapping[str, int] | None = None,
        check_crc: bool = True,
        progress: Callable[[int], None] = lambda percent: None,
    ) -> None:
        """`progress` is told how many percent of the log were read."""
        self._log = log
        self._queues = queues
        self._index = index
        self._tags = tags
        # By topic, where the log ended when it was deleted.
        self._deleted = deleted or {}
        self._check_crc = check_crc
        self._progress = Progress(progress)
        self._is_crash = self._was_copy = False
        # The newest store time read.
        self.last_timestamp = 0
        # Where the newest whole record begins and ends; None if none was found.
        self.newest: tuple[int, int] | None = None
        # How many records were dispatched.
        self.count = 0

    def after_stop(self, ends: QueueEnds | None = None) -> None:
        """Read the last three files, and earlier ones if a queue ends there, or ended elsewhere according to `ends`."""
        log, queues = self._log, self._queues
        segments = log.segments
        if not segments:
            self._forget_all()
            return
        start = segments[-3:][0].start
        self._drop_deleted()
        queues.mend(log.start)
        for queue in queues:
            queue.drop_unknown(log.holds, start)
        remembered = ends.queues if ends is not None and self._ends_at(ends.log_end) else []
        for queue_end in remembered:
            self._compare(queue_end)
        # All records before the queues' ends have entries, unless a queue was just found to lack some.
        dispatch_from = min(
            (queue.gap.physical for queue in queues if queue.gap is not None), default=max(queues.max_physical, 0)
        )
        dispatch_from = max(dispatch_from, log.start)
        dispatch = Dispatch(queues, self._index, self._tags, self._deleted)
        self._dispatch_older(dispatch, dispatch_from, start)
        self._find_end(start, dispatch_from, dispatch)
        if self._index is not None and self._index.last_update[1] >= log.end:
            self._index.cut_back(log.end)
        self._close_gaps(dispatch_from)
        if ends is not None and log.end == ends.log_end:
            for queue_end in remembered:
                self._keep_offsets(queue_end)
        queues.correct_min(log.start)

    def after_crash(self, safe_timestamp: int, *, was_copy: bool = False) -> None:
        """Replay the log from the newest file that began before `safe_timestamp`, and dispatch all of it.

        A log that `was_copy` was written in pieces of any size, and may end anywhere within a record.
        """
        log, queues = self._log, self._queues
        segments = log.segments
        if not segments:
            self._forget_all()
            return
        self._is_crash, self._was_copy = True, was_copy
        start = start_after_crash(segments, safe_timestamp)
        if self._index is not None:
            self._index.cut_back(start)
        queues.cut_back(start)
        self._drop_deleted()
        queues.mend(log.start)
        for queue in queues:
            queue.drop_unknown(log.holds, log.start)
        dispatch = Dispatch(queues, self._index, self._tags, self._deleted)
        self._find_end(start, start, dispatch)
        self._close_gaps(start)
        queues.correct_min(log.start)

    def _forget_all(self) -> None:
        """There is no log: queues and index only have messages that are gone."""
        self._queues.delete_all()
        if self._index is not None:
            self._index.destroy()

    def _drop_deleted(self) -> None:
        """Finish deleting queues that were being deleted when the store crashed."""
        for queue in self._queues:
            if 0 < queue.max_physical <= self._deleted.get(queue.topic, 0):
                queue.delete()

    # The log

    def _find_end(self, start: int, dispatch_from: int, dispatch: Dispatch) -> None:
        """Cut the log after the last whole record, not before `start`; the queues follow."""
        end = self._read(start, dispatch_from, dispatch)
        dispatch.finish()
        self._settle()
        self.count += dispatch.count
        self._log.truncate(end)
        # A killed process leaves data that is not on disk yet; from now on it counts as flushed.
        self._log.sync(start)
        self._queues.truncate(end)

    def _read(self, start: int, dispatch_from: int, dispatch: Dispatch) -> PhysicalOffset:
        segments = [segment for segment in self._log.segments if segment.start >= start]
        end = PhysicalOffset(start)
        self._progress.begin(start, segments[-1].end)
        for segment in segments:
            if segment.start != end:
                # What it held is lost; what follows is not.
                logger.error("commit log: no file for %s to %s; its messages are gone", end, segment.start)
            whole, end = self._read_file(segment, dispatch_from, dispatch)
            failpoints.hit("log.recovered")
            self._progress(segment.end)
            if not whole:
                break
        return end

    def _read_file(self, segment: Segment, dispatch_from: int, dispatch: Dispatch) -> tuple[bool, PhysicalOffset]:
        """Whether the log continues in the next file, and where its records end or continue."""
        dispatch.take_newest()  # of the files before
        is_torn = functools.partial(_is_torn, segment, self._was_copy) if self._is_crash else None
        earlier = damage = None
        try:
            for records in scan_many(segment.view, segment.start, check_crc=self._check_crc):
                last = records[-1] if isinstance(records, list) else records.last
                self._progress(last.physical_offset)
                if last.physical_offset < dispatch_from:
                    earlier = last
                elif isinstance(records, list):
                    dispatch.all((each for each in records if each.physical_offset >= dispatch_from), is_torn)
                elif records.physical[0] >= dispatch_from:
                    dispatch.bulk(records, is_torn)
                else:
                    dispatch.all((each for each in records.records() if each.physical_offset >= dispatch_from), is_torn)
        except CorruptRecord as exc:
            damage = exc
        newest = dispatch.take_newest() or earlier
        at = 0
        if newest is not None:
            self.newest = newest.physical_offset, newest.physical_offset + newest.size
            at = newest.physical_offset + newest.size - segment.start
            self.last_timestamp = max(self.last_timestamp, newest.store_timestamp)
        if segment.size - at < SIZE_AND_MAGIC.size:
            return True, PhysicalOffset(segment.end)
        if damage is not None:
            logger.warning("the commit log ends at %s: %s", segment.start + at, damage)
        elif read_head(segment.view, at)[0] is HeadKind.BLANK:
            return True, PhysicalOffset(segment.end)
        return False, PhysicalOffset(segment.start + at)

    def _ends_at(self, end: int) -> bool:
        """Whether nothing was written to the log at or after `end`, which was its end."""
        segment = self._log.segment_at(end)
        if segment is None:
            return self._log.end == end
        try:
            return read_head(segment.view, end - segment.start)[0] is HeadKind.END
        except CorruptRecord:
            return False

    # Queues that lack entries

    def _compare(self, end: QueueEnd) -> None:
        """Note a gap if a queue does not end where it did when the store was closed."""
        queue = self._queues.get(end.topic, end.queue_id)
        if (queue.next_offset, queue.max_physical) == (end.max_offset, end.max_physical):
            return
        logger.warning("%r ended at %d when the store was closed; reading the log again", queue, end.max_offset)
        queue.cut(end.max_offset)
        if queue.next_offset == end.max_offset and queue.max_physical != end.max_physical:
            queue.cut(QueueOffset(queue.next_offset - 1))
        if queue.next_offset < end.max_offset:
            queue.gap = Gap(queue.next_offset, queue.max_physical)

    def _keep_offsets(self, end: QueueEnd) -> None:
        """Messages neither in the queue nor in the log are gone; no other message may get their offsets."""
        queue = self._queues.find(end.topic, end.queue_id)
        if queue is not None and queue.next_offset < end.max_offset:
            queue.fill_up_to(end.max_offset)
            queue.gap = None

    def _close_gaps(self, dispatched_from: int) -> None:
        """Look for missing entries in the part of the log that was not dispatched yet."""
        missing = []
        for queue in self._queues:
            if queue.gap is None:
                continue
            gap, queue.gap = queue.gap, None
            is_deleted = gap.physical == 0 and queue.topic in self._queues.deleted_topics
            if max(gap.physical, self._log.start) < dispatched_from and not is_deleted:
                missing.append((queue, gap))
        if not missing:
            return
        start = max(min(gap.physical for _, gap in missing), self._log.start)
        logger.warning("%d queues miss entries; reading the log again from %d", len(missing), start)
        for queue, gap in missing:
            if gap.offset == 0:
                queue.clear()
            else:
                queue.cut(gap.offset)
        only = frozenset(queue for queue, _ in missing)
        dispatch = Dispatch(self._queues, None, self._tags, self._deleted, only)
        self._dispatch_older(dispatch, start, self._log.end)
        self._settle()
        for queue, _ in missing:
            queue.gap = None

    def _settle(self) -> None:
        for queue in self._queues:
            queue.settle(is_new=queue.topic in self._queues.deleted_topics)

    def _dispatch_older(self, dispatch: Dispatch, start: int, end: int) -> None:
        """Dispatch the records from `start` to `end`, in a part of the log that must not be cut.

        Damage there costs the damaged record and the rest of its file, no more.
        """
        segments = [segment for segment in self._log.segments if segment.end > start and segment.start < end]
        self._progress.begin(start, end)
        for segment in segments:
            try:
                dispatch.all(_between(start, end, scan(segment.view, 0, segment.start, check_crc=False)))
            except CorruptRecord as exc:
                logger.error("%s; skipping the rest of its file", exc)
            self._progress(segment.end)


def _between(start: int, end: int, records: Iterable[ScannedRecord]) -> Iterable[ScannedRecord]:
    for record in records:
        if record.physical_offset >= end:
            return
        if record.physical_offset >= start:
            yield record


def _is_torn(segment: Segment, was_copy: bool, record: ScannedRecord) -> bool:
    """Whether the zeros in a record's topic or properties were never written.

    No checksum protects them. After a power failure unwritten data reads as zeros, in whole sectors. Zeros of a
    producer's own are recognised by what follows in their sector, unless theirs is the very last message. The last
    record of a copy may end anywhere; if it was whole and had these zeros, the master sends it again.
    """
    view = segment.view
    end = record.physical_offset + record.size - segment.start
    is_last = not any(view[end : end + SIZE_AND_MAGIC.size])
    if was_copy and is_last and (record.properties.endswith(b"\0") or record.topic.endswith("\0")):
        return True
    # Begin after the body, which has a checksum, and the length of the topic, which would not fit.
    first = end - len(record.properties) - 2 - len(record.topic.encode())
    sectors = (view[sector : sector + _SECTOR] for sector in range(-(-first // _SECTOR) * _SECTOR, end, _SECTOR))
    return any(sector == bytes(len(sector)) for sector in sectors)


def start_after_crash(segments: Sequence[Segment], safe_timestamp: int) -> int:
    """Where to begin after a crash: the newest file whose first message, with its entries, was flushed before."""
    for segment in reversed(segments):
        first = first_record(segment)
        if first is not None and 0 < first.store_timestamp <= safe_timestamp:
            return segment.start
    return segments[0].start if segments else 0


def first_record(segment: Segment) -> ScannedRecord | None:
    """The first record of a file; None if there is no whole one."""
    try:
        return next(scan(segment.view, 0, segment.start, check_crc=False), None)
    except CorruptRecord:
        return None


class Progress:
    """Tells how far a long recovery has come, and logs it every few seconds."""

    def __init__(self, told: Callable[[int], None] = lambda percent: None, interval: float = 5.0) -> None:
        self._told = told
        self._interval = interval
        self._last = time.monotonic()
        self._start = 0
        self._size = 1

    def begin(self, start: int, end: int) -> None:
        """What is read now lies between these offsets."""
        self._start, self._size = start, max(end - start, 1)

    def __call__(self, at: int) -> None:
        """Everything before this offset was read."""
        percent = min(100 * (at - self._start) // self._size, 100)
        self._told(percent)
        now = time.monotonic()
        if now - self._last >= self._interval:
            self._last = now
            logger.info("recovering the commit log: %d %%", percent)
