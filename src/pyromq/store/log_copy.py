"""LogCopy: the log of a slave, written with the bytes of its master's log as they come.

Bytes come in any pieces, so the log may end in the middle of a record. Only records that are there as a whole get their
queue entries and index keys; what has no entry is seen by nobody. After a crash, recovery cuts off a record that is not
whole, and the master is asked for it again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord, StoreError
from pyromq.protocol.record import SIZE_AND_MAGIC, HeadKind, read_head

from .dispatch import Dispatch
from .format import PhysicalOffset
from .scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .commit_log import CommitLog
    from .fast_scan import FastScanner
    from .index.index import IndexFiles
    from .queues.consume_queue import ConsumeQueue
    from .queues.consume_queues import ConsumeQueues
    from .scan import ScannedRecord
    from .segment import Segment
    from .tags import TagsCodes

# From so many bytes on, records are read a thousand at a time: 3.7 µs each in 1 MB of 1 KB records, 6 µs one by one.
# For fewer, what numpy takes for each call costs more: 11 µs in 64 KB.
_MUCH = 256 << 10


def whole_records(log: CommitLog, start: int) -> Iterator[ScannedRecord]:
    """The records from `start` on that are there as a whole, in all files."""
    while (segment := log.segment_at(start)) is not None and start < log.end:
        received = min(int(log.end), segment.end) - segment.start
        with contextlib.suppress(CorruptRecord):  # or what is left of a file that is too full for a blank record
            yield from scan(
                segment.view[:received],
                start - segment.start,
                segment.start,
                check_crc=False,
                more=segment.size - received,
            )
        start = segment.end


class LogCopy:
    """Appends to the log, and dispatches. `dispatched` is where the records end that have their entries.

    `newest` is where the newest whole record begins and ends, None if there is none yet.
    `restarted` is told of a queue that begins again, and empties it.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexFiles | None,
        tags: TagsCodes,
        restarted: Callable[[ConsumeQueue], object],
        newest: tuple[int, int] | None,
    ) -> None:
        self._log = log
        self._queues = queues
        # Topics were deleted before what comes now: nothing of it is to be skipped.
        self._dispatch = Dispatch(queues, index, tags, {}, restarted=restarted)
        self.dispatched = int(log.end)
        # Where the log ended after the last append. If it ends elsewhere, it was written by others since.
        self.end = int(log.end)
        self.newest = newest
        self.last_timestamp = 0

    def append(self, offset: int, pieces: Iterable[bytes | memoryview]) -> None:
        """Append what the master's log has at `offset`, piece by piece. `dispatch` it then, whatever happened.

        StoreError if it does not continue this log, OSError if the disk refuses a piece; those before it are kept.
        """
        log = self._log
        if not log.segments and offset != log.end:
            # The master begins with its last file; what lies before it was never asked for.
            log.begin_at(PhysicalOffset(offset))
            self.dispatched = offset
        if offset != log.end:
            raise StoreError(f"the copy of the log ends at {log.end} and cannot go on with what belongs to {offset}")
        try:
            for data in pieces:
                while data:
                    size = min(len(data), log.file_size - int(log.end) % log.file_size)
                    log.append_copy(data[:size])
                    data = data[size:]
        finally:
            self.end = int(log.end)

    def dispatch(self) -> dict[ConsumeQueue, None]:
        """Dispatch the records that are whole by now. Gives the queues that got messages.

        Their keys are collected, as those of a master's messages are. CorruptRecord if what was appended is no log.
        """
        touched: dict[ConsumeQueue, None] = {}
        while (segment := self._log.segment_at(self.dispatched)) is not None and self.dispatched < self._log.end:
            received = min(int(self._log.end), segment.end) - segment.start
            self._dispatch_file(segment, received, touched)
            at = self.dispatched - segment.start
            if at < received and not self._is_file_done(segment, at, received):
                break
            if received < segment.size:
                break
            self.dispatched = segment.end
        return touched

    def _dispatch_file(self, segment: Segment, received: int, touched: dict[ConsumeQueue, None]) -> None:
        """Dispatch the whole records among what was received of a file."""
        view = segment.view[:received]
        at = self.dispatched - segment.start
        if received - at > _MUCH:
            from .fast_scan import FastScanner

            scanner: FastScanner = FastScanner(view, segment.start, check_crc=False)
            while (many := scanner.read(at)) is not None:
                self._dispatch.bulk(many)
                self._note(touched, {*zip(many.topics, many.queue_ids.tolist(), strict=True)})
                self.last_timestamp = max(self.last_timestamp, many.last.store_timestamp)
                at = many.end - segment.start
                self.dispatched = many.end
                self.newest = many.last.physical_offset, many.end
        records = list(scan(view, at, segment.start, check_crc=False, more=segment.size - received))
        if records:
            self._dispatch.all(records)
            self._note(touched, {(record.topic, record.queue_id) for record in records})
            last = records[-1]
            self.last_timestamp = max(self.last_timestamp, last.store_timestamp)
            self.dispatched = last.physical_offset + last.size
            self.newest = last.physical_offset, self.dispatched

    def _is_file_done(self, segment: Segment, at: int, received: int) -> bool:
        """Whether only the blank record is left of a file; False while more has to come."""
        left = received - at
        if left < SIZE_AND_MAGIC.size:
            return received == segment.size  # too little for a blank record: the file is full
        kind, _ = read_head(segment.view, at)
        if kind is HeadKind.END:
            raise CorruptRecord("the master sent zeros where a record belongs", segment.start + at)
        return kind is HeadKind.BLANK and received == segment.size

    def _note(self, touched: dict[ConsumeQueue, None], names: set[tuple[str, int]]) -> None:
        for topic, queue_id in names:
            queue = self._queues.find(topic, queue_id)
            if queue is not None:
                touched[queue] = None
