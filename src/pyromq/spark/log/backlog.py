"""What the files of a store have of one topic, for a reader that knows which messages of which queue it wants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.errors import StoreError
from pyromq.store.format import CONSUME_QUEUE

from .files import log_end, log_files
from .filters import LogFilters
from .plan import Plan
from .queue_files import QueueSlice, queues_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..options import LogOptions
    from .plan import QueuePart


class Backlog:
    """The messages of the one topic in `options` that its queue files certainly know, as of now.

    Raises StoreError if the folder has no store, or one whose queues cannot be read as files.
    """

    def __init__(self, options: LogOptions) -> None:
        root = Path(options.path)
        if (root / CONSUME_QUEUE / "CURRENT").exists():
            raise StoreError(f"{root} keeps its queues in RocksDB, which cannot be read")
        files = log_files(root)
        end = log_end(files)
        files = [file for file in files if file.start < end]
        start = files[0].start if files else 0
        filters = LogFilters()
        self._plan = Plan(root, options, filters, filters.selection(options), files, start, end)
        self._queued = self._plan.queued_end() if files else 0
        self._slices: dict[int, QueueSlice] = {}
        for queue in queues_of(root, options.topics) if files else ():
            self._slices[queue.queue_id] = QueueSlice(queue, queue.first, queue.end()).between(start, self._queued)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """The first offset and the one after the last, by the queues' ids."""
        return {number: (each.first, each.end) for number, each in self._slices.items()}

    def mean_size(self, queue_id: int) -> float:
        """Mean bytes per message; 0 if there is none."""
        each = self._slices[queue_id]
        return self._plan.mean_size(each.queue, each.end)

    def parts(self, ranges: Mapping[int, tuple[int, int]]) -> list[QueuePart]:
        """The tasks that read these offsets, each a stretch of the log."""
        slices = []
        for number, (first, end) in sorted(ranges.items()):
            each = self._slices[number]
            wanted = QueueSlice(each.queue, max(first, each.first), min(end, each.end))
            if wanted.first < wanted.end:
                slices.append((wanted, (wanted.end - wanted.first) * self.mean_size(number)))
        return [*self._plan.queue_parts(slices, self._queued)]
