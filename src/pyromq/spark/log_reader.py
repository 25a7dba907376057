"""One part of a store to Arrow batches: what a task of a scan does.

A file is mapped, not read, and the pages of a batch are let go with it: a task holds one batch, whatever the size of
its part.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
from typing import TYPE_CHECKING

import numpy as np

from pyromq.errors import CorruptRecord, StoreError
from pyromq.protocol.record import HeadKind

from .columns import MAX_ROWS, decode
from .log_files import head_at, is_record, mapped, next_record, record_size_at
from .log_plan import LogPart
from .queue_files import real
from .selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from .columns import Decoded
    from .gather import Int64s
    from .log_files import LogFile
    from .log_plan import Part, QueuePart
    from .options import LogOptions

logger = logging.getLogger(__name__)

_ENTRIES = 1 << 16  # of a queue, read together


def read(part: Part, options: LogOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part. Raises StoreError naming file and place for damage that may not be passed over."""
    scan = _Scan(options, schema)
    return scan.log(part) if isinstance(part, LogPart) else scan.queue(part)


class _Scan:
    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._selection: Selection | None = Selection(
            topics=frozenset(options.topics) if options.topics else None,
            internal=options.include_internal,
            since=options.starting_timestamp,
            until=options.ending_timestamp,
        )
        if self._selection == Selection():
            self._selection = None

    def log(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        """Every task owns the records that begin in its part; it finds the first of them itself."""
        file = part.file
        data = self._map(file)
        if data is None:
            return
        pos: int | None = part.start - file.start
        stop = min(part.end - file.start, len(data))
        if pos:
            pos = next_record(data, pos, file.start)
        while pos is not None and pos < stop:
            try:
                kind = head_at(data, pos, file.start)
                if kind is HeadKind.BLANK:
                    return
                if kind is HeadKind.END:
                    raise CorruptRecord("zeros where a record should be", file.start + pos)
                found = self._decode(data, file, self._selection, start=pos, stop=stop)
            except CorruptRecord as exc:
                self._report(file, exc, "the rest of the file is left out")
                pos = None if self._options.on_corrupt == "stop" else _behind(data, exc.offset - file.start, file.start)
                continue
            if found.batch.num_rows:
                yield found.batch
            pos = found.end
            _let_go(data, pos)

    def queue(self, part: QueuePart) -> Iterator[pa.RecordBatch]:
        """Messages in the order of the queue; entries are the only ones that are read, so nothing invisible is."""
        starts = np.array([file.start for file in part.files])
        for first in range(part.first, part.end, _ENTRIES):
            try:
                entries = real(part.queue.entries(first, min(first + _ENTRIES, part.end)))
            except FileNotFoundError as exc:
                self._lost(exc.filename)
                continue
            places = entries["offset"].astype(np.int64)
            places = places[(places >= part.log_start) & (places < part.log_end)]
            numbers = np.searchsorted(starts, places, "right") - 1
            changes = np.flatnonzero(np.diff(numbers)) + 1
            for run in np.split(np.arange(len(places)), changes):
                if len(run):
                    yield from self._messages(part.files[numbers[run[0]]], places[run], part.queue.topic)

    def _messages(self, file: LogFile, places: Int64s, topic: str) -> Iterator[pa.RecordBatch]:
        data = self._map(file)
        if data is None:
            return
        # An entry that was left behind may point to a record of another topic.
        selection = Selection(
            topics=frozenset((topic,)),
            internal=self._options.include_internal,
            since=self._options.starting_timestamp,
            until=self._options.ending_timestamp,
        )
        positions = places - file.start
        while len(positions):
            try:
                found = self._decode(data, file, selection, positions=positions[:MAX_ROWS])
            except CorruptRecord as exc:
                # Here nothing depends on the record before: whatever is set, only this one is left out.
                self._report(file, exc, "passed over")
                positions = positions[1:]
                continue
            if found.batch.num_rows:
                yield found.batch
            positions = positions[found.records :]
            _let_go(data, found.end)

    def _decode(
        self,
        data: mmap.mmap,
        file: LogFile,
        selection: Selection | None,
        *,
        start: int = 0,
        stop: int | None = None,
        positions: Int64s | None = None,
    ) -> Decoded:
        return decode(
            data,
            self._schema,
            broker_name=self._options.broker_name,
            start=start,
            stop=stop,
            positions=positions,
            origin=file.start,
            include_properties=self._options.include_properties,
            decompress=self._options.decompress,
            verify_crc=self._options.verify_crc,
            selection=selection,
        )

    def _report(self, file: LogFile, corrupt: CorruptRecord, at_stop: str) -> None:
        at = corrupt.offset - file.start
        if self._options.on_corrupt == "fail":
            raise StoreError(
                f"{file.path}, byte {at}: {corrupt.reason}; onCorrupt=skip reads on behind it"
            ) from corrupt
        done = at_stop if self._options.on_corrupt == "stop" else "passed over"
        logger.warning("%s, byte %d: %s; %s", file.path, at, corrupt.reason, done)

    def _map(self, file: LogFile) -> mmap.mmap | None:
        try:
            data = mapped(file)
        except FileNotFoundError:
            self._lost(file.path)
            return None
        with contextlib.suppress(OSError, AttributeError):  # advice, which not every system takes
            data.madvise(mmap.MADV_SEQUENTIAL)
        return data

    def _lost(self, path: str) -> None:
        if self._options.fail_on_data_loss:
            raise StoreError(f"{path} was deleted while it was to be read; failOnDataLoss=false goes on without it")
        logger.warning("%s was deleted while it was to be read; its messages are missing", path)


def _behind(data: mmap.mmap, bad: int, origin: int) -> int | None:
    """Where the next record begins behind a damaged one: at its end, if only its body is."""
    if is_record(data, bad, origin):
        return bad + record_size_at(data, bad)
    return next_record(data, bad + 1, origin)


def _let_go(data: mmap.mmap, upto: int) -> None:
    """Give back the pages that were read."""
    length = upto // mmap.PAGESIZE * mmap.PAGESIZE
    if length:
        with contextlib.suppress(OSError, AttributeError):
            data.madvise(mmap.MADV_DONTNEED, 0, length)
