"""Reads one part of a store into Arrow batches: what a task of a scan does.

A file is mapped, not read, and the pages of a batch are released with it: a task holds one batch, whatever the size of
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

from ..decode.columns import MAX_ROWS, decode
from ..decode.selection import Selection
from .files import head_at, is_record, mapped, next_record, record_size_at
from .plan import LogPart, QueuePart
from .queue_files import may_have_tag, real, tag_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ..decode.columns import Decoded
    from ..decode.gather import Int64s
    from ..options import LogOptions
    from .files import LogFile
    from .plan import Part, PlacesPart
    from .queue_files import QueueSlice

logger = logging.getLogger(__name__)


def read(part: Part, options: LogOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part. Raises StoreError with file and place for damage that must not be skipped."""
    scan = _Scan(options, schema, part.selection)
    if isinstance(part, LogPart):
        return scan.log(part)
    return scan.queues(part) if isinstance(part, QueuePart) else scan.places(part)


class _Scan:
    def __init__(self, options: LogOptions, schema: pa.Schema, selection: Selection) -> None:
        self._options = options
        self._schema = schema
        self._selection = None if selection == Selection() else selection

    def log(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        """Every task owns the records that begin in its part; it finds the first of them itself."""
        file = part.file
        data = self._map(file)
        if data is None:
            return
        pos: int | None = part.start - file.start
        stop = min(part.end - file.start, len(data))
        if pos:
            pos = next_record(data, pos, file.start, stop)
        while pos is not None and pos < stop:
            try:
                kind = head_at(data, pos, file.start)
                if kind is HeadKind.BLANK:
                    return
                if kind is HeadKind.END:
                    raise CorruptRecord("zeros where a record should be", file.start + pos)
                found = self._decode(data, file, start=pos, stop=stop)
            except CorruptRecord as exc:
                self._report(file, exc, "skipping the rest of the file")
                pos = None if self._options.on_corrupt == "stop" else _behind(data, exc.offset - file.start, file.start)
                continue
            if found.batch.num_rows:
                yield found.batch
            _let_go(data, pos, found.end)
            pos = found.end

    def queues(self, part: QueuePart) -> Iterator[pa.RecordBatch]:
        """Messages in log order, which is also that of each queue; only those with an entry."""
        places = np.concatenate([self._places(each, part) for each in part.queues])
        places.sort(kind="stable")  # sorting merges what is already in order
        # A stale entry may point to a message of another queue, which has its own entry.
        places = places[np.diff(places, prepend=-1) > 0]
        for file in part.files:
            low, high = np.searchsorted(places, (file.start, file.end))
            if low < high:
                yield from self._messages(file, places[low:high])

    def _places(self, each: QueueSlice, part: QueuePart) -> Int64s:
        """Where the messages of a queue lie, without those with another tags code."""
        try:
            queue, first, end = each.between(part.start, part.end)
            entries = real(queue.entries(first, end))
        except FileNotFoundError as exc:
            self._lost(exc.filename)
            return np.empty(0, np.int64)
        entries = entries[may_have_tag(entries, tag_codes(queue.topic, part.selection.tags))]
        places = entries["physical_offset"].astype(np.int64)
        found: Int64s = places[(places >= part.start) & (places < part.end)]
        return found

    def places(self, part: PlacesPart) -> Iterator[pa.RecordBatch]:
        """Messages at given places, which may be wrong."""
        for file in part.files:
            places = [place for place in part.places if file.start <= place < file.end]
            data = self._map(file) if places else None
            if data is None:
                continue
            wrong = {place for place in places if not is_record(data, place - file.start, file.start)}
            for place in sorted(wrong):
                logger.warning("%s, byte %d: no record begins where the index says", file.path, place - file.start)
            yield from self._messages(file, np.array([place for place in places if place not in wrong], np.int64))

    def _messages(self, file: LogFile, places: Int64s) -> Iterator[pa.RecordBatch]:
        data = self._map(file)
        if data is None:
            return
        positions = places - file.start
        while len(positions):
            try:
                found = self._decode(data, file, positions=positions[:MAX_ROWS])
            except CorruptRecord as exc:
                # Nothing depends on the previous record here: whatever is set, only this one is skipped.
                self._report(file, exc, "skipped")
                positions = positions[1:]
                continue
            if found.batch.num_rows:
                yield found.batch
            _let_go(data, int(positions[0]), found.end)
            positions = positions[found.records :]

    def _decode(
        self,
        data: mmap.mmap,
        file: LogFile,
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
            selection=self._selection,
        )

    def _report(self, file: LogFile, corrupt: CorruptRecord, at_stop: str) -> None:
        at = corrupt.offset - file.start
        if self._options.on_corrupt == "fail":
            raise StoreError(
                f"{file.path}, byte {at}: {corrupt.reason}; onCorrupt=skip continues after it"
            ) from corrupt
        done = at_stop if self._options.on_corrupt == "stop" else "skipped"
        logger.warning("%s, byte %d: %s; %s", file.path, at, corrupt.reason, done)

    def _map(self, file: LogFile) -> mmap.mmap | None:
        try:
            data = mapped(file)
        except FileNotFoundError:
            self._lost(file.path)
            return None
        with contextlib.suppress(OSError, AttributeError):  # advice that not every system takes
            data.madvise(mmap.MADV_SEQUENTIAL)
        return data

    def _lost(self, path: str) -> None:
        if self._options.fail_on_data_loss:
            raise StoreError(f"{path} was deleted before it was read; failOnDataLoss=false continues without it")
        logger.warning("%s was deleted before it was read; its messages are missing", path)


def _behind(data: mmap.mmap, bad: int, origin: int) -> int | None:
    """Where the next record begins after a damaged one: at its end, if only its body is damaged."""
    if is_record(data, bad, origin):
        return bad + record_size_at(data, bad)
    return next_record(data, bad + 1, origin)


def _let_go(data: mmap.mmap, start: int, end: int) -> None:
    """Release the pages read so far, except the last one, where the next batch begins."""
    start, end = (place // mmap.PAGESIZE * mmap.PAGESIZE for place in (start, end))
    if start < end:
        with contextlib.suppress(OSError, AttributeError):
            data.madvise(mmap.MADV_DONTNEED, start, end - start)
