"""All consume queues of a store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import StoreError
from pyromq.settings import MiB

from ..format import CONSUME_QUEUE, CONSUME_QUEUE_EXT, queue_folders
from ..open_files import OpenFiles
from .consume_queue import ConsumeQueue
from .consume_queue_ext import ConsumeQueueExt
from .queue_entries import SIZE, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..disk import Disk

logger = logging.getLogger(__name__)


class ConsumeQueues:
    """The queues by topic and number. A queue exists, empty, as soon as it is asked for; its files come later."""

    def __init__(self, root: Path, file_size: int, disk: Disk, *, ext_file_size: int = 48 * MiB) -> None:
        self._root = root
        self._base = root / CONSUME_QUEUE
        self._file_size = -(-file_size // SIZE) * SIZE
        self._ext_file_size = ext_file_size
        self._has_ext = (root / CONSUME_QUEUE_EXT).is_dir()
        self._files = OpenFiles(disk)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        # Topics with an empty folder when the store was opened: deleted topics look like that.
        self.deleted_topics: frozenset[str] = frozenset()
        # Of queues that come from now on, see `Confirmed`.
        self.ceiling_of_new = UNLIMITED

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def load(self, *, crashed: bool = False) -> None:
        base = self._base
        topics = {path.name for path in base.iterdir() if path.is_dir()} if base.is_dir() else set()
        for topic, queue_id, folder in queue_folders(self._root):
            topics.discard(topic)
            queue = self._make(topic, queue_id, folder)
            queue.load(crashed=crashed)
        self.deleted_topics = frozenset(topics)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created if unknown."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._make(topic, queue_id, self._base / f"{topic}/{queue_id}")
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it is known."""
        return self._queues.get((topic, queue_id))

    def ext_of(self, queue: ConsumeQueue) -> ConsumeQueueExt:
        """The units of a queue, which may have none."""
        if queue.ext is None:
            folder = self._root / CONSUME_QUEUE_EXT / queue.topic / str(queue.queue_id)
            queue.ext = ConsumeQueueExt(folder, self._ext_file_size, self._files)
        return queue.ext

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return [queue for queue in self._queues.values() if queue.topic == topic]

    @property
    def max_physical(self) -> int:
        """The end of the newest record with an entry in any queue."""
        return max((queue.max_physical for queue in self._queues.values()), default=0)

    def cut_back(self, before: int) -> None:
        """After a crash: forget all entries but those of records before `before`, which were certainly on disk."""
        for queue in self._queues.values():
            queue.cut_back(before)

    def mend(self, log_start: int) -> None:
        """Repair queues with a missing file between others; the log begins at `log_start`."""
        for queue in self._queues.values():
            queue.mend(log_start)

    def truncate(self, end: int) -> None:
        """Forget the entries of records at or after `end`."""
        longer = [queue for queue in self._queues.values() if queue.max_physical > end]
        for queue in longer:
            queue.truncate(end)
        if longer:
            logger.info("%d queues cut back to records before %d", len(longer), end)

    def correct_min(self, log_start: int) -> None:
        for queue in self._queues.values():
            queue.correct_min(log_start)

    def delete_topic(self, topic: str) -> int:
        """Delete all queues of `topic` with their files. Returns how many there were.

        The messages stay in the log, so after a crash some may be back. The old queues must not be used any more.
        """
        queues = self.of_topic(topic)
        for queue in queues:
            queue.delete()
            del self._queues[topic, queue.queue_id]
        return len(queues)

    def delete_all(self) -> None:
        for queue in self._queues.values():
            queue.delete()

    def close(self) -> None:
        self._files.close()

    def _make(self, topic: str, queue_id: int, folder: Path) -> ConsumeQueue:
        if not is_folder_name(topic) or queue_id < 0:
            raise StoreError(f"{topic!r} queue {queue_id} cannot be kept in a folder")
        queue = ConsumeQueue(topic, queue_id, folder, self._file_size, self._files)
        queue.ceiling = self.ceiling_of_new
        if self._has_ext:
            ext_folder = self._root / CONSUME_QUEUE_EXT / topic / str(queue_id)
            if ext_folder.is_dir():
                queue.ext = ConsumeQueueExt(ext_folder, self._ext_file_size, self._files)
        self._queues[topic, queue_id] = queue
        return queue


def is_folder_name(topic: str) -> bool:
    """Whether a topic can be the name of a folder."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    try:
        return len(topic.encode()) <= 255
    except UnicodeEncodeError:
        return False
