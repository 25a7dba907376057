"""Dispatch: gives records read back from the log their queue entries and index keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord
from pyromq.protocol import sysflag

from .format import ENTRY, QueueOffset
from .queues.consume_queues import is_folder_name
from .tags import TAG_START

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from .fast_scan import Bulk
    from .index.index import IndexFiles
    from .queues.consume_queue import ConsumeQueue
    from .queues.consume_queues import ConsumeQueues
    from .scan import ScannedRecord
    from .tags import TagsCodes

logger = logging.getLogger(__name__)

_STEP = 1024  # records hashed together
_WRITE_EVERY = 64 * _STEP  # records after which their entries go to the system
_NEVER_WRITTEN = "part of it was never written"


class Dispatch:
    """Passes records read back from the log to the queues and the index; with `only`, to some queues.

    `restarted` is told of a queue that begins again at 0: its topic was deleted and made again. It is to empty the
    queue. Without it, the next message of the queue has to confirm that: after a crash, these bytes may be damaged.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        index: IndexFiles | None,
        tags: TagsCodes,
        deleted: Mapping[str, int],
        only: Collection[ConsumeQueue] | None = None,
        restarted: Callable[[ConsumeQueue], object] | None = None,
    ) -> None:
        self._queues = queues
        self._index = index
        self._tags = tags
        self._deleted = deleted
        self._only = only
        self._restarted = restarted
        self._known: dict[tuple[str, int], ConsumeQueue | None] = {}
        self._newest: ScannedRecord | None = None
        self.count = 0
        self.fast_count = 0  # how many of these took the fast path

    def all(self, records: Iterable[ScannedRecord], is_torn: Callable[[ScannedRecord], bool] | None = None) -> None:
        """Dispatch records in log order; call `finish` after the last.

        OSError if the disk does not take the entries. CorruptRecord at one that `is_torn`, which is asked about
        records with zeros where none belong. A gigabyte of records may come by here, so one next in its queue
        takes a fast path: 0.7 µs, with its keys 1.2 µs.
        """
        known, known_tags, deleted, index, pack = self._known, self._tags.known, self._deleted, self._index, ENTRY.pack
        for record in records:
            physical, size, queue_id, queue_offset, sys_flag, store_timestamp, topic, properties = record
            try:
                queue = known[topic, queue_id]
            except KeyError:
                if is_torn is not None and "\0" in topic and is_torn(record):
                    raise CorruptRecord(_NEVER_WRITTEN, physical) from None
                queue = self._queue(topic, queue_id, physical)
                if "\0" not in topic:
                    known[topic, queue_id] = queue
            if is_torn is not None and 0 in properties and is_torn(record):  # an int is sought eight times faster
                raise CorruptRecord(_NEVER_WRITTEN, physical)
            # Half messages and rolled-back ones have no queue entry.
            if (
                queue is not None
                and not sys_flag & sysflag.PREPARED
                and not (deleted and physical < deleted.get(topic, 0))
            ):
                # tags.of_tag, without the call
                at = properties.rfind(TAG_START)
                if at < 0 or queue.is_schedule or (tags_code := known_tags.get(properties[at:])) is None:
                    tags_code = self._tags.of(topic, properties, store_timestamp)
                if (
                    0 < queue_offset == queue.next_offset
                    and physical >= queue.max_physical
                    and queue.gap is None
                    and queue.held is None
                ):
                    # queue.add, without the call
                    queue.tail += pack(physical, size, tags_code)
                    queue.next_offset = queue_offset + 1  # type: ignore[assignment]  # still a queue offset
                    queue.max_physical = physical + size
                else:
                    if queue_offset == 0 < queue.max_offset and self._restarted is not None:
                        self._restarted(queue)
                    queue.put(QueueOffset(queue_offset), physical, size, tags_code)
            if index is not None and sys_flag & sysflag.ROLLBACK != sysflag.ROLLBACK:
                index.add(topic, properties, physical, store_timestamp)
            self._newest = record
            self.count += 1
            if not self.count % _STEP:
                self.finish()

    def bulk(self, bulk: Bulk, is_torn: Callable[[ScannedRecord], bool] | None = None) -> None:
        """As `all`, by the fast path for many records: 1 µs each, with their keys."""
        if self._deleted or (is_torn is not None and bulk.has_zeros) or not self._extend_queues(bulk):
            self.all(bulk.records(), is_torn)
            return
        if self._index is not None:
            self._index.add_bulk(bulk)
        self._newest = bulk.last
        before, self.count = self.count, self.count + len(bulk)
        self.fast_count += len(bulk)
        if before // _WRITE_EVERY != self.count // _WRITE_EVERY:
            self._write_out()

    def _extend_queues(self, bulk: Bulk) -> bool:
        """Add entries for records that are next in their queues; False, with nothing changed, if some are not."""
        runs = bulk.by_queue()
        queues = []
        for run in runs:
            queue = self._known.get((run.topic, run.queue_id))
            if (
                queue is None
                or queue.is_schedule
                or queue.gap is not None
                or queue.held is not None
                or not (run.is_dense and 0 < run.queue_offset == queue.next_offset)
                or run.physical < queue.max_physical
            ):
                return False
            queues.append(queue)
        entries = bulk.entries(self._tags)
        for queue, run in zip(queues, runs, strict=True):
            queue.add_all(entries[run.which].tobytes(), run.end)
        return True

    def take_newest(self) -> ScannedRecord | None:
        """The last record dispatched since the last call."""
        newest, self._newest = self._newest, None
        return newest

    def finish(self) -> None:
        """Index the collected records; keeps memory flat, however long the log is."""
        if self._index is not None:
            self._index.drain()
        if not self.count % _WRITE_EVERY:
            self._write_out()

    def _write_out(self) -> None:
        for queue in self._queues:
            queue.write_out()

    def _queue(self, topic: str, queue_id: int, physical: int) -> ConsumeQueue | None:
        queue = self._queues.find(topic, queue_id)
        if self._only is not None:
            return queue if queue in self._only else None
        if queue is None:
            if queue_id < 0 or not is_folder_name(topic):
                # No checksum protects these fields. The record stays in the log, where its id finds it.
                logger.warning("record at %d: %r, %d cannot be a queue; skipped", physical, topic, queue_id)
                return None
            queue = self._queues.get(topic, queue_id)
        return queue
